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

// early is what a child that ends at once leaves in the error.
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
	wide := time.Minute // it returns at the exit, not after this
	for _, tt := range early {
		id := protocol.SessionID("s")
		_, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: id, SpawnSpec: shell(tt.script), EarlyExit: &wide})
		checkEarly(t, tt.name+", new", err, tt.code, tt.signal, tt.tail)
		if _, err := c.SessionInfo(w.ctx(), id); code(err) != protocol.CodeSessionNotFound {
			t.Errorf("%s: the dead session is left: %v", tt.name, err)
		}

		// The same of a session that has ended before.
		s := w.spawn(c, string(id), shell("exit 0"))
		if _, err := c.Wait(w.ctx(), id, limit); err != nil {
			t.Fatal(err)
		}
		_, err = c.Reopen(w.ctx(), id, protocol.RespawnSpec{Argv: shell(tt.script).Argv}, &wide)
		checkEarly(t, tt.name+", reopened", err, tt.code, tt.signal, tt.tail)
		if _, err := c.SessionInfo(w.ctx(), id); code(err) != protocol.CodeSessionNotFound {
			t.Errorf("%s: the dead session is left, after %v: %v", tt.name, s.SessionID, err)
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

// The check is 200 ms where nothing is said, and none where 0 is.
// demand: K1, K2
func TestEarlyExitWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	if _, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: "none", SpawnSpec: shell("exit 3"), EarlyExit: none}); err != nil {
		t.Errorf("without a check: %v", err)
	}
	if exit, err := c.Wait(w.ctx(), "none", limit); err != nil || exit.ExitCode != 3 {
		t.Errorf("it ends with %+v, %v", exit, err)
	}
	begun := time.Now()
	if _, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: "lives", SpawnSpec: shell("exec cat")}); err != nil {
		t.Errorf("a session that lives: %v", err)
	}
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("it was watched for %v", took)
	}
	if _, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: "dies", SpawnSpec: protocol.SpawnSpec{Argv: []string{"false"}}}); code(err) != protocol.CodeExitedEarly {
		t.Errorf("a session that dies: %v", err)
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
		t.Fatalf("running: %+v, %v", info, err)
	}
	events, err := c.Events(w.ctx())
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	v.say("\n")
	const usr1 = 128 + int(syscall.SIGUSR1)
	for {
		e, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Exit == nil {
			continue
		}
		// Whoever sees the exit can read the code.
		info, err := c.SessionInfo(w.ctx(), "s")
		if err != nil || info.ExitCode == nil || *info.ExitCode != usr1 || info.State != protocol.StateExited {
			t.Errorf("exited: %+v, %v", info, err)
		}
		break
	}
	data, from, err := c.Scrollback(w.ctx(), "s")
	if err != nil || from != 0 || !strings.Contains(string(data), "the last words\r\n") {
		t.Errorf("the scrollback is %q from %d on, %v", data, from, err)
	}
	_, err = c.Attach(w.ctx(), "s", client.AttachOptions{})
	var e *protocol.Error
	if !errors.Is(err, protocol.ErrSessionExited) || !errors.As(err, &e) || e.Exit == nil ||
		e.Exit.ExitCode != usr1 || e.Exit.Signal != "SIGUSR1" || !slices.Contains(e.Exit.Tail, "the last words") {
		t.Errorf("an attach after the exit: %+v", err)
	}
	if r := w.run("proxy", "attach", "s"); r.code != usr1 || !strings.Contains(r.errout, "the last words") {
		t.Errorf("proxy attach after the exit: %v", r)
	}
	if r := w.run("proxy", "wait", "s"); r.code != usr1 {
		t.Errorf("proxy wait: %v", r)
	}
}

// labelled has what pty_exited tells of a session.
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
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	s := w.spawn(c, "s", labelled(`stty -echo; echo ready; read x; for i in 1 2 3 4 5 6 7; do printf "line $i\n\n"; done; echo; exit 2`))
	v := w.attach(c, "s", client.AttachOptions{})
	old := w.client(api.Hello{Protocol: protocol.Supported(), Capabilities: protocol.Capabilities{protocol.CapTerminalExit}})
	if err := old.send(&api.Attach{Attachment: 3, AttachSpec: protocol.AttachSpec{SessionID: "s"}}); err != nil {
		t.Fatal(err)
	}
	if err := old.send(&api.Events{Request: protocol.Request{RequestID: "e"}}); err != nil {
		t.Fatal(err)
	}
	for seen := 0; seen < 2; {
		m, err := old.receive()
		if err != nil {
			t.Fatal(err)
		}
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
		t.Fatalf("the last frame is %+v", end)
	}
	check("the last frame", end.Exit)
	if !strings.Contains(string(v.buf), "line 7") {
		t.Errorf("before it came %q", v.buf)
	}
	if m, err := v.Receive(0); err == nil {
		t.Errorf("after the last frame comes %+v", m)
	}
	for {
		e, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Exit != nil {
			check("the event", e.Exit)
			break
		}
	}
	// M15: a client that asked for terminal.exit gets that, and never both.
	for seen := 0; seen < 2; {
		m, err := old.receive()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *api.TerminalExit:
			if m.SessionID != "s" || m.ExitCode != 2 || m.Reason != protocol.ReasonExited || (m.Seq == 0) == (m.Attachment == nil) {
				t.Errorf("terminal.exit: %+v", m)
			}
			seen++
		case *api.PTYExited:
			t.Error("pty_exited, too")
		}
	}
}

