// Package credential keeps what a gate must remember: its certificate, the token of clients, join tokens,
// and the key of each host.
//
// All of it is in one directory of mode 0700, in files of mode 0600. Tokens of hosts are stored as their
// SHA-256, so that a reader of the directory cannot join with them.
//
// Invariant: a join token admits one host, also if several use it at the same moment. That host may use it
// again until it expires or the host is removed, because it may not have received the reply. A name belongs
// to one key, and a key has one name, until the host is removed.
//
// A file of a join token has the time of its expiry and, once it was used, a line with the name and the key
// of the host.
//
// Not here: connections (package gate), and the keys of a host itself (package member).
package credential

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nkeys"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/shared/socket"
)

// Limits of a gate.
const (
	MaxHosts  = 10_000
	MaxTokens = 1000 // join tokens that were not used
	MaxTTL    = 7 * 24 * time.Hour
)

// validity is how long a certificate names itself valid. Its peers compare the fingerprint and nothing else.
const validity = 100 * 365 * 24 * time.Hour

// A Store is a gate's directory. Several processes may use one directory.
type Store struct {
	dir         string
	certificate tls.Certificate
	clientToken atomic.Pointer[string]

	mu sync.Mutex // joins, one after the other
}

// Open opens the directory of a gate. It makes what is missing: the directory, the certificate and the
// token of clients.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir}
	for _, d := range []string{dir, s.path("tokens"), s.path("hosts")} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("directory of the gate: %w", err)
		}
		if err := socket.CheckDir(d); err != nil {
			return nil, fmt.Errorf("directory of the gate: %w", err)
		}
	}
	if err := s.loadCertificate(); err != nil {
		return nil, fmt.Errorf("certificate of the gate: %w", err)
	}
	token, err := s.read("client-token", func() ([]byte, error) { return []byte(protocol.NewToken(gate.TokenBytes) + "\n"), nil })
	if err != nil {
		return nil, fmt.Errorf("client token of the gate: %w", err)
	}
	text := strings.TrimSpace(string(token))
	s.clientToken.Store(&text)
	if len(text) != hex.EncodedLen(gate.TokenBytes) {
		return nil, fmt.Errorf("client token of the gate: %s has not %d digits; delete the file, and a new token is made", s.path("client-token"), hex.EncodedLen(gate.TokenBytes))
	}
	return s, nil
}

func (s *Store) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

// read returns the content of a file. If there is none, read writes the content that make returns.
func (s *Store) read(name string, make func() ([]byte, error)) ([]byte, error) {
	b, err := os.ReadFile(s.path(name))
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	if b, err = make(); err != nil {
		return nil, err
	}
	err = writeNew(s.path(name), b)
	if errors.Is(err, fs.ErrExist) { // another process was faster
		return os.ReadFile(s.path(name))
	}
	return b, err
}

// writeNew writes a file that must not exist. The file appears with its whole content.
func writeNew(path string, content []byte) error { return write(path, content, os.Link) }

// write writes a temporary file with the content, which place moves to path.
func write(path string, content []byte, place func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // a rename has removed it
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return place(f.Name(), path)
}

func (s *Store) loadCertificate() error {
	b, err := s.read("certificate.pem", newCertificate)
	if err != nil {
		return err
	}
	s.certificate, err = tls.X509KeyPair(b, b)
	return err
}

// newCertificate returns a new key and a certificate that it has signed itself, in one file.
func newCertificate() ([]byte, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "holdfast gate"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return append(b, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), nil
}

// Certificate returns the certificate with its key.
func (s *Store) Certificate() tls.Certificate { return s.certificate }

// Fingerprint returns the fingerprint of the certificate.
func (s *Store) Fingerprint() string { return gate.Fingerprint(s.certificate.Certificate[0]) }

// SetAddress stores the address at which clients and hosts reach the gate.
func (s *Store) SetAddress(address string) error {
	tmp := s.path(".address")
	return errors.Join(os.WriteFile(tmp, []byte(address+"\n"), 0o600), os.Rename(tmp, s.path("address")))
}

// Address returns the address that SetAddress stored.
func (s *Store) Address() (string, error) {
	b, err := os.ReadFile(s.path("address"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("no gate has run here; start it with: proxy gate")
	}
	return strings.TrimSpace(string(b)), err
}

// ClientEntry returns the text that a client needs.
func (s *Store) ClientEntry() (gate.Entry, error) {
	address, err := s.Address()
	return gate.Entry{Kind: gate.ForClients, Address: address, Fingerprint: s.Fingerprint(), Secret: *s.clientToken.Load()}, err
}

// IsClient reports whether token is the token of clients.
func (s *Store) IsClient(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(*s.clientToken.Load())) == 1
}

// NewClientToken makes another token of clients. From then on, IsClient refuses the one before.
func (s *Store) NewClientToken() error {
	token := protocol.NewToken(gate.TokenBytes)
	if err := write(s.path("client-token"), []byte(token+"\n"), os.Rename); err != nil {
		return fmt.Errorf("client token of the gate: %w", err)
	}
	s.clientToken.Store(&token)
	return nil
}

