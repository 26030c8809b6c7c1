//go:build linux || darwin

package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
)

func TestCreate(t *testing.T) {
	tb := newTable(t, Config{})
	if _, err := tb.create("taken", bash("exec sleep 1000"), "t1"); err != nil {
		t.Fatal(err)
	}
	exited, err := tb.create("exited", bash("exit"), "t2")
	testkit.Must(t, err)
	ended(t, exited)
	ok := bash("exit")
	for _, tt := range []struct {
		name  string
		id    protocol.SessionID
		spec  protocol.SpawnSpec
		token string
		want  protocol.Code
	}{
		{"an id that the table chooses", "", ok, "", ""},
		{"an id that the client chooses", "a_B-9", ok, "", ""},
		{"taken", "taken", ok, "", protocol.CodeSessionExists},
		{"taken, with another token", "taken", ok, "t2", protocol.CodeSessionExists},
		{"taken by an exited session", "exited", ok, "", protocol.CodeSessionExists},
		{"the same again", "taken", ok, "t1", ""},
		{"the same again, exited", "exited", ok, "t2", ""},
		{"bad id", "a b", ok, "", protocol.CodeInvalidArgument},
		// demand: R1
		{"no argv", "x", protocol.SpawnSpec{}, "", protocol.CodeInvalidArgument},
		{"relative directory", "x", protocol.SpawnSpec{Argv: ok.Argv, Cwd: "tmp"}, "", protocol.CodeInvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := tb.create(tt.id, tt.spec, tt.token)
			wantCode(t, "Create", err, tt.want)
			if err == nil && (s.ID().Validate() != nil || tt.id != "" && s.ID() != tt.id) {
				t.Errorf("got id %q, want %q", s.ID(), tt.id)
			}
		})
	}
}

