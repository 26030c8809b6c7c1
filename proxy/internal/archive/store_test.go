package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/shared/machine"
	"holdfast/shared/testkit"
)

// testStore checks what all stores have in common. The store must be empty.
func testStore(t *testing.T, s Store) {
	ctx := t.Context()
	list := func(prefix string) (keys []string) {
		t.Helper()
		for o, err := range s.List(ctx, prefix) {
			testkit.Must(t, err)
			keys = append(keys, fmt.Sprint(o.Key, " ", o.Bytes))
			if time.Since(o.Modified).Abs() > time.Hour {
				t.Errorf("%s was modified at %v", o.Key, o.Modified)
			}
		}
		return keys
	}
	if keys := list(""); len(keys) > 0 {
		t.Fatalf("the store has %v", keys)
	}
	if _, err := s.Get(ctx, "host/a@b/x", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get of a missing object: %v", err)
	}
	testkit.Must(t, s.Put(ctx, "host/a@b/x", []byte("first")))
	if err := s.Put(ctx, "host/a@b/x", []byte("second")); !errors.Is(err, ErrExists) {
		t.Errorf("second Put: %v", err)
	}
	if data, err := s.Get(ctx, "host/a@b/x", 5); string(data) != "first" || err != nil {
		t.Errorf("Get: %q, %v", data, err)
	}
	if _, err := s.Get(ctx, "host/a@b/x", 4); !errors.Is(err, ErrTorn) {
		t.Errorf("Get of an object that is too long: %v", err)
	}
	testkit.Must(t, errors.Join(s.Replace(ctx, "host/a@b/x", []byte("third")), s.Replace(ctx, "host/a@b/w", nil), s.Replace(ctx, "other/a@b/x", []byte("1"))))
	if data, err := s.Get(ctx, "host/a@b/x", 5); string(data) != "third" || err != nil {
		t.Errorf("Get: %q, %v", data, err)
	}
	if keys := list("host/"); fmt.Sprint(keys) != "[host/a@b/w 0 host/a@b/x 5]" {
		t.Errorf("List: %v", keys)
	}
	if keys := list("host/a@b/"); len(keys) != 2 {
		t.Errorf("List: %v", keys)
	}
	if keys := list("absent/"); len(keys) != 0 {
		t.Errorf("List: %v", keys)
	}
	var wins atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			err := s.Put(ctx, "host/race", bytes.Repeat([]byte{byte(i)}, 1000))
			if err == nil {
				wins.Add(1)
			} else if !errors.Is(err, ErrExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if data, err := s.Get(ctx, "host/race", 1000); wins.Load() != 1 || err != nil || !bytes.Equal(data, bytes.Repeat(data[:1], 1000)) {
		t.Errorf("%d of 8 conditional puts have succeeded; the object has %d bytes, %v", wins.Load(), len(data), err)
	}
	for _, key := range []string{"host/a@b/x", "host/a@b/w", "host/a@b/absent", "host/race", "other/a@b/x"} {
		if err := s.Delete(ctx, key); err != nil {
			t.Error(err)
		}
	}
	if keys := list(""); len(keys) > 0 {
		t.Errorf("after the deletions the store has %v", keys)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Put(ended, "host/late", nil); err == nil {
		t.Error("Put with a context that has ended has succeeded")
	}
}

func TestDir(t *testing.T) {
	t.Parallel()
	testStore(t, OpenDir(filepath.Join(t.TempDir(), "new", "store")))
}

// A directory may have files that no recorder has made.
func TestOddFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := OpenDir(dir)
	for _, key := range []string{"", ".", "..", "../x", "/x", "a/../x", "a//x", "a/.hidden", `a/` + machine.TemporaryPrefix + "x"} {
		if err := s.Put(t.Context(), key, nil); err == nil {
			t.Errorf("Put of %q has succeeded", key)
		}
		if _, err := s.Get(t.Context(), key, 1); err == nil {
			t.Errorf("Get of %q has succeeded", key)
		}
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "zero")); err != nil {
		t.Skip(err)
	}
	if _, err := s.Get(t.Context(), "zero", 1); !errors.Is(err, ErrTorn) {
		t.Errorf("Get of a link: %v", err)
	}
	draft := filepath.Join(dir, "host", "a@b", machine.TemporaryPrefix+"x")
	testkit.Must(t, errors.Join(os.MkdirAll(filepath.Dir(draft), 0o700), os.WriteFile(draft, nil, 0o600)))
	testkit.Must(t, s.sweepDrafts("host", time.Now().Add(-draftAge)))
	if _, err := os.Stat(draft); err != nil {
		t.Errorf("a new draft was removed: %v", err)
	}
	testkit.Must(t, s.sweepDrafts("host", time.Now().Add(draftAge)))
	if _, err := os.Stat(draft); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an old draft is still there: %v", err)
	}
}
