package past

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// ownIdentity is the key of the tests; it also opens the golden files.
const ownIdentity = "AGE-SECRET-KEY-1NSY2NWK7ZDLT5XZCZ3P6S9NPKA4LSP63V63P7TMY9G7YQN4JXFGSX7Z3TE"

var ownKey = keyOf(ownIdentity)

// keyOf returns the key of an age identity.
func keyOf(identity string) *Key {
	return NewKey(func(context.Context) (string, error) { return identity, nil })
}

// otherKey returns a key that opens no file.
func otherKey(t *testing.T) *Key {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	testkit.Must(t, err)
	return keyOf(i.String())
}

// secretMeta has a text in each field that is sealed.
var secretMeta = Meta{
	Mode: Full, Supervisor: "sup", Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Argv: []string{"plainargv"}, Cwd: "/plaincwd",
	EnvNames: []string{"PLAINENV"}, Labels: map[string]string{"plainlabel": "plainvalue"}, Title: "plaintitle",
	Commands: []protocol.CommandInfo{{Line: "plaincommand"}}, Exit: &protocol.ExitRecord{EndedBy: "plainexit"}, Spec: []byte(`{"a":"plainspec"}`),
}

// writeSealed writes a life with text that a search finds if it is not sealed, and with a closed
// segment that was packed, one that was not, and an open one.
func writeSealed(t *testing.T, s *Store) {
	t.Helper()
	w := open(t, s, Full)
	testkit.Must(t, w.SetMeta(secretMeta))
	for segment := range uint64(3) {
		testkit.Must(t, w.Keyframe(w.End(), []byte(fmt.Sprintf("plainframe %d %s", segment, strings.Repeat("x", 100)))), w.Mark(w.End(), 'D', "plainmark"))
		for range 3 + 10*(segment%2) {
			testkit.Must(t, w.Append(w.End(), []byte("plainoutput\r\n")), w.Sync())
		}
	}
	testkit.Must(t, w.Close())
}

// contents returns the content of all files of a life.
func contents(t *testing.T, s *Store) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, name := range names(t, s.path(aLife)) {
		content, err := os.ReadFile(filepath.Join(s.path(aLife), name))
		testkit.Must(t, err)
		all[name] = string(content)
	}
	return all
}

// outputOf returns all output of a life.
func outputOf(t *testing.T, r *Reader) string {
	t.Helper()
	var all []byte
	for p, err := range r.Range(0, maxOffset) {
		testkit.Must(t, err)
		all = append(all, p.Output...)
	}
	return string(all)
}

// No file of a sealed life has output, a title, a command line or a label in the clear.
func TestSealedHidesText(t *testing.T) {
	s, _ := newStore(t)
	writeSealed(t, s)
	found := 0
	for _, content := range contents(t, s) {
		found += strings.Count(strings.ToLower(content), "plain")
	}
	if found == 0 {
		t.Fatal("the search finds nothing in files that are not sealed")
	}
	s, _ = newStore(t)
	s.key = ownKey
	writeSealed(t, s)
	for name, content := range contents(t, s) {
		if strings.Contains(strings.ToLower(content), "plain") {
			t.Errorf("%s is not sealed: %q", name, content)
		}
	}
	m, err := reader(t, s).Meta()
	if testkit.Must(t, err); m.Title != secretMeta.Title || m.Labels["plainlabel"] != "plainvalue" {
		t.Errorf("meta %+v", m)
	}
	if got, want := outputOf(t, reader(t, s)), strings.Repeat("plainoutput\r\n", 19); got != want {
		t.Errorf("output %q", got)
	}
}

