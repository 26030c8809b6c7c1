package credential

import (
	"errors"
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
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "gate"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetAddress("gate.example:7684"); err != nil {
		t.Fatal(err)
	}
	return s
}

func newKey(t *testing.T) string {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func token(t *testing.T, s *Store, ttl time.Duration) string {
	t.Helper()
	e, err := s.NewJoinEntry(ttl, now)
	if err != nil {
		t.Fatal(err)
	}
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
			if err := s.Join(tt.m, now.Add(tt.at)); code(err) != tt.want || (err == nil) != (tt.want == "") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if hosts, err := s.Hosts(); err != nil || len(hosts) != 2 || hosts["a"] != first {
		t.Errorf("hosts are %v, %v", hosts, err)
	}
	if had, err := s.Remove("a"); !had || err != nil {
		t.Errorf("remove: %v, %v", had, err)
	}
	if had, err := s.Remove("a"); had || err != nil {
		t.Errorf("remove again: %v, %v", had, err)
	}
	if err := s.Join(gate.Join{Secret: used, Name: "a", Key: first}, now); code(err) != gate.RefusedUnauthorized {
		t.Errorf("a removed host joins again with its token: %v", err)
	}
}

// A token that many hosts use at once admits one of them.
func TestTokenOnce(t *testing.T) {
	s := open(t)
	same, err := Open(s.dir) // another process
	if err != nil {
		t.Fatal(err)
	}
	secret, admitted := token(t, s, time.Minute), atomic.Int32{}
	var wg sync.WaitGroup
	for i := range 16 {
		store, m := []*Store{s, same}[i%2], gate.Join{Secret: secret, Name: string(rune('a' + i)), Key: newKey(t)}
		wg.Go(func() {
			if store.Join(m, now) == nil {
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	if hosts, err := s.Hosts(); admitted.Load() != 1 || len(hosts) != 1 || err != nil {
		t.Errorf("%d hosts are admitted, and %v are stored, %v", admitted.Load(), hosts, err)
	}
}

func TestNewClientToken(t *testing.T) {
	s := open(t)
	before, err := s.ClientEntry()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.NewClientToken(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil || again.Fingerprint() != s.Fingerprint() || !again.IsClient(*s.clientToken.Load()) || again.IsClient("") || again.IsClient(*s.clientToken.Load()+"0") {
		t.Errorf("the second store differs: %v", err)
	}
	if e, err := again.ClientEntry(); err != nil || e.Address != "gate.example:7684" {
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
	if _, err := s.NewJoinEntry(time.Minute, now.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(s.path("tokens")); err != nil || len(files) != 1 {
		t.Errorf("after an hour %d tokens are left, want the new one, %v", len(files), err)
	}
}
