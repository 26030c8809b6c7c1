package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// early are children that end at once, with the exit that the error of spawn must contain.
var early = []struct {
	name, script string
	code         int
	signal       string
	tail         []string
}{
	{"code", "echo no such thing; exit 3", 3, "", []string{"no such thing"}},
	{"success", "echo done; exit 0", 0, "", []string{"done"}},
	{"silent", "exit 4", 4, "", []string{}},
	{"signal", "echo ouch; kill -TERM $$", 143, "SIGTERM", []string{"ouch"}},
	{"twenty lines of thirty", "for i in $(seq 30); do echo line $i; done; exit 5", 5, "", numbered(11, 30)},
	{"what is no text", `printf 'a\377\376b\n\303'; exit 6`, 6, "", nil},
	{"no program", "exec /does/not/exist", 127, "", nil},
}

func numbered(from, to int) (lines []string) {
	for i := from; i <= to; i++ {
		lines = append(lines, fmt.Sprint("line ", i))
	}
	return lines
}

// demand: K1, K2, K3, K8, K9, K10
func TestExitedEarly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	wide := time.Minute // spawn returns at the exit, not after this time
	for _, tt := range early {
		id := protocol.SessionID("s")
		_, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: id, SpawnSpec: shell(tt.script), EarlyExit: &wide})
		checkEarly(t, tt.name+", new", err, tt.code, tt.signal, tt.tail)
		if _, err := c.SessionInfo(w.ctx(), id); code(err) != protocol.CodeSessionNotFound {
			t.Errorf("%s: the session still exists: %v", tt.name, err)
		}

		// The same holds for a new life of a session that has ended.
		s := w.spawn(c, string(id), shell("exit 0"))
		if _, err := c.Wait(w.ctx(), id, limit); err != nil {
			t.Fatal(err)
		}
		_, err = c.Reopen(w.ctx(), id, protocol.RespawnSpec{Argv: shell(tt.script).Argv}, &wide)
		checkEarly(t, tt.name+", reopened", err, tt.code, tt.signal, tt.tail)
		if i, err := c.SessionInfo(w.ctx(), id); err != nil || i.Instance != s.Session.Instance || i.ExitCode == nil || *i.ExitCode != 0 {
			t.Errorf("%s: the exit record of the previous life is not restored: %+v, %v", tt.name, i, err)
		}
		if err := c.Forget(w.ctx(), id); err != nil {
			t.Error(err)
		}
	}
}

func checkEarly(t *testing.T, name string, err error, code int, signal string, tail []string) {
	t.Helper()
	var e *protocol.Error
	switch {
	case !errors.Is(err, protocol.ErrExitedEarly) || !errors.As(err, &e) || e.Exit == nil:
		t.Errorf("%s: %v", name, err)
	case e.Exit.ExitCode != code || e.Exit.Signal != signal:
		t.Errorf("%s: code %d, signal %q, want %d, %q", name, e.Exit.ExitCode, e.Exit.Signal, code, signal)
	case tail != nil && !slices.Equal(e.Exit.Tail, tail):
		t.Errorf("%s: the tail is %q, want %q", name, e.Exit.Tail, tail)
	}
}

// Spawn waits 200 ms for an early exit if the request does not say how long, and does not wait if it says 0.
// demand: K1, K2
func TestEarlyExitWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	if _, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: "none", SpawnSpec: shell("exit 3"), EarlyExit: none}); err != nil {
		t.Errorf("spawn without a wait for an early exit: %v", err)
	}
	if exit, err := c.Wait(w.ctx(), "none", limit); err != nil || exit.ExitCode != 3 {
		t.Errorf("exit %+v, %v; want code 3", exit, err)
	}
	begun := time.Now()
	if _, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: "lives", SpawnSpec: shell("exec cat")}); err != nil {
		t.Errorf("spawn of a session that lives: %v", err)
	}
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("spawn waited only %v for an early exit, want 200ms", took)
	}
	if _, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: "dies", SpawnSpec: protocol.SpawnSpec{Argv: []string{"false"}}, EarlyExit: new(time.Minute)}); code(err) != protocol.CodeExitedEarly {
		t.Errorf("spawn of a session that ends at once: %v, want exited_early", err)
	}
}