// A life whose key is not available is listed, is not read, and is not changed.
func TestLocked(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *Store){
		"another key": func(t *testing.T, s *Store) { s.key = otherKey(t) },
		"no key":      func(_ *testing.T, s *Store) { s.key = nil },
		"no identity": func(_ *testing.T, s *Store) { s.key = keyOf("hello") },
		"key file is missing": func(t *testing.T, s *Store) {
			testkit.Must(t, os.Remove(filepath.Join(s.path(aLife), keyName)))
		},
		"key file of another life": func(t *testing.T, s *Store) {
			file, err := ownKey.wrap(newDataKey(), "other@1")
			testkit.Must(t, err, os.WriteFile(filepath.Join(s.path(aLife), keyName), file, 0o600))
		},
		"key file is torn": func(t *testing.T, s *Store) {
			testkit.Must(t, os.Truncate(filepath.Join(s.path(aLife), keyName), 100))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newStore(t)
			s.key = ownKey
			writeSealed(t, s)
			lose(t, s)
			before := contents(t, s)
			all, err := s.List()
			testkit.Must(t, err)
			if len(all) != 1 || !errors.Is(all[0].Locked, ErrLocked) || all[0].Err != nil {
				t.Fatalf("list: %+v", all)
			}
			if m := all[0].Meta; m.Mode != Full || m.Supervisor != "sup" || m.Created.IsZero() || m.Argv != nil || m.Exit != nil {
				t.Errorf("readable fields: %+v", m)
			}
			r, err := s.Open(aLife)
			if err == nil { // without a key file, a reader finds out when it reads a block
				_, err = r.At(1)
			}
			if !errors.Is(err, ErrLocked) {
				t.Errorf("open: %v", err)
			}
			if _, err := s.OpenWriter(aLife, Full); !errors.Is(err, ErrLocked) {
				t.Errorf("writer: %v", err)
			}
			if !maps.Equal(before, contents(t, s)) {
				t.Error("files have changed")
			}
		})
	}
}

// If the key for new lives is not available, no file is written.
func TestNoKeyForNewLife(t *testing.T) {
	s, _ := newStore(t)
	s.key = NewKey(func(context.Context) (string, error) { return "", errors.New("keychain is closed") })
	if _, err := s.OpenWriter(aLife, Full); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "keychain is closed") {
		t.Errorf("writer: %v", err)
	}
	if all := names(t, s.dir); len(all) > 0 {
		t.Errorf("files: %q", all)
	}
}

// Sealed bytes that were changed, or moved to another place, are damage, also if the checksums are
// right.
func TestTampered(t *testing.T) {
	s, _ := newStore(t)
	s.key = ownKey
	writeSealed(t, s)
	dir := s.path(aLife)
	var closed []segment
	all, err := listSegments(dir)
	testkit.Must(t, err)
	for _, g := range all {
		if g.isClosed {
			closed = append(closed, g)
		}
	}
	if len(closed) != 2 {
		t.Fatalf("closed segments: %+v", closed)
	}
	path := filepath.Join(dir, closed[0].name)
	whole, err := os.ReadFile(path)
	testkit.Must(t, err)
	isDamaged := func(content []byte) bool {
		testkit.Must(t, os.WriteFile(path, seal(content), 0o600))
		r := reader(t, s)
		_, err := r.At(closed[0].end - 1)
		if err != nil {
			return errors.Is(err, ErrDamaged)
		}
		for p, err := range r.Range(0, closed[0].end) {
			testkit.Must(t, err)
			if p.Damage != nil {
				return errors.Is(p.Damage, ErrDamaged)
			}
		}
		for n, err := range r.Notes(0, closed[0].end) {
			testkit.Must(t, err)
			if n.Damage != nil {
				return errors.Is(n.Damage, ErrDamaged)
			}
		}
		return false
	}
	if isDamaged(bytes.Clone(whole)) {
		t.Fatal("damaged without a change")
	}
	for i := range whole {
		changed := bytes.Clone(whole)
		changed[i] ^= 1
		if bytes.Equal(seal(bytes.Clone(changed)), whole) || i == 6 || i == 7 { // a checksum, or another version
			continue
		}
		if !isDamaged(changed) {
			t.Errorf("byte %d was changed", i)
		}
	}
	// The keyframe of another segment, and of the same segment of another life, which has another key.
	other, err := os.ReadFile(filepath.Join(dir, closed[1].name))
	testkit.Must(t, err)
	binary.LittleEndian.PutUint64(other[headBytes+12:], 0)
	if !isDamaged(append(bytes.Clone(whole[:headBytes]), other[headBytes:]...)) {
		t.Error("blocks of another segment were accepted")
	}
	s2, _ := newStore(t)
	s2.key = ownKey
	writeSealed(t, s2)
	other, err = os.ReadFile(filepath.Join(s2.path(aLife), closed[0].name))
	testkit.Must(t, err)
	if !isDamaged(other) {
		t.Error("blocks of another life were accepted")
	}
	testkit.Must(t, os.WriteFile(path, whole, 0o600))
	path = filepath.Join(dir, metaName)
	meta, err := os.ReadFile(path)
	testkit.Must(t, err)
	at := bytes.Index(meta, []byte(`"sealed": "`)) + 40
	meta[at] ^= 1 // another digit of base64, or no digit
	testkit.Must(t, os.WriteFile(path, meta, 0o600))
	if _, err := reader(t, s).Meta(); !errors.Is(err, ErrDamaged) {
		t.Errorf("meta: %v", err)
	}
}