// demand: R1, R2, M6
func TestSpawnAndList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	for _, argv := range [][]string{nil, {}, {""}} {
		if _, err := c.Spawn(w.ctx(), client.SpawnRequest{SpawnSpec: protocol.SpawnSpec{Argv: argv}}); code(err) != protocol.CodeInvalidArgument {
			t.Errorf("argv %q: %v", argv, err)
		}
	}
	_, err := c.Spawn(w.ctx(), client.SpawnRequest{SpawnSpec: protocol.SpawnSpec{Argv: []string{"/does/not/exist"}}})
	if !errors.Is(err, protocol.ErrSpawnFailed) || !errors.Is(err, &protocol.Error{Code: protocol.CodeNotFound}) {
		t.Errorf("a program that is not there: %v", err) // demand: M3
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
			t.Errorf("of %q: %q, %v, want %q", originator, got, err, want)
		}
	}
	if _, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: "s0", SpawnSpec: echoing}); code(err) != protocol.CodeSessionExists {
		t.Errorf("an id that is taken: %v", err)
	}
	if _, err := c.SessionInfo(w.ctx(), "none"); code(err) != protocol.CodeSessionNotFound {
		t.Errorf("an id that is unknown: %v", err)
	}
	if _, err := c.Attach(w.ctx(), "none", client.AttachOptions{}); code(err) != protocol.CodeSessionNotFound {
		t.Errorf("an attach to an id that is unknown: %v", err)
	}
	// A reopened session is another one.
	if err := c.Terminate(w.ctx(), "s0", client.End{}); err != nil {
		t.Fatal(err)
	}
	before, err := c.Wait(w.ctx(), "s0", limit)
	if err != nil || before.Reason != protocol.ReasonUserRequested || before.Signal != "SIGHUP" {
		t.Errorf("it ends with %+v, %v", before, err)
	}
	old, _ := c.SessionInfo(w.ctx(), "s0")
	again, err := c.Reopen(w.ctx(), "s0", protocol.RespawnSpec{}, nil)
	if err != nil || again.Session.Instance == old.Instance || again.PID == old.PID || again.Session.Originator != "red" || again.Session.OutputOffset > 6 {
		t.Fatalf("reopened: %+v, %v", again, err)
	}
	_, err = c.Attach(w.ctx(), "s0", client.AttachOptions{Resume: &protocol.Resume{Instance: old.Instance}})
	if code(err) != protocol.CodeInstanceMismatch {
		t.Errorf("who means the other life: %v", err)
	}
	if _, err := c.Reopen(w.ctx(), "s0", protocol.RespawnSpec{}, nil); code(err) != protocol.CodeSessionRunning {
		t.Errorf("reopened while it runs: %v", err)
	}
}

// demand: R2, R9
func TestDetach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	begun := time.Now()
	if m, err := v.Receive(50 * time.Millisecond); !errors.Is(err, client.ErrTimeout) {
		t.Errorf("nothing was printed, and %+v comes, %v", m, err)
	}
	if took := time.Since(begun); took < 50*time.Millisecond || took > limit/2 {
		t.Errorf("the deadline came after %v", took)
	}
	v.say("typed right before\n")
	for range 3 {
		if err := v.Detach(); err != nil {
			t.Error(err)
		}
	}
	if _, err := v.Write([]byte("x")); err == nil {
		t.Error("written after the detach")
	}
	info, err := c.SessionInfo(w.ctx(), "s")
	if err != nil || info.State != protocol.StateRunning {
		t.Errorf("the session is %+v, %v", info, err)
	}
	w.attach(c, "s", client.AttachOptions{}).until("typed right before\n")
}

