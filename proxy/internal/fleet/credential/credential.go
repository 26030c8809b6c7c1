// Package credential keeps the secrets and members of a gate: its certificate, the token of clients, join tokens,
// the key of each host, the revoked keys, and the addresses of all gates.
//
// All of it is in one directory of mode 0700, in files of mode 0600. Tokens of hosts and gates are stored
// as their SHA-256, so that a reader of the directory cannot join with them.
//
//	certificate.pem   the certificate, which all gates of the same hosts share
//	web.pem           the certificate of this gate for browsers
//	client-token      the token of clients, which they share, too, with the time if it was renewed
//	address, gates    the address of this gate; those of all gates, with their times
//	tokens            a file for each join token, with the end of its validity; the host that creates the file
//	                  with the suffix .used beside it has the token, and a second line there has its name and key
//	gate-tokens       a file for each token of a new gate that was not used, with the end of its validity
//	hosts, revoked    a file for each host, with its key and the time; one for each revoked key
//	former            a file for each name that had keys which were revoked, with these keys
//
// Invariant: a join token admits one host, also if several use it at the same moment, because it is valid
// at the gate that has made it alone. That host may use it again until it expires or the host is removed,
// because it may not have received the reply. A name belongs to one key, and a key has one name, until the
// host is removed. A key that was revoked never joins again.
//
// Not here: connections (package gate), and the keys of a host itself (package member).
package credential

import (
	"bytes"
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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nkeys"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
)

// Limits of a gate.
const (
	MaxTokens = 1000 // tokens of one kind that were not used
	MaxTTL    = 7 * 24 * time.Hour
)

// usedSuffix ends the name of the file that says which host has used a join token.
const usedSuffix = ".used"

// validity is the time for which a certificate is valid. It does not limit the use, because peers compare only
// the fingerprint.
const validity = 100 * 365 * 24 * time.Hour

// A Store is a gate's directory. Several processes may use one directory.
type Store struct {
	dir         string
	certificate tls.Certificate
	clientToken atomic.Pointer[record.ClientToken]

	mu sync.Mutex // changes of the members, one after the other
}

// Open opens the directory of a gate. If the directory, the certificate or the token of clients is
// missing, it makes it.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir}
	for _, d := range []string{dir, s.path(hostTokens), s.path(gateTokens), s.path("hosts"), s.path("revoked"), s.path("former")} {
		if err := makeDir(d); err != nil {
			return nil, err
		}
	}
	if err := s.loadCertificate(); err != nil {
		return nil, fmt.Errorf("certificate of the gate: %w", err)
	}
	if err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// Reload reads the token of clients again, because another process may have renewed it.
func (s *Store) Reload() error {
	content, err := s.read("client-token", func() ([]byte, error) { return []byte(protocol.NewToken(gate.TokenBytes) + "\n"), nil })
	if err != nil {
		return fmt.Errorf("client token of the gate: %w", err)
	}
	token, err := parseClientToken(content)
	if err != nil {
		return fmt.Errorf("client token of the gate: %s: %w; delete the file, and a new token is made", s.path("client-token"), err)
	}
	s.clientToken.Store(&token)
	return nil
}

// The directories of tokens.
const (
	hostTokens = "tokens"
	gateTokens = "gate-tokens"
)

func makeDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("directory of the gate: %w", err)
	}
	if err := socket.CheckDir(path); err != nil {
		return fmt.Errorf("directory of the gate: %w", err)
	}
	return nil
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

// writeNew writes a file that must not exist.
func writeNew(path string, content []byte) error {
	return machine.CreateFile(path, bytes.NewReader(content), 0o600)
}

