// Package pass makes and reads the statements that a browser keeps for us: who it
// is, or which session it may look at. They are signed, so that the proxy need not
// remember them, and whoever comes after it can read them.
//
//	1.PAYLOAD.MAC     the version; JSON and its HMAC-SHA256, both in base64url
//
// Invariant: what Open returns was sealed with the same key, and is good now.
//
// Not here: where a pass is kept and shown (package web), what it lets one do
// (package apiserver).
package pass

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/policy"
)

// MaxLen bounds a pass, in bytes: browsers keep cookies of 4096 with their names
// and attributes.
const MaxLen = 3 << 10

const version = "1"

// A Kind is what a pass is for. One kind is never taken for another.
type Kind string

// The kinds.
const (
	Page  Kind = "page"  // to be whoever it says
	Share Kind = "share" // to look at one session, as whoever it says
)

// A Pass is what is stated.
type Pass struct {
	Kind    Kind      `json:"kind"`
	Expires time.Time `json:"expires"`
	// Issued is when a page's pass was made: a sign-out ends those from before. It
	// is zero in those of older releases.
	Issued time.Time `json:"issued,omitzero"`
	// Port is the one that a page's pass was given at: browsers send a cookie to
	// every port of a host.
	Port int `json:"port,omitempty"`
	// Session and Instance are what a share's pass lets one look at.
	Session  protocol.SessionID `json:"session_id,omitempty"`
	Instance protocol.Instance  `json:"instance,omitempty"`
	// Principal is who it is, or who has shared; nil where no policy was asked.
	Principal *policy.Principal `json:"principal,omitempty"`
}

// A Key seals passes and opens them. A nil Key does neither.
type Key struct{ key []byte }

// NewKey derives a key from a secret, such as the proxy's token: when that changes
// no pass is good any more. There is none of an empty secret.
func NewKey(secret string) *Key {
	if secret == "" {
		return nil
	}
	key := sha256.Sum256([]byte("holdfast passes " + secret))
	return &Key{key[:]}
}

var encoding = base64.RawURLEncoding.Strict()

// Seal returns a pass as text. Errors: unsupported without a key; limit_exceeded for
// what would be too long.
func (k *Key) Seal(p Pass) (string, error) {
	if k == nil {
		return "", protocol.Errorf(protocol.CodeUnsupported, "this proxy has no key for passes")
	}
	payload, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("pass: %w", err)
	}
	text := version + "." + encoding.EncodeToString(payload)
	text += "." + encoding.EncodeToString(k.mac(text))
	if len(text) > MaxLen {
		return "", protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf("the policy says too much of this user for a browser to keep: %d bytes, %d at most", len(text), MaxLen))
	}
	return text, nil
}

// ErrExpired is of a pass that was good once; errInvalid of one that never was.
var (
	ErrExpired = errors.New("the pass has expired")
	errInvalid = errors.New("this is no pass of ours")
)

// Open reads a pass of a kind. An error means that it is not good.
func (k *Key) Open(text string, kind Kind, now time.Time) (*Pass, error) {
	dot := strings.LastIndexByte(text, '.')
	if k == nil || len(text) > MaxLen || dot < 0 {
		return nil, errInvalid
	}
	mac, err := encoding.DecodeString(text[dot+1:])
	if err != nil || !hmac.Equal(mac, k.mac(text[:dot])) {
		return nil, errInvalid
	}
	// All that follows was written by us, perhaps by another version.
	encoded, ok := strings.CutPrefix(text[:dot], version+".")
	if !ok {
		return nil, errInvalid
	}
	payload, err := encoding.DecodeString(encoded)
	if err != nil {
		return nil, errInvalid
	}
	p := &Pass{}
	if err := json.Unmarshal(payload, p); err != nil || p.Kind != kind {
		return nil, errInvalid
	}
	if !now.Before(p.Expires) {
		return nil, ErrExpired
	}
	return p, nil
}

func (k *Key) mac(text string) []byte {
	h := hmac.New(sha256.New, k.key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// Name stands for a pass where it must not be seen itself. Who knows the name knows
// nothing of the pass.
func Name(text string) string {
	sum := sha256.Sum256([]byte(text))
	return encoding.EncodeToString(sum[:9])
}