// A session starts with the size, directory and environment of its spec.
func TestCreateSpec(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	home, err := os.UserHomeDir()
	testkit.Must(t, err)
	env := []string{"PATH=" + os.Getenv("PATH"), "FROM=launcher"}
	const show = `stty size; pwd; echo $HOLDFAST_SESSION $TERM $COLORTERM $PWD $FROM`
	for _, tt := range []struct {
		name string
		spec protocol.SpawnSpec
		want string
	}{
		// demand: M1
		{"defaults", protocol.SpawnSpec{}, "24 80\n" + home + "\nit xterm-256color truecolor " + home + " launcher\n"},
		{"no columns", protocol.SpawnSpec{Rows: 50, Cwd: "/"}, "50 80\n/\nit xterm-256color truecolor / launcher\n"},
		{"no rows", protocol.SpawnSpec{Cols: 132, Cwd: "/"}, "24 132\n/\nit xterm-256color truecolor / launcher\n"},
		// demand: R1
		{"all", protocol.SpawnSpec{Cols: 100, Rows: 40, Cwd: dir, Env: []string{"FROM=us", "TERM=dumb", "HOLDFAST_SESSION=other", "PWD=/"}},
			"40 100\n" + dir + "\nit dumb truecolor " + dir + " us\n"},
		{"nothing inherited", protocol.SpawnSpec{Cwd: "/", ClearInheritedEnv: true}, "24 80\n/\nit xterm-256color truecolor /\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tb := newTable(t, Config{Env: env})
			tt.spec.Argv = bash("read go; " + show).Argv
			s, err := tb.create("it", tt.spec, "")
			testkit.Must(t, err)
			v := look(t, s, fromStart(s))
			if _, err := s.Type("", 0, []byte("\n")); err != nil {
				t.Fatal(err)
			}
			if _, got, _ := strings.Cut(v.end(t), "\n"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A spawn that fails returns spawn_failed with the cause.
// demand: M3
func TestSpawnFails(t *testing.T) {
	fails := func(err error) func(pty.Spec) (PTY, error) {
		return func(pty.Spec) (PTY, error) { return nil, fmt.Errorf("start: %w", err) }
	}
	for _, tt := range []struct {
		name  string
		start func(pty.Spec) (PTY, error)
		spec  protocol.SpawnSpec
		want  error
		cause protocol.Code
		retry bool
	}{
		{"no such program", nil, protocol.SpawnSpec{Argv: []string{"/no/such"}}, fs.ErrNotExist, protocol.CodeNotFound, false},
		{"not in the path", nil, protocol.SpawnSpec{Argv: []string{"no-such"}}, fs.ErrNotExist, protocol.CodeNotFound, false},
		{"no such directory", nil, protocol.SpawnSpec{Argv: []string{"bash"}, Cwd: "/no/such"}, fs.ErrNotExist, protocol.CodeNotFound, false},
		{"not a program", nil, protocol.SpawnSpec{Argv: []string{"/etc/passwd"}}, fs.ErrPermission, protocol.CodePermissionDenied, false},
		// demand: M14
		{"unsupported", fails(pty.ErrUnsupported), bash("exit"), protocol.ErrUnsupportedOS, protocol.CodeUnsupportedOS, false},
		{"exhausted", fails(pty.ErrExhausted), bash("exit"), &protocol.Error{Code: protocol.CodePTYExhausted}, protocol.CodePTYExhausted, true},
		{"no descriptors", fails(syscall.EMFILE), bash("exit"), &protocol.Error{Code: protocol.CodePTYExhausted}, protocol.CodePTYExhausted, true},
		{"no answer", fails(pty.ErrNoAnswer), bash("exit"), protocol.ErrSpawnFailed, "", true},
		{"no processes", fails(syscall.EAGAIN), bash("exit"), protocol.ErrSpawnFailed, "", true},
		{"anything else", fails(syscall.EINVAL), bash("exit"), protocol.ErrSpawnFailed, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tb := newTable(t, Config{Start: tt.start})
			_, err := tb.create("a", tt.spec, "")
			e := wantCode(t, "Create", err, protocol.CodeSpawnFailed)
			if !errors.Is(err, tt.want) || !errors.Is(err, protocol.ErrSpawnFailed) || e.Cause != tt.cause || e.Retryable != tt.retry {
				t.Errorf("got %#v, want cause %q, retryable %v, and to match %v", e, tt.cause, tt.retry, tt.want)
			}
			_, err = tb.Get("a")
			wantCode(t, "Get", err, protocol.CodeSessionNotFound)
			if tb.Live() != 0 || tb.Events().Seq() != 0 {
				t.Errorf("got %d sessions, %d events, want none", tb.Live(), tb.Events().Seq())
			}
		})
	}
}

// A repeated create that names no session finds the session by its token, unless another account has chosen that token.
func TestTokenWithoutID(t *testing.T) {
	tb := newTable(t, Config{})
	id := func(account, token string) protocol.SessionID {
		t.Helper()
		s, err := tb.Create(account, "", bash("exec sleep 1000"), protocol.Limits{}, token)
		testkit.Must(t, err)
		return s.ID()
	}
	first := id("ann", "t")
	for _, tt := range []struct {
		account, token string
		same           bool
	}{
		{"ann", "t", true},
		{"ann", "other", false},
		{"ann", "", false},
		{"ann", "", false},
		{"bob", "t", false},
	} {
		if got := id(tt.account, tt.token); (got == first) != tt.same {
			t.Errorf("%s with the token %q: session %s; the first one was %s", tt.account, tt.token, got, first)
		}
	}
	if n := len(tb.List("")); n != 5 {
		t.Errorf("there are %d sessions, want 5", n)
	}
}

// Concurrent creates with the same token make one session. Without a token, or with different ones, one create
// succeeds.
func TestCreateTogether(t *testing.T) {
	for _, tt := range []struct {
		name  string
		token func(i int) string
		ok    int
	}{
		{"same token", func(int) string { return "t" }, 10},
		{"other tokens", func(i int) string { return fmt.Sprint(i) }, 1},
		{"no token", func(int) string { return "" }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tb := newTable(t, Config{})
			got, errs := make([]*Session, 10), make([]error, 10)
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() { got[i], errs[i] = tb.create("a", bash("exec sleep 1000"), tt.token(i)) })
			}
			wg.Wait()
			ok := 0
			for i, err := range errs {
				if err == nil {
					ok++
					if s, _ := tb.Get("a"); s != got[i] {
						t.Errorf("%d: got another session", i)
					}
				} else {
					wantCode(t, "Create", err, protocol.CodeSessionExists)
				}
			}
			if ok != tt.ok || tb.Live() != 1 {
				t.Errorf("got %d successes, %d sessions; want %d, 1", ok, tb.Live(), tt.ok)
			}
		})
	}
}