// A detach does not wait for what has arrived already.
// demand: R2
func TestDetachAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	w.echo(c, "s")
	fastest := time.Hour
	for range 10 {
		v := w.attach(c, "s", client.AttachOptions{})
		v.ask("x\n")
		begun := time.Now()
		if err := v.Detach(); err != nil {
			t.Fatal(err)
		}
		fastest = min(fastest, time.Since(begun))
	}
	if fastest > 500*time.Millisecond {
		t.Errorf("the fastest of ten took %v", fastest)
	}
}

// demand: R3, M8
func TestTerminate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	w.spawn(c, "stubborn", role("stubborn"))
	v := w.attach(c, "stubborn", client.AttachOptions{})
	v.until("ready")
	grace := 1500 * time.Millisecond
	begun := time.Now()
	if err := c.Terminate(w.ctx(), "stubborn", client.End{Grace: &grace, Reason: "tired"}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > grace {
		t.Errorf("it returns after %v: not when it is scheduled", took)
	}
	if err := c.Terminate(w.ctx(), "stubborn", client.End{Reason: "another"}); err != nil {
		t.Errorf("a second terminate: %v", err)
	}
	if err := c.Resize(w.ctx(), "stubborn", 100, 30); code(err) != protocol.CodeSessionNotFound {
		t.Errorf("a resize while it ends: %v", err)
	}
	if err := c.Type(w.ctx(), "stubborn", []byte("x")); code(err) != protocol.CodeSessionNotFound {
		t.Errorf("input while it ends: %v", err)
	}
	v.until("got hangup") // its output is read all the same
	end := v.last()
	if end.Kind != client.Exited || end.Exit.Outcome != protocol.OutcomeHard || end.Exit.Signal != "SIGKILL" || end.Exit.Reason != "tired" {
		t.Errorf("it ends with %+v", end.Exit)
	}
	if took := time.Since(begun); took < grace {
		t.Errorf("it was killed after %v", took)
	}
	if err := c.Terminate(w.ctx(), "stubborn", client.End{}); code(err) != protocol.CodeSessionExited {
		t.Errorf("terminated after its end: %v", err)
	}

	// The whole tree goes with it, and whatever left its process group.
	w.spawn(c, "tree", shell("sh -c 'trap \"\" HUP; sleep 1001 & setsid sleep 1002 & echo child; wait' & echo ready; wait"))
	v = w.attach(c, "tree", client.AttachOptions{})
	v.until("child")
	info, err := c.SessionInfo(w.ctx(), "tree")
	if err != nil {
		t.Fatal(err)
	}
	tree := descendants(info.PID)
	if len(tree) < 3 {
		t.Fatalf("it has the descendants %v", tree)
	}
	if err := c.Terminate(w.ctx(), "tree", client.End{}); err != nil {
		t.Fatal(err)
	}
	v.last()
	for _, p := range tree {
		w.gone(p)
	}
	// One that has gone costs no wait.
	w.spawn(c, "quick", echoing)
	v = w.attach(c, "quick", client.AttachOptions{})
	v.until("ready")
	begun = time.Now()
	hour := time.Hour
	if err := c.Terminate(w.ctx(), "quick", client.End{Grace: &hour}); err != nil {
		t.Fatal(err)
	}
	if end := v.last(); end.Exit == nil || end.Exit.Outcome != protocol.OutcomeSoft || time.Since(begun) > limit {
		t.Errorf("it ends with %+v, after %v", end.Exit, time.Since(begun))
	}
}

func descendants(pid int) []process {
	var all []process
	for _, c := range children(pid) {
		all = append(append(all, lookup(c)), descendants(c)...)
	}
	return all
}

// demand: R5
func TestSteal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.dial(client.Options{Name: "one"})
	two := w.dial(client.Options{Name: "two"})
	w.spawn(one, "s", echoing)
	exclusive := client.AttachOptions{Mode: protocol.ModeExclusive}
	first := w.attach(one, "s", exclusive)
	first.until("ready\n")
	look := w.attach(two, "s", client.AttachOptions{Mode: protocol.ModeReadOnly}) // which is in nobody's way
	look.until("ready\n")
	for _, o := range []client.AttachOptions{exclusive, {}} {
		if _, err := two.Attach(w.ctx(), "s", o); !errors.Is(err, protocol.ErrAlreadyAttached) || !strings.Contains(err.Error(), "one") {
			t.Errorf("attached beside an exclusive one: %v", err)
		}
	}
	first.ask("mine\n")
	thief := w.attach(two, "s", client.AttachOptions{Mode: protocol.ModeExclusive, Steal: true})
	end := first.last()
	if end.Kind != client.Stolen || end.By != "two" {
		t.Errorf("the first is told %+v", end)
	}
	// Its cleaning up is its own business.
	if _, err := first.Write([]byte("x")); err == nil {
		t.Error("the first still types")
	}
	_ = first.Resize(10, 10)
	if err := first.Detach(); err != nil {
		t.Error(err)
	}
	_ = one.Close()
	thief.until("mine\n")
	thief.ask("now mine\n")
	look.until("now mine\n")
	if _, err := look.Write([]byte("x")); code(err) != protocol.CodePermissionDenied {
		t.Errorf("who only looks types: %v", err)
	}
	info, err := two.SessionInfo(w.ctx(), "s")
	if err != nil || info.Attachments != 2 || info.Size != (protocol.Size{Cols: 80, Rows: 24}) {
		t.Errorf("%d are attached at %v, %v", info.Attachments, info.Size, err)
	}
}

