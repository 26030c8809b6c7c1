package credential

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/testkit"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "gate"))
	testkit.Must(t, err)
	testkit.Must(t, s.SetAddress("gate.example:7684", now))
	return s
}

func newKey(t *testing.T) string {
	t.Helper()
	pair, err := nkeys.CreateUser()
	testkit.Must(t, err)
	key, err := pair.PublicKey()
	testkit.Must(t, err)
	return key
}

func token(t *testing.T, s *Store, ttl time.Duration) string {
	t.Helper()
	e, err := s.NewJoinEntry(gate.ForHosts, ttl, now)
	testkit.Must(t, err)
	return e.Secret
}

func code(err error) gate.Refusal {
	var r *gate.Refused
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

func TestJoin(t *testing.T) {
	s := open(t)
	first, second := newKey(t), newKey(t)
	used := token(t, s, time.Minute)
	for _, tt := range []struct {
		name string
		m    gate.Join
		at   time.Duration
		want gate.Refusal
	}{
		{"a wrong token", gate.Join{Secret: strings.Repeat("0", 64), Name: "a", Key: first}, 0, gate.RefusedUnauthorized},
		{"no token", gate.Join{Name: "a", Key: first}, 0, gate.RefusedUnauthorized},
		{"an expired token", gate.Join{Secret: token(t, s, time.Minute), Name: "a", Key: first}, time.Minute, gate.RefusedUnauthorized},
		{"a name that is a path", gate.Join{Secret: used, Name: "../a", Key: first}, 0, gate.RefusedInvalid},
		{"a key of another kind", gate.Join{Secret: used, Name: "a", Key: "A" + first[1:]}, 0, gate.RefusedInvalid},
		{"the first host; earlier refusals have not used the token up", gate.Join{Secret: used, Name: "a", Key: first}, 0, ""},
		{"the same token again", gate.Join{Secret: used, Name: "a", Key: first}, 0, ""},
		{"the same token from another host", gate.Join{Secret: used, Name: "b", Key: second}, 0, gate.RefusedUnauthorized},
		{"the same token under another name", gate.Join{Secret: used, Name: "b", Key: first}, 0, gate.RefusedUnauthorized},
		{"the same token after its expiry", gate.Join{Secret: used, Name: "a", Key: first}, time.Minute, gate.RefusedUnauthorized},
		{"the same host again", gate.Join{Secret: token(t, s, time.Minute), Name: "a", Key: first}, 0, ""},
		{"another key", gate.Join{Secret: token(t, s, time.Minute), Name: "a", Key: second}, 0, gate.RefusedNameTaken},
		{"another name", gate.Join{Secret: token(t, s, time.Minute), Name: "b", Key: first}, 0, gate.RefusedNameTaken},
		{"another host", gate.Join{Secret: token(t, s, time.Minute), Name: "b", Key: second}, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := s.Join(tt.m, now.Add(tt.at)); code(err) != tt.want || (err == nil) != (tt.want == "") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if m, err := s.Members(); err != nil || len(m.Hosts) != 2 || m.Hosts["a"].Key != first {
		t.Errorf("members are %v, %v", m, err)
	}
	if changed, err := s.Remove("a", now); !changed.Revoked[first].Equal(now) || err != nil {
		t.Errorf("remove: %v, %v", changed, err)
	}
	if changed, err := s.Remove("a", now); !changed.IsEmpty() || err != nil {
		t.Errorf("remove again: %v, %v", changed, err)
	}
	if _, err := s.Join(gate.Join{Secret: token(t, s, time.Minute), Name: "a", Key: first}, now); code(err) != gate.RefusedInvalid {
		t.Errorf("a revoked key joins: %v", err)
	}
	if _, err := s.Join(gate.Join{Secret: used, Name: "a", Key: first}, now); code(err) != gate.RefusedInvalid {
		t.Errorf("a removed host joins again with its token: %v", err)
	}
}

// A token that many hosts use at once admits one of them.
func TestTokenOnce(t *testing.T) {
	s := open(t)
	same, err := Open(s.dir) // another process
	testkit.Must(t, err)
	secret, admitted := token(t, s, time.Minute), atomic.Int32{}
	var wg sync.WaitGroup
	for i := range 16 {
		store, m := []*Store{s, same}[i%2], gate.Join{Secret: secret, Name: string(rune('a' + i)), Key: newKey(t)}
		wg.Go(func() {
			if _, err := store.Join(m, now); err == nil {
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	if m, err := s.Members(); admitted.Load() != 1 || len(m.Hosts) != 1 || err != nil {
		t.Errorf("%d hosts are admitted, and %v are stored, %v", admitted.Load(), m.Hosts, err)
	}
}

func TestNewClientToken(t *testing.T) {
	s := open(t)
	before, err := s.ClientEntry()
	testkit.Must(t, err)
	if changed, err := s.NewClientToken(now); err != nil || changed.Client.Text == "" {
		t.Fatalf("changed: %v, %v", changed, err)
	}
	again, err := Open(s.dir)
	testkit.Must(t, err)
	for _, store := range []*Store{s, again} {
		after, err := store.ClientEntry()
		if err != nil || after.Secret == before.Secret || !store.IsClient(after.Secret) || store.IsClient(before.Secret) {
			t.Errorf("after a new token: %v, %v", after.Secret == before.Secret, err)
		}
	}
}

// What is made once stays, is private, and contains no join token.
func TestFiles(t *testing.T) {
	s := open(t)
	secret := token(t, s, time.Minute)
	again, err := Open(s.dir)
	if err != nil || again.Fingerprint() != s.Fingerprint() || !again.IsClient(s.clientToken.Load().Text) || again.IsClient("") || again.IsClient(s.clientToken.Load().Text+"0") {
		t.Errorf("the second store differs: %v", err)
	}
	if e, err := again.ClientEntry(); err != nil || e.Addresses[0] != "gate.example:7684" {
		t.Errorf("entry %+v, %v", e, err)
	} else if _, err := gate.ParseEntry(gate.ForClients, e.String()); err != nil {
		t.Error(err)
	}
	err = filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		fi, statErr := os.Stat(path)
		if err = errors.Join(err, statErr); err != nil {
			return err
		}
		if fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, fi.Mode())
		}
		if b, _ := os.ReadFile(path); strings.Contains(string(b), secret) || strings.Contains(path, secret) {
			t.Errorf("%s contains the join token", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := s.NewJoinEntry(gate.ForHosts, time.Minute, now.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(s.path("tokens")); err != nil || len(files) != 1 {
		t.Errorf("after an hour %d tokens are left, want the new one, %v", len(files), err)
	}
}

// A new token leaves alone the temporary file of another process that writes one, and removes one that was left behind.
func TestTemporaryFiles(t *testing.T) {
	s := open(t)
	written, left := s.path(hostTokens, ".new-1"), s.path(hostTokens, ".new-2")
	for _, path := range []string{written, left} {
		testkit.Must(t, os.WriteFile(path, nil, 0o600))
	}
	old := time.Now().Add(-2 * writeLimit)
	testkit.Must(t, os.Chtimes(left, old, old))
	token(t, s, time.Minute)
	if _, err := os.Stat(written); err != nil {
		t.Errorf("the file that another process writes: %v", err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file that was left behind: %v", err)
	}
}

// A gate that adopts the identity of another one has the same certificate, client token and addresses. A
// token for a host gives no identity.
func TestAdopt(t *testing.T) {
	first := open(t)
	e, err := first.NewJoinEntry(gate.ForGates, time.Minute, now)
	testkit.Must(t, err)
	for _, wrong := range []string{token(t, first, time.Minute), "", strings.Repeat("0", 64)} {
		if _, err := first.Enlist(gate.Enlist{Secret: wrong}, now); code(err) != gate.RefusedUnauthorized {
			t.Errorf("token %.8q: %v", wrong, err)
		}
	}
	if _, err := first.Join(gate.Join{Secret: e.Secret, Name: "a", Key: newKey(t)}, now); code(err) != gate.RefusedUnauthorized {
		t.Errorf("a host joins with a token for a gate: %v", err)
	}
	identity, err := first.Enlist(gate.Enlist{Secret: e.Secret}, now)
	testkit.Must(t, err)
	if _, err := first.Enlist(gate.Enlist{Secret: e.Secret}, now); code(err) != gate.RefusedUnauthorized {
		t.Errorf("the token again: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "gate")
	if has, err := HasIdentity(dir); has || err != nil {
		t.Errorf("an empty directory has an identity: %v, %v", has, err)
	}
	testkit.Must(t, Adopt(dir, identity))
	second, err := Open(dir)
	testkit.Must(t, err)
	if has, err := HasIdentity(dir); !has || err != nil || second.Fingerprint() != first.Fingerprint() || !second.IsClient(first.clientToken.Load().Text) {
		t.Errorf("the second gate differs: %v, %v", has, err)
	}
	text := []byte("text")
	if signature, err := second.Sign(text); err != nil || !first.IsSigned(text, signature) || first.IsSigned([]byte("other"), signature) {
		t.Errorf("a signature of the second gate: %v", err)
	}
	if open(t).IsSigned(text, signatureOf(t, second, text)) {
		t.Error("a gate with another certificate accepts the signature")
	}
	testkit.Must(t, second.SetAddress("second.example:1", now))
	if e, err := second.ClientEntry(); err != nil || strings.Join(e.Addresses, " ") != "second.example:1 gate.example:7684" {
		t.Errorf("the text has %v, %v", e.Addresses, err)
	}
	testkit.Must(t, second.SetAddress("third.example:1", now.Add(time.Second)))
	if gates, err := second.Gates(); err != nil || strings.Join(gates, " ") != "gate.example:7684 third.example:1" {
		t.Errorf("after a change of the address the gates are %v, %v", gates, err)
	}
}

func signatureOf(t *testing.T, s *Store, text []byte) []byte {
	t.Helper()
	signature, err := s.Sign(text)
	testkit.Must(t, err)
	return signature
}

// What one store tells makes another one equal, and stays after it is opened again. A host that was revoked
// does not come back.
func TestMerge(t *testing.T) {
	a, b := open(t), open(t)
	key := newKey(t)
	joined, err := a.Join(gate.Join{Secret: token(t, a, time.Minute), Name: "h", Key: key}, now)
	testkit.Must(t, err)
	if changed, err := b.Merge(joined); err != nil || changed.Hosts["h"].Key != key {
		t.Errorf("changed is %v, %v", changed, err)
	}
	if changed, err := b.Merge(joined); err != nil || !changed.IsEmpty() {
		t.Errorf("the same again changes %v, %v", changed, err)
	}
	if added, err := a.AddGate("b:1", now); err != nil || len(added.Gates) != 1 {
		t.Errorf("add: %v, %v", added, err)
	}
	if removed, err := a.RemoveGate("b:1", now); err != nil || !removed.Gates["b:1"].IsRemoved { // the clock has not moved
		t.Errorf("remove: %v, %v", removed, err)
	}
	if renewed, err := a.NewClientToken(now); err != nil || renewed.Client.Text == "" {
		t.Errorf("renew: %v, %v", renewed, err)
	}
	revoked, err := b.Remove("h", now)
	testkit.Must(t, err)
	if _, err := a.Merge(revoked); err != nil {
		t.Fatal(err)
	}
	if changed, err := b.Merge(joined); err != nil || !changed.IsEmpty() {
		t.Errorf("a gate that has not heard of the revocation changes %v, %v", changed, err)
	}
	again, err := Open(a.dir)
	testkit.Must(t, err)
	m, err := again.Members()
	if err != nil || len(m.Hosts) != 0 || len(m.Revoked) != 1 || !m.Gates["b:1"].IsRemoved {
		t.Errorf("stored is %+v, %v", m, err)
	}
	if _, err := b.Merge(m); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Members(); err != nil || n.Sum() != m.Sum() {
		t.Errorf("the members differ: %+v, %+v, %v", m, n, err)
	}
}

// A host joins again under its name after its key was revoked. Another gate that hears of the join, and has not heard of the
// revocation yet, must accept the new key and refuse the old one.
func TestJoinAfterRevocation(t *testing.T) {
	a, b := open(t), open(t)
	keys := []string{newKey(t), newKey(t), newKey(t)}
	for i, key := range keys {
		joined, err := a.Join(gate.Join{Secret: token(t, a, time.Minute), Name: "h", Key: key}, now.Add(time.Duration(2*i)*time.Second))
		testkit.Must(t, err)
		if i == 1 { // b misses this join, too
			joined = record.Members{}
		}
		if _, err := b.Merge(a.WithFormer(joined)); err != nil {
			t.Fatal(err)
		}
		if i == len(keys)-1 {
			break
		}
		if _, err := a.Remove("h", now.Add(time.Duration(2*i+1)*time.Second)); err != nil { // b does not hear of it
			t.Fatal(err)
		}
		if a, err = Open(a.dir); err != nil { // the gate begins anew
			t.Fatal(err)
		}
	}
	for name, s := range map[string]*Store{"a": a, "b": b} {
		m, err := s.Members()
		if err != nil || len(m.Hosts) != 1 || m.Hosts["h"].Key != keys[2] || len(m.Revoked) != 2 || m.Revoked[keys[0]].IsZero() || m.Revoked[keys[1]].IsZero() {
			t.Errorf("gate %s has %v, %v, want the host with the last key, and the other keys revoked", name, m, err)
		}
	}
}

// If a revoked key is forgotten because there are many others, the store keeps no file of the name that had it.
func TestFormerIsForgotten(t *testing.T) {
	s := open(t)
	for i, name := range []string{"first", "last"} {
		if _, err := s.Join(gate.Join{Secret: token(t, s, time.Minute), Name: name, Key: newKey(t)}, now.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Remove("first", now.Add(2*time.Second)); err != nil {
		t.Fatal(err)
	}
	for i := range record.MaxRevoked - 1 { // the file is written here, because the store syncs each
		key, err := nkeys.Encode(nkeys.PrefixByteUser, fmt.Appendf(nil, "%032d", i))
		if err == nil {
			err = os.WriteFile(s.path("revoked", string(key)), []byte(stored(now.Add(time.Minute))), 0o600)
		}
		testkit.Must(t, err)
	}
	if _, err := s.Remove("last", now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(s.path("former")); err != nil || len(left) != 1 || left[0].Name() != "last" {
		t.Errorf("the names with former keys are %v, %v; want last", left, err)
	}
}