// An exited session is started again under its id, as a new instance. Fields that the request leaves out keep their
// values.
// demand: K1
func TestReopen(t *testing.T) {
	tb := newTable(t, Config{})
	spec := bash(`echo READY; read go; stty size; pwd; echo $A; exit 3`)
	spec.Env, spec.Cwd, spec.Cols, spec.Rows = []string{"A=1"}, "/", 100, 30
	spec.Labels, spec.Originator, spec.ScrollbackLines = map[string]string{"title": "x"}, "me", 77
	first, err := tb.create("a", spec, "")
	testkit.Must(t, err)
	_, err = tb.reopen("a", "", protocol.RespawnSpec{}, "")
	wantCode(t, "running", err, protocol.CodeSessionRunning)
	_, err = tb.reopen("b", "", protocol.RespawnSpec{}, "")
	wantCode(t, "unknown", err, protocol.CodeSessionNotFound)
	look(t, first, protocol.AttachSpec{}).until(t, "READY")
	testkit.Must(t, first.Resize(protocol.Size{Cols: 90, Rows: 20}))
	life := func(s *Session) string {
		v := look(t, s, protocol.AttachSpec{})
		v.until(t, "READY")
		if _, err := s.Type("", 0, []byte("go\n")); err != nil {
			t.Fatal(err)
		}
		_, out, _ := strings.Cut(v.end(t), "go\n")
		return out
	}
	want := life(first)
	if want != "20 90\n/\n1\n" {
		t.Errorf("first life: got %q", want)
	}
	old := info(t, first)

	second, err := tb.reopen("a", "", protocol.RespawnSpec{}, "t")
	testkit.Must(t, err)
	if again, err := tb.reopen("a", "", protocol.RespawnSpec{}, "t"); again != second || err != nil {
		t.Errorf("the same again: got %p, %v; want %p", again, err, second)
	}
	i := info(t, second)
	if i.Instance == old.Instance || i.PID == old.PID || i.State != protocol.StateRunning || i.ExitCode != nil || i.Attachments != 0 {
		t.Errorf("got %+v, want a new life", i)
	}
	if !slices.Equal(i.Argv, old.Argv) || i.Size != old.Size || i.Labels["title"] != "x" || i.Originator != "me" || i.Cwd != "/" || i.ScrollbackLines != 77 {
		t.Errorf("got %+v, want the fields of the first life: %+v", i, old)
	}
	if got := life(second); got != want {
		t.Errorf("second life: got %q, want %q", got, want)
	}
	if _, err := first.Info(); protocol.CodeOf(err) != protocol.CodeSessionNotFound {
		t.Errorf("the first life still answers: %v", err)
	}
	_, err = tb.GetInstance("a", old.Instance)
	wantCode(t, "the first life", err, protocol.CodeInstanceMismatch)

	third, err := tb.reopen("a", "", protocol.RespawnSpec{Env: []string{"A=2"}, Cols: 50, Labels: map[string]string{}}, "")
	testkit.Must(t, err)
	if got := life(third); got != "20 50\n/\n2\n" {
		t.Errorf("third life: got %q", got)
	}
	if i := info(t, third); len(i.Labels) != 0 {
		t.Errorf("third life: got labels %v, want none", i.Labels)
	}
	_, err = tb.reopen("a", "", protocol.RespawnSpec{Argv: []string{"/no/such"}}, "")
	wantCode(t, "no such program", err, protocol.CodeSpawnFailed)
	if s, err := tb.Get("a"); s != third || err != nil {
		t.Errorf("after a failed start: got %v, want the exited session unchanged", err)
	}
}

// A client that keeps sessions by id from events receives the end of the old life before the new life.
func TestReopenEvents(t *testing.T) {
	tb := newTable(t, Config{})
	s, err := tb.create("a", bash("exit"), "")
	testkit.Must(t, err)
	ended(t, s)
	if _, err := tb.reopen("a", "", protocol.RespawnSpec{Argv: []string{"sleep", "1000"}}, ""); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, tb, "created", "exited", "forgotten", "created")
}