// replace writes a file.
func replace(path string, content []byte) error {
	return machine.ReplaceFile(path, bytes.NewReader(content), 0o600)
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

// SetAddress stores the address at which clients, hosts and other gates reach this gate. If the gate had
// another address before, that one is removed from the addresses of all gates.
func (s *Store) SetAddress(address string, now time.Time) error {
	if !gate.ValidAddress(address) {
		return fmt.Errorf("%.80q is no address of the form HOST:PORT", address)
	}
	before, err := os.ReadFile(s.path("address"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	members, err := s.Members()
	if err != nil {
		return err
	}
	gates := map[string]record.Place{}
	if old := strings.TrimSpace(string(before)); old != "" && old != address {
		gates[old] = record.Place{At: later(now, members.Gates[old].At), IsRemoved: true}
	}
	if p, ok := members.Gates[address]; !ok || p.IsRemoved {
		gates[address] = record.Place{At: later(now, p.At)}
	}
	if _, err := s.Merge(record.Members{Gates: gates}); err != nil {
		return err
	}
	return replace(s.path("address"), []byte(address+"\n"))
}

// Address returns the address that SetAddress stored.
func (s *Store) Address() (string, error) {
	b, err := os.ReadFile(s.path("address"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("no gate has run here; start it with: proxy gate")
	}
	return strings.TrimSpace(string(b)), err
}

// entry returns a text with the addresses of all gates, of which that of this gate is the first.
func (s *Store) entry(kind, secret string) (gate.Entry, error) {
	own, err := s.Address()
	if err != nil {
		return gate.Entry{}, err
	}
	gates, err := s.gates()
	if err != nil {
		return gate.Entry{}, err
	}
	others := slices.DeleteFunc(record.Members{Gates: gates}.Addresses(), func(a string) bool { return a == own })
	return gate.Entry{Kind: kind, Addresses: append([]string{own}, others[:min(len(others), gate.MaxGates-1)]...), Fingerprint: s.Fingerprint(), Secret: secret}, nil
}

// ClientEntry returns the text that a client needs.
func (s *Store) ClientEntry() (gate.Entry, error) {
	return s.entry(gate.ForClients, s.clientToken.Load().Text)
}

// ClientToken returns the token of clients.
func (s *Store) ClientToken() string { return s.clientToken.Load().Text }

// IsClient reports whether token is the token of clients.
func (s *Store) IsClient(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.ClientToken())) == 1
}

// NewClientToken makes another token of clients. From then on, IsClient refuses the one before. It returns
// the changed members.
func (s *Store) NewClientToken(now time.Time) (record.Members, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := s.Members()
	if err != nil {
		return record.Members{}, err
	}
	token := record.ClientToken{Text: protocol.NewToken(gate.TokenBytes), At: later(now, have.Client.At)}
	return s.merge(have, record.Members{Client: token})
}

// parseClientToken parses the file of the token of clients: TOKEN, or TOKEN TIME if it was renewed.
func parseClientToken(content []byte) (t record.ClientToken, err error) {
	words := strings.Fields(string(content))
	if len(words) == 0 || len(words) > 2 || len(words[0]) != hex.EncodedLen(gate.TokenBytes) {
		return t, fmt.Errorf("it has not %d digits", hex.EncodedLen(gate.TokenBytes))
	}
	t.Text = words[0]
	if len(words) == 2 {
		t.At, err = time.Parse(time.RFC3339Nano, words[1])
	}
	return t, err
}

// NewJoinEntry makes a token that is valid at this gate until ttl has passed, and returns the text with
// which one host joins (gate.ForHosts), or one new gate receives the identity of this one (gate.ForGates).
func (s *Store) NewJoinEntry(kind string, ttl time.Duration, now time.Time) (gate.Entry, error) {
	if ttl <= 0 || ttl > MaxTTL {
		return gate.Entry{}, fmt.Errorf("a join token must be valid for more than 0 and at most %v", MaxTTL)
	}
	secret := protocol.NewToken(gate.TokenBytes)
	e, err := s.entry(kind, secret)
	if err != nil {
		return gate.Entry{}, err
	}
	tokens := hostTokens
	if kind == gate.ForGates {
		tokens = gateTokens
	}
	if err := s.removeExpired(tokens, now); err != nil {
		return gate.Entry{}, err
	}
	if err := writeNew(s.tokenPath(tokens, secret), []byte(now.Add(ttl).UTC().Format(time.RFC3339Nano))); err != nil {
		return gate.Entry{}, fmt.Errorf("join token: %w", err)
	}
	return e, nil
}

func (s *Store) tokenPath(tokens, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return s.path(tokens, hex.EncodeToString(sum[:]))
}

// writeLimit is the age from which a temporary file counts as left behind by a process that has died.
const writeLimit = time.Minute

// removeExpired removes expired tokens, and returns an error if too many others are left. It leaves the temporary files of
// other processes alone, which are empty at first and would count as expired.
func (s *Store) removeExpired(tokens string, now time.Time) error {
	files, err := os.ReadDir(s.path(tokens))
	if err != nil {
		return err
	}
	left := 0
	for _, f := range files {
		path := s.path(tokens, f.Name())
		if strings.HasPrefix(f.Name(), machine.TemporaryPrefix) {
			if info, err := f.Info(); err == nil && time.Since(info.ModTime()) > writeLimit {
				_ = os.Remove(path) // another process may have removed it just now
			}
			continue
		}
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
		return fmt.Errorf("%d tokens were not used yet; wait until some expire", left)
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
// the same name. Join returns the changed members. The errors are *gate.Refused.
func (s *Store) Join(m gate.Join, now time.Time) (record.Members, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := func(code gate.Refusal, format string, args ...any) (record.Members, error) {
		return record.Members{}, &gate.Refused{Code: code, Message: fmt.Sprintf(format, args...)}
	}
	path, user := s.tokenPath(hostTokens, m.Secret), m.Name+" "+m.Key
	content, err := os.ReadFile(path + usedSuffix)
	isAgain := err == nil && tokenUser(content) == user // the reply to the host was lost
	if errors.Is(err, fs.ErrNotExist) {
		content, err = os.ReadFile(path)
	}
	if err != nil || isExpired(content, now) || !isAgain && tokenUser(content) != "" {
		return refused(gate.RefusedUnauthorized, "the join token is wrong, was used before, has expired, or was made by another gate; proxy gate token makes a new one")
	}
	if !gate.ValidHost(m.Name) {
		return refused(gate.RefusedInvalid, "%.80q is no name of a host: it must be 1 to %d of [a-zA-Z0-9._-], and begin with a letter or a digit", m.Name, gate.MaxHost)
	}
	if !nkeys.IsValidPublicUserKey(m.Key) {
		return refused(gate.RefusedInvalid, "the key is not a public key of a host")
	}
	members, err := s.Members()
	if err != nil {
		return refused(gate.RefusedBusy, "the gate cannot read its list of hosts")
	}
	for name, h := range members.Hosts {
		if (name == m.Name) != (h.Key == m.Key) {
			return refused(gate.RefusedNameTaken, "the name %s belongs to another host, or this host has another name; choose another name, or remove the host with: proxy gate revoke %s", m.Name, name)
		}
	}
	if _, isRevoked := members.Revoked[m.Key]; isRevoked {
		return refused(gate.RefusedInvalid, "the key of the host was revoked; proxy leave on the host deletes it, and the host can join with a new one")
	}
	if len(members.Hosts) >= record.MaxHosts {
		return refused(gate.RefusedBusy, "%d hosts have joined, and no more are allowed", len(members.Hosts))
	}
	if !isAgain {
		err := writeNew(path+usedSuffix, []byte(string(content)+"\n"+user)) // before it has an effect
		if errors.Is(err, fs.ErrExist) {                                    // another process was faster
			return refused(gate.RefusedUnauthorized, "the join token was used before; proxy gate token makes a new one")
		}
		if err != nil {
			return refused(gate.RefusedBusy, "the gate cannot store the use of the join token")
		}
		_ = os.Remove(path) // if it fails, the file of the use still shows that the token was used
	}
	changed, err := s.merge(members, record.Members{Hosts: map[string]record.Joined{m.Name: {Key: m.Key, At: now}}})
	if err != nil {
		return refused(gate.RefusedBusy, "the gate cannot store the host")
	}
	return changed, nil
}

// Remove revokes the key of a host, and removes the host. It returns the changed members, which are empty
// if no host of this name had joined.
func (s *Store) Remove(name string, now time.Time) (changed record.Members, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	members, err := s.Members()
	if err != nil {
		return changed, err
	}
	h, hadJoined := members.Hosts[name]
	if !hadJoined {
		return changed, nil
	}
	if changed, err = s.merge(members, record.Members{Revoked: map[string]time.Time{h.Key: now}}); err != nil {
		err = fmt.Errorf("the gate may admit host %s again, because its revocation could not be stored; make room, and repeat it: %w", name, err)
	}
	return changed, err
}