// A life that was begun without a key is continued sealed. Its open segment and meta.json are sealed at once.
func TestSealedLater(t *testing.T) {
	for _, mode := range []Mode{Full, Screen} {
		s, _ := newStore(t)
		w := open(t, s, mode)
		testkit.Must(t, w.SetMeta(secretMeta), w.Keyframe(0, []byte("plainframe")), w.Mark(0, 'D', "plainmark"), w.Append(0, []byte("plainoutput")), w.Close())
		s.key = ownKey
		w = open(t, s, mode)
		testkit.Must(t, w.SetMeta(secretMeta), w.Append(w.End(), []byte("plainoutput")), w.Close())
		for name, content := range contents(t, s) {
			if strings.Contains(content, "plain") {
				t.Errorf("%s: %s is not sealed: %q", mode, name, content)
			}
		}
		if got := outputOf(t, reader(t, s)); got != "plainoutputplainoutput" {
			t.Errorf("%s: output %q", mode, got)
		}
		v, err := reader(t, s).At(5)
		if testkit.Must(t, err); string(v.Keyframe) != "plainframe" {
			t.Errorf("%s: keyframe %q", mode, v.Keyframe)
		}
	}
}

// A key that is slow holds a caller up for at most two seconds, and is read again after a failure.
func TestKeyIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		k := NewKey(func(ctx context.Context) (string, error) {
			if tries.Add(1) == 1 {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "# a comment\n" + ownIdentity + "\n", nil
		})
		began := time.Now()
		for range 3 {
			if _, _, err := k.get(); !errors.Is(err, ErrLocked) {
				t.Errorf("while the key is read: %v", err)
			}
		}
		if took := time.Since(began); took != keyWait {
			t.Errorf("the callers waited for %v", took)
		}
		k.Await()
		if took := time.Since(began); took != keyTime {
			t.Errorf("the attempt ended after %v", took)
		}
		if _, _, err := k.get(); err != nil || tries.Load() != 2 {
			t.Errorf("the next attempt: %v, %d tries", err, tries.Load())
		}
	})
}

// If a user removes the directory of a sealed life that is being written, it is made again with the
// same key.
func TestSealedDirRemoved(t *testing.T) {
	s, _ := newStore(t)
	s.key = ownKey
	w := open(t, s, Screen)
	testkit.Must(t, w.SetMeta(secretMeta), os.RemoveAll(s.path(aLife)), w.Keyframe(10, []byte("frame")), w.Sync(), w.Close())
	r := reader(t, s)
	v, err := r.At(10)
	if testkit.Must(t, err); string(v.Keyframe) != "frame" {
		t.Errorf("keyframe %q", v.Keyframe)
	}
	if m, err := r.Meta(); err != nil || m.Title != secretMeta.Title {
		t.Errorf("meta %+v, %v", m, err)
	}
}
