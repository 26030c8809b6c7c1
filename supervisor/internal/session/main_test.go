//go:build linux || darwin

package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/session/event"
)

// patience is the time after which a test fails if an expected event does not come. forever is a grace that is longer
// than any test.
const (
	patience = 30 * time.Second
	forever  = time.Hour
)

// TestMain compresses and decompresses a screen before any test. The compressor belongs to the whole process, so it
// must not be made within the synctest bubble of one test.
func TestMain(m *testing.M) {
	s := screen.New(protocol.Size{Cols: 80, Rows: 24}, 1000)
	s.Write([]byte(numbers(1000)))
	s.Pack()
	s.Text(1000)
	os.Exit(m.Run())
}

// newTable returns a table of real terminals, which is shut down after the
// test.
func newTable(t testing.TB, cfg Config) *Table {
	t.Helper()
	if cfg.Env == nil {
		cfg.Env = []string{"PATH=" + os.Getenv("PATH")}
	}
	tb := NewTable(cfg)
	t.Cleanup(func() { shutdown(t, tb) })
	return tb
}

func shutdown(t testing.TB, tb *Table) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := tb.Shutdown(ctx, protocol.Asker{}); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

func bash(code string) protocol.SpawnSpec {
	return protocol.SpawnSpec{Argv: []string{"bash", "-c", code}}
}

func create(t testing.TB, tb *Table, spec protocol.SpawnSpec) *Session {
	t.Helper()
	s, err := tb.create("", spec, "")
	testkit.Must(t, err)
	return s
}

// run starts a script in a table of its own.
func run(t testing.TB, code string) *Session {
	t.Helper()
	return create(t, newTable(t, Config{}), bash(code))
}

// ready runs a script and waits until it has printed READY.
func ready(t testing.TB, code string) (*Session, *viewer) {
	t.Helper()
	s := run(t, code)
	v := look(t, s, fromStart(s))
	v.until(t, "READY")
	return s, v
}

func ended(t testing.TB, s *Session) *protocol.ExitRecord {
	t.Helper()
	select {
	case <-s.Exited():
		return s.Exit()
	case <-time.After(patience):
		t.Fatalf("session %s does not end", s.ID())
		return nil
	}
}

func info(t testing.TB, s *Session) protocol.SessionInfo {
	t.Helper()
	i, err := s.Info()
	testkit.Must(t, err)
	return i
}

// wantCode checks that an error has a code, or that there is no error if the code is empty.
func wantCode(t testing.TB, what string, err error, want protocol.Code) *protocol.Error {
	t.Helper()
	if got := protocol.CodeOf(err); got != want {
		t.Errorf("%s: got %v, want code %q", what, err, want)
	}
	return protocol.AsError(err)
}

// gone reports whether no process has the pid, not even a zombie that was not reaped.
func gone(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// running reports whether the pid has a process that is not a zombie.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !gone(pid)
	}
	return !strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " Z")
}

// await returns the first event of a kind that is about the session.
func await(t testing.TB, h *event.Hub, id protocol.SessionID, kind protocol.EventKind) event.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for after := uint64(0); ; {
		events, _, err := h.Next(ctx, after)
		if err != nil {
			t.Fatalf("no event %s of %s: %v", kind, id, err)
		}
		for _, e := range events {
			if after = e.Seq; e.Kind == kind && e.Session.ID == id {
				return e
			}
		}
	}
}

// within fails the test if f takes longer than a limit, which a demand names.
func within(t testing.TB, limit time.Duration, what string, f func()) {
	t.Helper()
	begun := time.Now()
	f()
	if took := time.Since(begun); took > limit {
		t.Errorf("%s took %v, want at most %v", what, took, limit)
	}
}

// look attaches a viewer that checks the items it receives, and detaches it after the test.
func look(t testing.TB, s *Session, spec protocol.AttachSpec) *viewer {
	t.Helper()
	v, err := attach(s, spec, nil)
	testkit.Must(t, err)
	t.Cleanup(v.a.Close)
	return v
}

// fromStart attaches at offset 0, so that the viewer receives the output as it was printed.
func fromStart(s *Session) protocol.AttachSpec {
	return protocol.AttachSpec{Resume: &protocol.Resume{Instance: s.Instance()}}
}

// next returns the next item. The test fails if none comes.
func (v *viewer) next(t testing.TB) (Item, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	item, err := v.take(ctx)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("%v, after %.200q", err, v.seen[max(0, len(v.seen)-200):])
	}
	return item, err
}

// until reads until the output has the text, and returns all output so far.
func (v *viewer) until(t testing.TB, text string) string {
	t.Helper()
	for !bytes.Contains(v.seen, []byte(text)) {
		if _, err := v.next(t); err != nil {
			t.Fatalf("the output ended without %q, after %.200q", text, v.seen)
		}
	}
	return string(v.seen)
}

// end reads to the end and returns all output, with the line ends that the child printed.
func (v *viewer) end(t testing.TB) string {
	t.Helper()
	for {
		if _, err := v.next(t); err != nil {
			return strings.ReplaceAll(string(v.seen), "\r\n", "\n")
		}
	}
}

// realStart is the default of Config.Start, for tests that wrap it.
func realStart(spec pty.Spec) (PTY, error) { return pty.Start(spec) }

// numbers returns the output of seq.
func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// create creates a session that counts towards its originator's limits.
func (t *Table) create(id protocol.SessionID, spec protocol.SpawnSpec, token string) (*Session, error) {
	return t.Create(spec.Originator, id, spec, protocol.Limits{}, token)
}

// reopen reopens a session, which may end at once.
func (t *Table) reopen(id protocol.SessionID, instance protocol.Instance, change protocol.RespawnSpec, token string) (*Session, error) {
	return t.Reopen(id, instance, change, token, 0)
}