// demand: K4, K5, K6, K11
func TestInfoAfterExit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	w.spawn(c, "s", shell("stty -echo; echo ready; read x; echo 'the last words'; kill -USR1 $$"))
	v := w.attach(c, "s", client.AttachOptions{})
	v.until("ready")
	info, err := c.SessionInfo(w.ctx(), "s")
	if err != nil || info.ExitCode != nil || info.Exit != nil || info.State != protocol.StateRunning {
		t.Fatalf("info of a running session: %+v, %v", info, err)
	}
	events, err := c.Events(w.ctx())
	testkit.Must(t, err)
	defer events.Close()
	v.say("\n")
	const usr1 = 128 + int(syscall.SIGUSR1)
	for {
		e, err := events.Next()
		testkit.Must(t, err)
		if e.Exit == nil {
			continue
		}
		// When the event of the exit has arrived, info must include the exit code.
		info, err := c.SessionInfo(w.ctx(), "s")
		if err != nil || info.ExitCode == nil || *info.ExitCode != usr1 || info.State != protocol.StateExited {
			t.Errorf("info after the exit: %+v, %v", info, err)
		}
		break
	}
	data, from, err := c.Output(w.ctx(), "s")
	if err != nil || from != 0 || !strings.Contains(string(data), "the last words\r\n") {
		t.Errorf("the output is %q from offset %d on, %v", data, from, err)
	}
	_, err = c.Attach(w.ctx(), "s", client.AttachOptions{})
	var e *protocol.Error
	if !errors.Is(err, protocol.ErrSessionExited) || !errors.As(err, &e) || e.Exit == nil ||
		e.Exit.ExitCode != usr1 || e.Exit.Signal != "SIGUSR1" || !slices.Contains(e.Exit.Tail, "the last words") {
		t.Errorf("attach after the exit: %+v", err)
	}
	if r := w.Run("proxy", "attach", "s"); r.Code != usr1 || !strings.Contains(r.Errout, "the last words") {
		t.Errorf("proxy attach after the exit: %v", r)
	}
	if r := w.Run("proxy", "wait", "s"); r.Code != usr1 {
		t.Errorf("proxy wait: %v", r)
	}
}

// labelled returns a session with the labels that pty_exited includes.
func labelled(script string) protocol.SpawnSpec {
	spec := shell(script)
	spec.Labels = map[string]string{
		protocol.LabelPane: "pane-7", protocol.LabelTitle: "Build", protocol.LabelDescription: "all of it", protocol.LabelParentAgent: "agent-1",
	}
	return spec
}

// demand: B1, B3, B5, B8
func TestPTYExited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	events, err := c.Events(w.ctx())
	testkit.Must(t, err)
	defer events.Close()
	s := w.spawn(c, "s", labelled(`stty -echo; echo ready; read x; for i in 1 2 3 4 5 6 7; do printf "line $i\n\n"; done; echo; exit 2`))
	v := w.attach(c, "s", client.AttachOptions{})
	old := w.client(api.Hello{Protocol: protocol.Supported(), Capabilities: protocol.Capabilities{protocol.CapTerminalExit}})
	testkit.Must(t, old.send(&api.Attach{Attachment: 3, AttachSpec: protocol.AttachSpec{SessionID: "s"}}))
	testkit.Must(t, old.send(&api.Events{Request: protocol.Request{RequestID: "e"}}))
	for seen := 0; seen < 2; {
		m, err := old.receive()
		testkit.Must(t, err)
		switch m.(type) {
		case *api.Attached, *api.Subscribed:
			seen++
		}
	}
	v.until("ready")
	v.say("\n")

	check := func(where string, e *api.PTYExited) {
		agent := "agent-1"
		if e.SessionID != "s" || e.PaneID != "pane-7" || e.ExitCode != 2 || e.TimedOut || e.Reason != protocol.ReasonExited ||
			e.SessionTitle != "Build" || e.SessionDescription != "all of it" || e.ParentAgent == nil || *e.ParentAgent != agent ||
			!slices.Equal(e.LastLines, numbered(3, 7)) || e.Instance != s.Session.Instance || e.Outcome != protocol.OutcomeNatural {
			t.Errorf("%s: %+v", where, e)
		}
	}
	end := v.last()
	if end.Kind != client.Exited {
		t.Fatalf("the last message is %+v, want the exit", end)
	}
	check("the last frame", end.Exit)
	if !strings.Contains(string(v.buf), "line 7") {
		t.Errorf("the output before the exit is %q", v.buf)
	}
	if m, err := v.Receive(0); err == nil {
		t.Errorf("unexpected message after the exit: %+v", m)
	}
	for {
		e, err := events.Next()
		testkit.Must(t, err)
		if e.Exit != nil {
			check("the event", e.Exit)
			break
		}
	}
	// M15: a client that asked for terminal.exit gets that, and never both.
	for seen := 0; seen < 2; {
		m, err := old.receive()
		testkit.Must(t, err)
		switch m := m.(type) {
		case *api.TerminalExit:
			if m.SessionID != "s" || m.ExitCode != 2 || m.Reason != protocol.ReasonExited || (m.Seq == 0) == (m.Attachment == nil) {
				t.Errorf("terminal.exit: %+v", m)
			}
			seen++
		case *api.PTYExited:
			t.Error("a client that asked for terminal.exit received pty_exited")
		}
	}
}