// wantEvents checks the first events of a table.
func wantEvents(t *testing.T, tb *Table, want ...string) {
	t.Helper()
	events, _, err := tb.Events().Next(context.Background(), 0)
	testkit.Must(t, err)
	var got []string
	for _, e := range events {
		got = append(got, string(e.Kind))
	}
	if !slices.Equal(got[:min(len(got), len(want))], want) {
		t.Errorf("got events %q, want %q", got, want)
	}
}

func TestMaxSessions(t *testing.T) {
	tb := newTable(t, Config{MaxSessions: 2})
	one := create(t, tb, bash("read go"))
	create(t, tb, bash("exec sleep 1000"))
	_, err := tb.create("", bash("exit"), "")
	wantCode(t, "a third", err, protocol.CodeLimitExceeded)
	testkit.Must(t, one.Terminate(End{}))
	ended(t, one)
	create(t, tb, bash("exec sleep 1000")) // an exited session does not count
	_, err = tb.reopen(one.ID(), "", protocol.RespawnSpec{}, "")
	wantCode(t, "reopened beside two live sessions", err, protocol.CodeLimitExceeded)
}

func TestForget(t *testing.T) {
	tb := newTable(t, Config{})
	s := create(t, tb, bash("read go"))
	wantCode(t, "running", tb.Forget(s.ID(), ""), protocol.CodeSessionRunning)
	testkit.Must(t, s.Terminate(End{}))
	ended(t, s)
	wantCode(t, "another life", tb.Forget(s.ID(), "other"), protocol.CodeInstanceMismatch)
	wantCode(t, "exited", tb.Forget(s.ID(), s.Instance()), "")
	// demand: M6
	for name, err := range map[string]error{
		"forgotten": tb.Forget(s.ID(), ""),
		"Get":       second(tb.Get(s.ID())),
		"Info":      second(s.Info()),
		"Show":      second(s.Show(protocol.ScreenSpec{})),
		"Type":      second(s.Type("", 0, nil)),
		"Resize":    s.Resize(protocol.Size{}),
		"Interrupt": s.Interrupt(),
		"Signal":    s.SignalFor(protocol.Asker{}, syscall.SIGHUP),
		"Terminate": s.Terminate(End{}),
		"Read":      third(s.Read(0, 1)),
		"Attach":    third2(s.Attach(t.Context(), protocol.AttachSpec{Resume: &protocol.Resume{Instance: s.Instance()}})),
		"unknown":   second(tb.Get("nobody")),
	} {
		wantCode(t, name, err, protocol.CodeSessionNotFound)
	}
	wantCode(t, "no id", second(tb.Get("")), protocol.CodeInvalidArgument)
	if list := tb.List(""); len(list) != 0 {
		t.Errorf("got %v, want none left", list)
	}
}

func second[T any](_ T, err error) error                           { return err }
func third(_ []byte, _, _ uint64, err error) error                 { return err }
func third2(_ *Attachment, _ protocol.AttachInfo, err error) error { return err }

func TestList(t *testing.T) {
	tb := newTable(t, Config{})
	for _, originator := range []string{"a", "b", "a"} {
		spec := bash("exec sleep 1000")
		spec.Originator, spec.Labels = originator, map[string]string{"title": originator}
		create(t, tb, spec)
	}
	ended(t, create(t, tb, bash("exit 1")))
	// demand: R2
	for originator, want := range map[string]string{"": "aba", "a": "aa", "b": "b", "c": ""} {
		got := ""
		for _, i := range tb.List(originator) {
			got += i.Originator
		}
		if got != want {
			t.Errorf("List(%q): got %q, want %q, the oldest first", originator, got, want)
		}
	}
	// demand: M6
	list := tb.List("")
	list[0].Argv[0], list[0].Labels["title"], list[3].Exit.Tail = "changed", "changed", []string{"changed"}
	*list[3].ExitCode = 77
	list[3].Exit.ExitCode = 77
	again := tb.List("")
	if again[0].Argv[0] != "bash" || again[0].Labels["title"] != "a" || *again[3].ExitCode != 1 || again[3].Exit.ExitCode != 1 || len(again[3].Exit.Tail) != 0 {
		t.Errorf("a change of the returned list changed the sessions: %+v", again)
	}
}
