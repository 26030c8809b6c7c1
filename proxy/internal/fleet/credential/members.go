package credential

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/record"
)

// Members returns the hosts, the revoked keys, and the gates.
func (s *Store) Members() (m record.Members, err error) {
	m = record.Members{Hosts: map[string]record.Joined{}, Revoked: map[string]time.Time{}, Client: *s.clientToken.Load()}
	err = s.each("hosts", gate.ValidHost, func(name string, words []string) error {
		if len(words) != 2 || !nkeys.IsValidPublicUserKey(words[0]) {
			return fmt.Errorf("%s has not a key and a time", s.path("hosts", name))
		}
		at, err := time.Parse(time.RFC3339Nano, words[1])
		m.Hosts[name] = record.Joined{Key: words[0], At: at}
		return err
	})
	if err != nil {
		return m, err
	}
	err = s.each("revoked", nkeys.IsValidPublicUserKey, func(key string, words []string) error {
		at, err := time.Parse(time.RFC3339Nano, strings.Join(words, " "))
		m.Revoked[key] = at
		return err
	})
	if err != nil {
		return m, err
	}
	m.Gates, err = s.gates()
	return m, err
}

// each calls f with the name and the words of each file of a directory whose name is valid. Files that are
// being written have other names.
func (s *Store) each(dir string, isValid func(name string) bool, f func(name string, words []string) error) error {
	files, err := os.ReadDir(s.path(dir))
	if err != nil {
		return err
	}
	for _, file := range files {
		if !isValid(file.Name()) {
			continue
		}
		b, err := os.ReadFile(s.path(dir, file.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = f(file.Name(), strings.Fields(string(b)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gates reads the file of the gates. A line is ADDRESS TIME, or ADDRESS TIME removed.
func (s *Store) gates() (map[string]record.Place, error) {
	b, err := os.ReadFile(s.path("gates"))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]record.Place{}, nil
	}
	gates := map[string]record.Place{}
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) < 2 || !gate.ValidAddress(words[0]) {
			return nil, fmt.Errorf("%s: %.80q is not a line ADDRESS TIME", s.path("gates"), line)
		}
		at, err := time.Parse(time.RFC3339Nano, words[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.path("gates"), err)
		}
		gates[words[0]] = record.Place{At: at, IsRemoved: len(words) > 2}
	}
	return gates, err
}

// Merge adds the members that another gate knows, and returns the changed ones. A host that was removed is
// in Revoked of the result.
func (s *Store) Merge(m record.Members) (changed record.Members, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := s.Members()
	if err != nil {
		return changed, err
	}
	return s.merge(have, m)
}

// merge stores the members of have, which are stored, and of m. It writes revoked keys first, so that a
// host that is removed does not come back if the program dies in between. If the key of a host cannot be written, or cannot be
// noted for its name, for example because the disk is full, the host stays stored, so that its removal can be repeated.
func (s *Store) merge(have, m record.Members) (changed record.Members, err error) {
	merged := have.Merge(m)
	changed = merged.Without(have)
	failed := map[string]bool{} // keys that were not written
	for key, at := range changed.Revoked {
		writeErr := s.addFormer(key, have.Hosts, m.Hosts)
		if writeErr == nil {
			writeErr = replace(s.path("revoked", key), []byte(stored(at)))
		}
		if writeErr != nil {
			failed[key], err = true, errors.Join(err, writeErr)
		}
	}
	for name, h := range have.Hosts {
		if _, ok := merged.Hosts[name]; !ok && !failed[h.Key] {
			err = errors.Join(err, os.Remove(s.path("hosts", name)))
		}
	}
	for name, h := range changed.Hosts {
		err = errors.Join(err, replace(s.path("hosts", name), []byte(h.Key+" "+stored(h.At))))
	}
	isForgotten := false
	for key := range have.Revoked {
		if _, ok := merged.Revoked[key]; !ok {
			err = errors.Join(err, os.Remove(s.path("revoked", key)))
			isForgotten = true
		}
	}
	if isForgotten {
		err = errors.Join(err, s.dropFormer(merged.Revoked))
	}
	if len(changed.Gates) > 0 {
		var b strings.Builder
		for _, address := range slices.Sorted(maps.Keys(merged.Gates)) {
			b.WriteString(address + " " + stored(merged.Gates[address].At))
			if merged.Gates[address].IsRemoved {
				b.WriteString(" removed")
			}
			b.WriteByte('\n')
		}
		err = errors.Join(err, replace(s.path("gates"), []byte(b.String())))
	}
	if changed.Client.Text != "" {
		token := merged.Client
		if writeErr := replace(s.path("client-token"), []byte(token.Text+" "+stored(token.At)+"\n")); writeErr != nil {
			changed.Client = record.ClientToken{}
			return changed, errors.Join(err, fmt.Errorf("client token of the gate: %w", writeErr))
		}
		s.clientToken.Store(&token)
	}
	return changed, err
}

func stored(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// AddGate adds the address of a gate, unless it is there. It returns the changed members.
func (s *Store) AddGate(address string, now time.Time) (changed record.Members, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := s.Members()
	if p, ok := have.Gates[address]; err != nil || ok && !p.IsRemoved {
		return changed, err
	}
	if len(have.Addresses()) >= gate.MaxGates {
		return changed, fmt.Errorf("there are %d gates, and no more are allowed; proxy gate forget removes one that is gone", gate.MaxGates)
	}
	return s.merge(have, record.Members{Gates: map[string]record.Place{address: {At: later(now, have.Gates[address].At)}}})
}

// RemoveGate removes the address of a gate that does not exist any more. It returns the changed members,
// which are empty if there is no such address.
func (s *Store) RemoveGate(address string, now time.Time) (changed record.Members, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := s.Members()
	if p, ok := have.Gates[address]; err != nil || !ok || p.IsRemoved {
		return changed, err
	}
	return s.merge(have, record.Members{Gates: map[string]record.Place{address: {At: later(now, have.Gates[address].At), IsRemoved: true}}})
}

// later returns now, or a time after before if the clock of the gate that has set before is ahead.
func later(now, before time.Time) time.Time {
	if now.After(before) {
		return now
	}
	return before.Add(1)
}

// Gates returns the addresses of all gates, also of this one.
func (s *Store) Gates() ([]string, error) {
	gates, err := s.gates()
	return record.Members{Gates: gates}.Addresses(), err
}

// Enlist returns the identity of this gate, and uses up the token. The errors are *gate.Refused.
func (s *Store) Enlist(m gate.Enlist, now time.Time) (gate.Identity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.tokenPath(gateTokens, m.Secret)
	content, err := os.ReadFile(path)
	if err != nil || isExpired(content, now) || os.Remove(path) != nil { // another process may have been faster
		return gate.Identity{}, &gate.Refused{Code: gate.RefusedUnauthorized, Message: "the token for a gate is wrong, was used before, has expired, or was made by another gate; proxy gate token --for-gate makes a new one"}
	}
	certificate, err := os.ReadFile(s.path("certificate.pem"))
	if err != nil {
		return gate.Identity{}, &gate.Refused{Code: gate.RefusedBusy, Message: "the gate cannot read its certificate"}
	}
	e, err := s.ClientEntry()
	if err != nil {
		return gate.Identity{}, &gate.Refused{Code: gate.RefusedBusy, Message: "the gate cannot read its address"}
	}
	return gate.Identity{Certificate: string(certificate), Token: s.clientToken.Load().Text, Gates: e.Addresses}, nil
}

// Sign signs a text with the key of the certificate, which all gates have.
func (s *Store) Sign(text []byte) ([]byte, error) {
	key, ok := s.certificate.PrivateKey.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("the key of the certificate is not of the kind Ed25519, which several gates need")
	}
	return ed25519.Sign(key, text), nil
}

// IsSigned reports whether Sign has made a signature.
func (s *Store) IsSigned(text, signature []byte) bool {
	key, ok := s.certificate.PrivateKey.(ed25519.PrivateKey)
	return ok && ed25519.Verify(key.Public().(ed25519.PublicKey), text, signature)
}

// ClusterKey returns a key of 32 bytes that only the gates have. It depends on the key of the
// certificate, which it does not reveal.
func (s *Store) ClusterKey() ([]byte, error) {
	key, ok := s.certificate.PrivateKey.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("the key of the certificate is not of the kind Ed25519, which several gates need")
	}
	return hkdf.Key(sha256.New, key.Seed(), nil, "holdfast gates over a cluster", 32)
}

// Adopt makes the identity of another gate that of the directory, which must not have one. The
// certificate is written last, because HasIdentity looks for it.
func Adopt(dir string, m gate.Identity) error {
	if err := makeDir(dir); err != nil {
		return err
	}
	s := &Store{dir: dir}
	var gates strings.Builder
	for _, address := range m.Gates {
		if !gate.ValidAddress(address) {
			return fmt.Errorf("%.80q is no address of a gate", address)
		}
		// The epoch loses against all that a gate has said about an address.
		gates.WriteString(address + " " + stored(time.Unix(0, 0)) + "\n")
	}
	return errors.Join(replace(s.path("gates"), []byte(gates.String())), replace(s.path("client-token"), []byte(m.Token+"\n")),
		replace(s.path("certificate.pem"), []byte(m.Certificate)))
}

// HasIdentity reports whether the directory has a certificate.
func HasIdentity(dir string) (bool, error) {
	s := &Store{dir: dir}
	_, err := os.Stat(s.path("certificate.pem"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// maxFormer is how many revoked keys of a name are remembered with the name.
const maxFormer = 16

// addFormer notes for each name that has a key that is revoked, so that WithFormer finds the key after the host has joined again.
func (s *Store) addFormer(key string, all ...map[string]record.Joined) (err error) {
	for _, hosts := range all {
		for name, h := range hosts {
			if h.Key != key {
				continue
			}
			keys := s.former(name)
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
				err = errors.Join(err, replace(s.path("former", name), []byte(strings.Join(keys[max(0, len(keys)-maxFormer):], "\n")+"\n")))
			}
		}
	}
	return err
}

// dropFormer removes the file of each name if none of its keys is remembered as revoked, because names would otherwise take
// more and more files.
func (s *Store) dropFormer(revoked map[string]time.Time) error {
	return s.each("former", gate.ValidHost, func(name string, keys []string) error {
		if slices.ContainsFunc(keys, func(key string) bool { _, ok := revoked[key]; return ok }) {
			return nil
		}
		return os.Remove(s.path("former", name))
	})
}

// former returns the keys that a name had, and that were revoked.
func (s *Store) former(name string) []string {
	b, _ := os.ReadFile(s.path("former", name)) // if it cannot be read, the other gates hear of the keys by their sums alone
	return slices.DeleteFunc(strings.Fields(string(b)), func(key string) bool { return !nkeys.IsValidPublicUserKey(key) })
}

// WithFormer returns m with the revoked keys of the names of its hosts. A gate that has not heard of the revocation would
// otherwise take a host that has joined again for another one, which wants the name of the first, and would revoke its new key.
func (s *Store) WithFormer(m record.Members) record.Members {
	revoked := maps.Clone(m.Revoked)
	for name := range m.Hosts {
		for _, key := range s.former(name) {
			b, err := os.ReadFile(s.path("revoked", key)) // the key may be forgotten, because there were many others
			at, parseErr := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(b)))
			if err != nil || parseErr != nil {
				continue
			}
			if revoked == nil {
				revoked = map[string]time.Time{}
			}
			revoked[key] = at
		}
	}
	m.Revoked = revoked
	return m
}
