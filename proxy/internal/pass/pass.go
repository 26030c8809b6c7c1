// Package pass makes and reads the passes that a browser holds: a statement about its user, or
// about the session that it may view. Passes are signed, so that the proxy need not store them
// and its successor can read them.
//
//	1.PAYLOAD.MAC     the version; JSON and its HMAC-SHA256, both in base64url
//
// Invariant: a pass that Open returns was sealed with the same key and has not expired.
//
// Not here: how a browser stores and sends a pass (package web), and the rights that a pass gives
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

// maxLen is the largest length of a pass in bytes. Browsers store cookies of up to 4096 bytes
// with their names and attributes.
const maxLen = 3 << 10

const version = "1"

// A Kind is the purpose of a pass. Open accepts only passes of the requested kind.
type Kind string

// The kinds of passes.
const (
	Page  Kind = "page"  // identifies the user of the web page
	Share Kind = "share" // allows to view one session
)

// A Pass is a signed statement.
type Pass struct {
	Kind    Kind      `json:"kind"`
	Expires time.Time `json:"expires"`
	// Issued is the time when a page's pass was made, because a sign-out voids all earlier ones.
	Issued time.Time `json:"issued,omitzero"`
	// Port is the port of the listener that issued a page's pass. It must be checked, because
	// browsers send a cookie to every port of a host.
	Port int `json:"port,omitempty"`
	// Session and Instance name the session that a share's pass allows to view.
	Session  protocol.SessionID `json:"session_id,omitempty"`
	Instance protocol.Instance  `json:"instance,omitempty"`
	// Principal is the user, or the user that has shared the session; nil if there is no policy.
	Principal *policy.Principal `json:"principal,omitempty"`
}

// A Key seals and opens passes. A nil Key fails at both.
type Key struct{ key []byte }

// NewKey derives a key from a secret, such as the proxy's token. If the secret changes, all
// passes become invalid. NewKey returns nil for an empty secret.
func NewKey(secret string) *Key {
	if secret == "" {
		return nil
	}
	key := sha256.Sum256([]byte("holdfast passes " + secret))
	return &Key{key[:]}
}

var encoding = base64.RawURLEncoding.Strict()

// Seal returns a pass as text. The errors are unsupported if k is nil, and limit_exceeded if the
// text would be longer than maxLen.
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
	if len(text) > maxLen {
		return "", protocol.Errorf(protocol.CodeLimitExceeded, "the pass has %d bytes, but a browser stores only %d: let the policy return a shorter user, workspace or roles", len(text), maxLen)
	}
	return text, nil
}

// errExpired means that a pass is valid but has expired; errInvalid means that a text is not a
// valid pass.
var (
	errExpired = errors.New("the pass has expired")
	errInvalid = errors.New("the pass is invalid")
)

// Open reads a pass of the given kind. It returns an error unless the pass is valid now.
func (k *Key) Open(text string, kind Kind, now time.Time) (*Pass, error) {
	dot := strings.LastIndexByte(text, '.')
	if k == nil || len(text) > maxLen || dot < 0 {
		return nil, errInvalid
	}
	// The texts of the codes are compared, because the decoder ignores line breaks: a pass must have one text only.
	if mac := encoding.EncodeToString(k.mac(text[:dot])); !hmac.Equal([]byte(text[dot+1:]), []byte(mac)) {
		return nil, errInvalid
	}
	// The text after this check was sealed with this key, but another version may have written
	// it.
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
		return nil, errExpired
	}
	return p, nil
}

func (k *Key) mac(text string) []byte {
	h := hmac.New(sha256.New, k.key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// Fingerprint identifies the key: a pass that was sealed with k can be opened with another Key if both have the
// same fingerprint. Neither the key nor a pass can be computed from it. The fingerprint of a nil Key is empty.
func (k *Key) Fingerprint() string {
	if k == nil {
		return ""
	}
	return encoding.EncodeToString(k.mac("fingerprint")[:16]) // the text of a pass begins with its version, so this is the code of none
}

// Name returns a name for a pass that may appear in URLs and logs. The pass cannot be computed
// from its name.
func Name(text string) string {
	sum := sha256.Sum256([]byte(text))
	return encoding.EncodeToString(sum[:9])
}