// NewJoinEntry makes a join token that is valid until ttl has passed, and returns the text that a host
// needs.
func (s *Store) NewJoinEntry(ttl time.Duration, now time.Time) (gate.Entry, error) {
	if ttl <= 0 || ttl > MaxTTL {
		return gate.Entry{}, fmt.Errorf("a join token must be valid for more than 0 and at most %v", MaxTTL)
	}
	address, err := s.Address()
	if err != nil {
		return gate.Entry{}, err
	}
	if err := s.removeExpired(now); err != nil {
		return gate.Entry{}, err
	}
	secret := protocol.NewToken(gate.TokenBytes)
	if err := writeNew(s.tokenPath(secret), []byte(now.Add(ttl).UTC().Format(time.RFC3339Nano))); err != nil {
		return gate.Entry{}, fmt.Errorf("join token: %w", err)
	}
	return gate.Entry{Kind: gate.ForHosts, Address: address, Fingerprint: s.Fingerprint(), Secret: secret}, nil
}

func (s *Store) tokenPath(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return s.path("tokens", hex.EncodeToString(sum[:]))
}

// removeExpired removes expired tokens, and returns an error if too many others are left.
func (s *Store) removeExpired(now time.Time) error {
	files, err := os.ReadDir(s.path("tokens"))
	if err != nil {
		return err
	}
	left := 0
	for _, f := range files {
		path := s.path("tokens", f.Name())
		b, err := os.ReadFile(path)
		if err == nil && isExpired(b, now) {
			_ = os.Remove(path) // a host may have used it just now
			continue
		}
		if tokenUser(b) == "" {
			left++
		}
	}
	if left >= MaxTokens {
		return fmt.Errorf("%d join tokens were not used yet; wait until some expire", left)
	}
	return nil
}

// isExpired reports whether a token is expired. A file that has no time is expired.
func isExpired(content []byte, now time.Time) bool {
	line, _, _ := strings.Cut(string(content), "\n")
	until, err := time.Parse(time.RFC3339Nano, line)
	return err != nil || !now.Before(until)
}

// tokenUser returns the name and the key of the host that has used a token, or "".
func tokenUser(content []byte) string {
	_, user, _ := strings.Cut(string(content), "\n")
	return user
}

// Join admits a host, and reserves the join token for it. A host that has joined before may join again under
// the same name. The errors are *gate.Refused.
func (s *Store) Join(m gate.Join, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, user := s.tokenPath(m.Secret), m.Name+" "+m.Key
	content, err := os.ReadFile(path)
	isAgain := err == nil && tokenUser(content) == user // the reply to the host was lost
	if err != nil || isExpired(content, now) || !isAgain && tokenUser(content) != "" {
		return &gate.Refused{Code: gate.RefusedUnauthorized, Message: "the join token is wrong, was used before, or has expired; proxy gate token makes a new one"}
	}
	if !gate.ValidHost(m.Name) {
		return &gate.Refused{Code: gate.RefusedInvalid, Message: fmt.Sprintf("%.80q is no name of a host: it must be 1 to %d of [a-zA-Z0-9._-]", m.Name, gate.MaxHost)}
	}
	if !nkeys.IsValidPublicUserKey(m.Key) {
		return &gate.Refused{Code: gate.RefusedInvalid, Message: "the key is not a public key of a host"}
	}
	hosts, err := s.Hosts()
	if err != nil {
		return &gate.Refused{Code: gate.RefusedBusy, Message: "the gate cannot read its list of hosts"}
	}
	for name, key := range hosts {
		if (name == m.Name) != (key == m.Key) {
			return &gate.Refused{Code: gate.RefusedNameTaken, Message: fmt.Sprintf("the name %s belongs to another host, or this host has another name; choose another name, or remove the host with: proxy gate revoke %s", m.Name, name)}
		}
	}
	if len(hosts) >= MaxHosts {
		return &gate.Refused{Code: gate.RefusedBusy, Message: fmt.Sprintf("%d hosts have joined, and no more are allowed", len(hosts))}
	}
	if !isAgain {
		if err := os.Remove(path); err != nil { // removed before it has an effect; another process may have been faster
			return &gate.Refused{Code: gate.RefusedUnauthorized, Message: "the join token was used before; proxy gate token makes a new one"}
		}
		if err := writeNew(path, []byte(string(content)+"\n"+user)); err != nil {
			return &gate.Refused{Code: gate.RefusedBusy, Message: "the gate cannot store the use of the join token; proxy gate token makes a new one"}
		}
	}
	if err := writeNew(s.path("hosts", m.Name), []byte(m.Key)); err != nil && !errors.Is(err, fs.ErrExist) {
		return &gate.Refused{Code: gate.RefusedBusy, Message: "the gate cannot store the host"}
	}
	return nil
}

// Hosts returns the keys of all hosts by their names.
func (s *Store) Hosts() (map[string]string, error) {
	files, err := os.ReadDir(s.path("hosts"))
	if err != nil {
		return nil, err
	}
	hosts := make(map[string]string, len(files))
	for _, f := range files {
		if !gate.ValidHost(f.Name()) { // a file that is being written
			continue
		}
		key, err := os.ReadFile(s.path("hosts", f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		hosts[f.Name()] = string(key)
	}
	return hosts, nil
}

// Remove removes a host, and the join token that it has used, so that it cannot join again with it. It
// reports whether the host had joined.
func (s *Store) Remove(name string) (bool, error) {
	if !gate.ValidHost(name) {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	tokens, err := os.ReadDir(s.path("tokens"))
	if err != nil {
		return false, err
	}
	for _, f := range tokens {
		b, err := os.ReadFile(s.path("tokens", f.Name()))
		if err == nil && strings.HasPrefix(tokenUser(b), name+" ") {
			err = os.Remove(s.path("tokens", f.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	err = os.Remove(s.path("hosts", name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