// demand: R6
func TestBacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HOLDFAST_RING_BYTES=65536")
	c := w.dial(client.Options{})
	w.spawn(c, "s", shell("stty raw -echo; seq -w 1 50000; echo ready; exec cat"))
	testkit.Eventually(t, limit, func() bool {
		lines, err := c.Screen(w.ctx(), "s", 1)
		return err == nil && len(lines) > 0 && lines[len(lines)-1] == "ready"
	}, "all is printed")
	const printed = uint64(50000*6 + len("ready\n"))
	for range 3 { // reading it does not drain it
		v := w.attach(c, "s", client.AttachOptions{})
		info := v.Info()
		if info.Offset != printed || info.BytesMissed+uint64(info.SnapshotBytes) != printed || info.BytesMissed == 0 || v.Missed() != info.BytesMissed {
			t.Fatalf("%d were printed: %d missed, %d follow, up to %d", printed, info.BytesMissed, info.SnapshotBytes, info.Offset)
		}
		got := v.until("ready\n")
		if len(got)+len("ready\n") != info.SnapshotBytes || !strings.HasSuffix(got, "49999\n50000\n") {
			t.Errorf("%d bytes came, %d were to come", len(got), info.SnapshotBytes)
		}
	}
	// Who says where he was gets what is missing, and no more.
	v := w.attach(c, "s", client.AttachOptions{})
	v.until("ready\n")
	at := v.Position()
	_ = v.Detach()
	if err := c.Type(w.ctx(), "s", []byte("meanwhile\n")); err != nil {
		t.Fatal(err)
	}
	v = w.attach(c, "s", client.AttachOptions{Resume: &at})
	if v.Info().Replay != protocol.ReplayExact || v.Info().Offset != at.Offset {
		t.Errorf("resumed at %d with %s from %d", at.Offset, v.Info().Replay, v.Info().Offset)
	}
	if got := v.until("meanwhile\n"); got != "" {
		t.Errorf("before what was missed comes %q", got)
	}
}

// demand: R7
func TestInterrupt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	// The shell is not in the foreground, its child is.
	w.spawn(c, "s", protocol.SpawnSpec{Argv: []string{"/bin/bash", "--norc", "-m", "-c",
		`trap 'echo shell interrupted' INT; sh -c 'trap "echo job interrupted" INT; echo ready; while :; do sleep 0.01; done'`}})
	v := w.attach(c, "s", client.AttachOptions{})
	v.until("ready")
	for range 2 {
		if err := v.Interrupt(w.ctx()); err != nil {
			t.Fatal(err)
		}
		if before := v.until("job interrupted"); strings.Contains(before, "shell interrupted") {
			t.Errorf("the shell was interrupted, too: %q", before)
		}
	}
	if err := c.Signal(w.ctx(), "s", "KILL"); err != nil {
		t.Fatal(err)
	}
	if m := v.last(); m.Kind != client.Exited || m.Exit.Signal != "SIGKILL" || m.Exit.Outcome != protocol.OutcomeNatural {
		t.Errorf("it ends with %+v", m.Exit)
	}
	if err := v.Interrupt(w.ctx()); code(err) != protocol.CodeSessionExited {
		t.Errorf("interrupted after its end: %v", err)
	}
}

// A paste larger than any buffer arrives whole and in order.
func TestPaste(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	w.spawn(c, "s", shell("stty raw -echo; echo ready; head -c 4000000 | sha256sum; exec cat"))
	v := w.attach(c, "s", client.AttachOptions{})
	v.until("ready\n")
	var paste strings.Builder
	for i := 0; paste.Len() < 4_000_000; i++ {
		fmt.Fprintf(&paste, "line %d of a paste\n", i)
	}
	text := paste.String()[:4_000_000]
	v.say(text)
	if sum := v.until("\n"); !strings.HasPrefix(sum, sha256Hex(text)) {
		t.Errorf("what arrived has the sum %q", sum)
	}
	v.ask("and goes on\n")
}