// demand: R1, R2, M6
func TestSpawnAndList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	for _, argv := range [][]string{{}, {""}} { // a missing argv would be the login shell
		if _, err := c.Spawn(w.ctx(), client.SpawnRequest{SpawnSpec: protocol.SpawnSpec{Argv: argv}}); code(err) != protocol.CodeInvalidArgument {
			t.Errorf("argv %q: %v", argv, err)
		}
	}
	_, err := c.Spawn(w.ctx(), client.SpawnRequest{SpawnSpec: protocol.SpawnSpec{Argv: []string{"/does/not/exist"}}})
	if !errors.Is(err, protocol.ErrSpawnFailed) || !errors.Is(err, &protocol.Error{Code: protocol.CodeNotFound}) {
		t.Errorf("spawn of a missing program: %v, want spawn_failed and not_found", err) // demand: M3
	}
	begun := time.Now()
	for i, originator := range []string{"red", "blue", "red"} {
		spec := echoing
		spec.Originator, spec.Cwd = originator, "/tmp"
		s := w.spawn(c, fmt.Sprint("s", i), spec)
		if s.PID == 0 || s.CreatedAt.Before(begun.Add(-time.Minute)) || s.Session.Size != (protocol.Size{Cols: 80, Rows: 24}) || s.Session.Cwd != "/tmp" {
			t.Errorf("spawned %+v", s)
		}
	}
	for originator, want := range map[string]string{"": "s0 s1 s2", "red": "s0 s2", "blue": "s1", "green": ""} {
		list, err := c.List(w.ctx(), originator)
		var ids []string
		for _, i := range list {
			ids = append(ids, string(i.ID))
		}
		if got := strings.Join(ids, " "); got != want || err != nil {
			t.Errorf("sessions of originator %q: %q, %v, want %q", originator, got, err, want)
		}
	}
	if _, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: "s0", SpawnSpec: echoing}); code(err) != protocol.CodeSessionExists {
		t.Errorf("spawn with the id of an existing session: %v", err)
	}
	if _, err := c.SessionInfo(w.ctx(), "none"); code(err) != protocol.CodeSessionNotFound {
		t.Errorf("info of an unknown id: %v", err)
	}
	if _, err := c.Attach(w.ctx(), "none", client.AttachOptions{}); code(err) != protocol.CodeSessionNotFound {
		t.Errorf("attach to an unknown id: %v", err)
	}
	// A reopened session is another instance.
	testkit.Must(t, c.Terminate(w.ctx(), "s0", client.End{}))
	before, err := c.Wait(w.ctx(), "s0", limit)
	if err != nil || before.Reason != protocol.ReasonUserRequested || before.Signal != "SIGHUP" {
		t.Errorf("exit %+v, %v; want SIGHUP by request", before, err)
	}
	old, _ := c.SessionInfo(w.ctx(), "s0")
	again, err := c.Reopen(w.ctx(), "s0", protocol.RespawnSpec{}, nil)
	if err != nil || again.Session.Instance == old.Instance || again.PID == old.PID || again.Session.Originator != "red" || again.Session.OutputOffset > 6 {
		t.Fatalf("the reopened session is %+v, %v", again, err)
	}
	_, err = c.Attach(w.ctx(), "s0", client.AttachOptions{Resume: &protocol.Resume{Instance: old.Instance}})
	if code(err) != protocol.CodeInstanceMismatch {
		t.Errorf("attach with the instance of the previous life: %v, want instance_mismatch", err)
	}
	if _, err := c.Reopen(w.ctx(), "s0", protocol.RespawnSpec{}, nil); code(err) != protocol.CodeSessionRunning {
		t.Errorf("reopen of a running session: %v, want session_running", err)
	}
}
