package gate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// The kinds of entries.
const (
	ForClients = "holdfast-client" // the secret is the token of all clients
	ForHosts   = "holdfast-join"   // the secret is a join token, which is valid once
	ForGates   = "holdfast-gate"   // the secret is a token with which a new gate receives the identity of the gates, once
)

// An Entry is all that a client, a host or a new gate must know of the gates, in one text without spaces:
//
//	KIND/HOST:PORT,HOST:PORT/FINGERPRINT/SECRET
type Entry struct {
	Kind        string
	Addresses   []string // 1 to MaxGates of HOST:PORT; the first is that of the gate that has made the text
	Fingerprint string   // SHA-256 of the certificate of all gates, 64 hexadecimal digits
	Secret      string   // 64 hexadecimal digits; "" in an entry for clients that the policy of the gate knows
}

// noSecret stands for an empty Secret in the text of an entry.
const noSecret = "none"

// String returns the text of the entry.
func (e Entry) String() string {
	return strings.Join([]string{e.Kind, strings.Join(e.Addresses, ","), e.Fingerprint, cmp.Or(e.Secret, noSecret)}, "/")
}

// ParseEntry parses the text of an entry. Its errors do not contain the secret.
func ParseEntry(kind, text string) (Entry, error) {
	parts := strings.Split(strings.TrimSpace(text), "/")
	if len(parts) != 4 {
		return Entry{}, fmt.Errorf("the text has not the form %s/HOST:PORT/FINGERPRINT/SECRET; copy what the gate has printed", kind)
	}
	e := Entry{parts[0], strings.Split(parts[1], ","), parts[2], parts[3]}
	if e.Kind != kind {
		return Entry{}, fmt.Errorf("the text begins with %.40q, but %s is required here", e.Kind, kind)
	}
	if len(e.Addresses) > MaxGates {
		return Entry{}, fmt.Errorf("the text has %d addresses, and at most %d are allowed", len(e.Addresses), MaxGates)
	}
	for _, address := range e.Addresses {
		if !ValidAddress(address) {
			return Entry{}, fmt.Errorf("%.80q is no address of the form HOST:PORT", address)
		}
	}
	if kind == ForClients && e.Secret == noSecret {
		e.Secret = ""
	}
	isComplete := isHex(e.Secret, TokenBytes) || kind == ForClients && e.Secret == ""
	if !isHex(e.Fingerprint, sha256.Size) || !isComplete {
		return Entry{}, errors.New("the fingerprint and the secret must have 64 hexadecimal digits each; copy what the gate has printed")
	}
	return e, nil
}

func isHex(s string, n int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == n && strings.ToLower(s) == s
}

// ValidHost reports whether name may be the name of a host: 1 to 64 of a-z, A-Z, 0-9, "_", "-" and ".",
// of which the first is a letter or digit.
func ValidHost(name string) bool {
	for i, c := range []byte(name) {
		isWord := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !isWord && (i == 0 || c != '_' && c != '-' && c != '.') {
			return false
		}
	}
	return len(name) > 0 && len(name) <= MaxHost
}

// ValidAddress reports whether address has the form HOST:PORT, at most MaxAddress bytes, and no character
// that separates the parts of an Entry.
func ValidAddress(address string) bool {
	host, port, err := net.SplitHostPort(address)
	isOdd := func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ',' || r == '/' }
	return err == nil && host != "" && port != "" && len(address) <= MaxAddress && !strings.ContainsFunc(address, isOdd)
}

// Fingerprint returns the fingerprint of a certificate in DER.
func Fingerprint(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	return hex.EncodeToString(sum[:])
}

// ErrFingerprint tells that a server has another certificate than the gate.
var ErrFingerprint = errors.New("the certificate of the gate has another fingerprint")

// probes close a dead connection after about 20 s without an answer, as those of ssh are.
var probes = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// KeepAlive returns the probes with which both ends notice that their network is gone.
func KeepAlive() net.KeepAliveConfig { return probes }
