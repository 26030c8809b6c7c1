package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// lists is a Link with one list of sessions after the other.
type lists struct {
	Link
	left [][]protocol.SessionInfo
}

func (l *lists) Linked() bool { return true }

func (l *lists) List(context.Context, string) ([]protocol.SessionInfo, error) {
	if len(l.left) == 0 {
		return nil, errors.New("no list is left")
	}
	next := l.left[0]
	l.left = l.left[1:]
	return next, nil
}

// indexes is a Store that lets the recorder wait for each index. That of session s0 comes between the second and the third look.
type indexes struct {
	Store
	mu    sync.Mutex
	began map[string]int // how often the recording of a session has begun
}

func (s *indexes) Get(ctx context.Context, key string, _ int64) ([]byte, error) {
	s.mu.Lock()
	s.began[key]++
	s.mu.Unlock()
	if key == (Name{testName.Host, "s0", "s0"}).indexKey() {
		time.Sleep(lookEvery * 3 / 2)
		return fmt.Appendf(nil, `{"format": 1, "recording": "%s/s0@s0", "is_complete": true}`, testName.Host), nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *indexes) List(context.Context, string) iter.Seq2[Object, error] {
	return func(func(Object, error) bool) {}
}

// A session is recorded once, also if there are more sessions than a recorder records.
func TestTooManySessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []protocol.SessionInfo
		for i := range maxSessions {
			id := fmt.Sprint("s", i)
			all = append(all, protocol.SessionInfo{ID: protocol.SessionID(id), Instance: protocol.Instance(id)})
		}
		further := append([]protocol.SessionInfo{{ID: "further", Instance: "further"}}, all...)
		store := &indexes{began: map[string]int{}}
		r := &Recorder{Link: &lists{left: [][]protocol.SessionInfo{all, further, all[1:]}}, Host: testName.Host, Log: zerolog.Nop(), store: store, Config: Config{All: true}}
		ctx, cancel := context.WithTimeout(t.Context(), 3*lookEvery)
		defer cancel()
		r.recordAll(ctx)
		for key, n := range store.began {
			if n > 1 {
				t.Fatalf("the recording of %s has begun %d times", key, n)
			}
		}
	})
}

// unlisted is a Store that lists nothing.
type unlisted struct{ Store }

func (unlisted) List(context.Context, string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) { yield(Object{}, errors.New("the server answers 503")) }
}

// If old recordings cannot be deleted, the numbers do not tell that none can be stored.
func TestRetainFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := &Recorder{Log: zerolog.New(&log), store: unlisted{}}
		ctx, cancel := context.WithTimeout(t.Context(), retainEvery)
		defer cancel()
		r.retain(ctx)
		if now := r.Stats(); !now.IsUp || now.Failures > 0 || !strings.Contains(log.String(), "503") || strings.Contains(log.String(), "stored") {
			t.Errorf("the numbers are %+v, and the log is %s", now, &log)
		}
	})
}

// A clock that may be wrong deletes no recordings: they are too old only when it has not been corrected for a day.
func TestRetainDoubtsClock(t *testing.T) {
	p := newProgram(t, testkit.Seed(), 4000)
	dir := t.TempDir()
	s := OpenDir(dir)
	p.record(s, nil, nil)
	count := func() (n int) {
		for _, err := range s.List(t.Context(), "") {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	stored := count()
	synctest.Test(t, func(t *testing.T) {
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chtimes(path, time.Time{}, time.Now().Add(-40*24*time.Hour)))
		}); err != nil {
			t.Fatal(err)
		}
		r := &Recorder{Log: zerolog.Nop(), store: s, Host: testName.Host, Config: Config{Age: 30 * 24 * time.Hour}, Clock: filepath.Join(t.TempDir(), "clock")}
		retain := func(d time.Duration) int {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			r.retain(ctx)
			return count()
		}
		if n := retain(12 * time.Hour); n != stored {
			t.Errorf("after half a day %d objects of %d are left", n, stored)
		}
		if n := retain(11 * time.Hour); n != stored { // of the next proxy
			t.Errorf("after almost a day %d objects of %d are left", n, stored)
		}
		if n := retain(2 * time.Hour); n != 0 {
			t.Errorf("after more than a day %d objects of %d are left", n, stored)
		}
	})
}

// If the command of durable_key does not end, the recorder reports that it does not record, and starts the command again.
func TestHungKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		r := &Recorder{Log: zerolog.Nop(), Config: Config{ReadKey: func(ctx context.Context) (string, error) {
			starts++
			<-ctx.Done()
			return "", ctx.Err()
		}}}
		ctx, cancel := context.WithTimeout(t.Context(), 3*keyTime)
		defer cancel()
		r.record(ctx)
		if now := r.Stats(); now.IsUp || now.Failures == 0 || starts < 2 {
			t.Errorf("the command was started %d times, and the numbers are %+v", starts, now)
		}
	})
}
