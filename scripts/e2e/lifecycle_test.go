package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// demand: S3
func TestStartedWhereNoneRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if r := w.Run("proxy", "stop"); r.Code != 69 {
		t.Errorf("stop where none runs: %v", r)
	}
	if r := w.Run("supervisor", "stop"); r.Code != 69 {
		t.Errorf("stop where none runs: %v", r)
	}
	if all := w.Running(""); len(all) > 0 {
		t.Errorf("stopping has started %v", all)
	}
	w.Must("proxy", "start")
	held, proxy := w.Only("supervisor"), w.Only("proxy")
	w.Must("proxy", "new", "-d", "--id", "s", "--", "sleep", "1000")
	if out := w.Must("proxy", "ls"); !strings.Contains(out, "sleep 1000") {
		t.Errorf("ls says %q", out)
	}
	if w.Only("supervisor") != held || w.Only("proxy") != proxy {
		t.Error("what runs was started again")
	}
}

// demand: S3
func TestConnectedWhereOneRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.Start(w.Command("supervisor"))
	held := w.Only("supervisor")
	testkit.Eventually(t, limit, func() bool { return w.Holder("supervisor.sock") == held.PID }, "the supervisor serves")
	w.Must("proxy", "new", "-d", "--id", "s", "--", "sleep", "1000")
	if keeper := w.Only("keeper"); keeper != d.Process || held.Parent() != keeper.PID {
		t.Errorf("%v runs with %v, a child of %d, and was not what we started", keeper, held, held.Parent())
	}
	// There is one at a time, and the second says who it is.
	r := w.Run("supervisor")
	if r.Code != 69 || !strings.Contains(r.Errout, fmt.Sprintf("process %d", d.PID)) {
		t.Errorf("a second supervisor: %v", r)
	}
	proxy := w.Only("proxy")
	r = w.Run("proxy", "serve")
	if r.Code == 0 || !strings.Contains(r.Errout, fmt.Sprintf("process %d", proxy.PID)) {
		t.Errorf("a second proxy: %v", r)
	}
	if w.Only("keeper") != d.Process || w.Only("supervisor") != held || w.Only("proxy") != proxy {
		t.Error("the second has done something to the first")
	}
}

// A signal that comes when the socket is there, and before the supervisor serves, ends both
// programs in order.
func TestTerminatedBeforeItServes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Bin = testkit.BuildTagged(t, "faults", "holdfast/proxy", "holdfast/supervisor")
	if err := os.WriteFile(w.Path("fault"), []byte("adopted=stop"), 0o600); err != nil {
		t.Fatal(err)
	}
	keeper := w.Start(w.Command("supervisor"))
	starting := w.Only("supervisor")
	testkit.Eventually(t, limit, func() bool { state, _ := testkit.Stat(starting.PID); return state == "T" }, "the supervisor has stopped before it serves")
	if w.Holder("supervisor.sock") != starting.PID {
		t.Error("the supervisor has no socket yet")
	}
	for _, p := range []process{keeper.Process, starting} { // as to a process group
		p.Signal(syscall.SIGTERM)
	}
	starting.Signal(syscall.SIGCONT)
	keeper.Wait(t)
	if keeper.Code != 0 {
		t.Errorf("exit code %d: %s", keeper.Code, keeper.Errout)
	}
}

// demand: S1, S8
func TestSessionsSurviveStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	v.ask("before")
	info, err := c.SessionInfo(w.ctx(), "s")
	if err != nil {
		t.Fatal(err)
	}
	first := w.Only("proxy")
	_ = v.Flush(w.ctx())
	_ = v.Detach()
	_ = c.Close()
	if out := w.Must("proxy", "stop"); !strings.Contains(out, fmt.Sprint(first.PID)) {
		t.Errorf("stop says %q", out)
	}
	w.Gone(first)
	if _, err := os.Stat(w.Path("proxy.sock")); err == nil {
		t.Error("the socket of a proxy that was stopped is left")
	}
	if r := w.Run("proxy", "stop"); r.Code != 69 || !strings.Contains(r.Errout, "no proxy runs") {
		t.Errorf("a second stop: %v", r)
	}
	if !lookup(info.PID).Running() {
		t.Fatal("the child ended with the proxy")
	}
	c = w.dial(client.Options{})
	after, err := c.SessionInfo(w.ctx(), "s")
	if err != nil || after.Instance != info.Instance || after.PID != info.PID {
		t.Fatalf("it was %+v, and is %+v, %v", info, after, err)
	}
	v = w.attach(c, "s", client.AttachOptions{})
	v.until("before") // R6: what was printed while nobody looked
	v.ask("after")
}

// demand: M12, and: supervisor stop is refused while sessions run
func TestSupervisorStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HOLDFAST_GRACE=400ms")
	c := w.dial(client.Options{})
	const sessions = 20
	var kids []process
	var views []*view
	for i := range sessions {
		id := fmt.Sprint("s", i)
		s := w.spawn(c, id, shell("trap '' HUP; echo ready; while :; do sleep 1000; done"))
		v := w.attach(c, id, client.AttachOptions{})
		v.until("ready")
		kids, views = append(kids, lookup(s.PID)), append(views, v)
	}
	held, keeper := w.Only("supervisor"), w.Only("keeper")
	r := w.Run("supervisor", "stop")
	if r.Code != 75 || !strings.Contains(r.Errout, "sessions that run: 20") || !strings.Contains(r.Errout, "--sessions=end") {
		t.Errorf("stop while sessions run: %v", r)
	}
	for _, p := range append(kids, held, keeper) {
		if !p.Running() {
			t.Fatalf("process %d has ended all the same", p.PID)
		}
	}

	begun := time.Now()
	var wg sync.WaitGroup
	for range 3 { // each of several callers gets its answer when all is over
		wg.Go(func() {
			r, err := w.Try("supervisor", "stop", "--sessions=end")
			if err != nil || r.Code != 0 && !strings.Contains(r.Errout, "no supervisor runs") {
				t.Errorf("stop: %v, %v", r, err)
			}
			if _, err := os.Lstat(w.Path("supervisor.sock")); err == nil {
				t.Error("stop has returned, and the socket is there")
			}
			for _, p := range kids {
				if p.Running() {
					t.Errorf("stop has returned, and process %d runs", p.PID)
				}
			}
		})
	}
	wg.Wait()
	if took := time.Since(begun); took > sessions*400*time.Millisecond/2 {
		t.Errorf("it took %v: one after the other, and not all at once", took)
	}
	w.Gone(held)
	w.Gone(keeper)
	for i, v := range views {
		end := v.last()
		if end.Kind != client.Exited || end.Exit.Reason != protocol.ReasonShutdown || end.Exit.Outcome != protocol.OutcomeHard {
			t.Errorf("viewer %d is told %+v", i, end)
		}
	}
	if again := w.Running("supervisor"); len(again) > 0 {
		t.Errorf("a supervisor was stopped, and another started: %v", again)
	}
}

// demand: M2, M12: what is opened while the supervisor shuts down is closed
func TestOpenWhileShuttingDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HOLDFAST_GRACE=2s")
	c := w.dial(client.Options{})
	w.spawn(c, "s", role("stubborn"))
	v := w.attach(c, "s", client.AttachOptions{})
	v.until("ready")
	stopped := make(chan result, 1)
	go func() {
		r, _ := w.Try("supervisor", "stop", "--sessions=end")
		stopped <- r
	}()
	v.until("got hangup") // so it has begun
	_, err := c.Spawn(w.ctx(), client.SpawnRequest{SpawnSpec: shell("exec cat")})
	if code(err) != protocol.CodeClosed {
		t.Errorf("a session opened while shutting down: %v", err)
	}
	end := v.last()
	if end.Kind != client.Exited || end.Exit.Reason != protocol.ReasonShutdown || end.Exit.Outcome != protocol.OutcomeHard {
		t.Errorf("its viewer is told %+v, %+v", end, end.Exit)
	}
	if r := <-stopped; r.Code != 0 {
		t.Errorf("stop: %v", r)
	}
}

// A supervisor that is killed costs nothing: the session goes on, as does whoever
// waits for it, and its viewer has everything once.
// demand: S10
func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	proxy, keeper, held := w.Only("proxy"), w.Only("keeper"), w.Only("supervisor")
	was, err := c.SessionInfo(w.ctx(), "s")
	if err != nil {
		t.Fatal(err)
	}
	waited := w.awaitsEnd(c, "s")
	for i := range 3 {
		v.ask(fmt.Sprintf("before %d\n", i))
		if now := w.KillSupervisor(); now == held || now.Parent() != keeper.PID {
			t.Errorf("the next one, %v, is a child of %d, and not of %v", now, now.Parent(), keeper)
		}
		v.ask(fmt.Sprintf("after %d\n", i)) // nothing comes before it: nothing comes twice
	}
	if v.Missed() != 0 {
		t.Errorf("its viewer has missed %d bytes", v.Missed())
	}
	now, err := c.SessionInfo(w.ctx(), "s")
	if err != nil || now.PID != was.PID || now.Instance != was.Instance || now.OutputOffset <= was.OutputOffset || !lookup(was.PID).Running() {
		t.Errorf("the session was %+v, and is %+v, %v", was, now, err)
	}
	late := w.attach(c, "s", client.AttachOptions{})
	for i := range 3 {
		if before := late.until(fmt.Sprintf("before %d\nafter %d\n", i, i)); i > 0 && before != "" {
			t.Errorf("round %d: who comes later is shown %q first", i, before)
		}
	}
	if w.Only("proxy") != proxy || w.Only("keeper") != keeper {
		t.Error("another process was replaced, too")
	}
	if status, err := c.Status(w.ctx()); err != nil || status.Supervisor.Keeper == nil ||
		status.Supervisor.Keeper.PID != keeper.PID || status.Supervisor.Keeper.Starts != 4 || status.Supervisor.Keeper.Last != "SIGKILL" {
		t.Errorf("status says %+v, %v", status, err)
	}
	if err := c.Terminate(w.ctx(), "s", client.End{}); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("who waited for its end through all this is told %v", err)
	}
	if m := v.last(); m.Kind != client.Exited || m.Exit.ExitCode != 129 {
		t.Errorf("its viewer is told %+v", m)
	}
}

// The death of the supervisor and its keeper at once costs the sessions; it must cost
// nothing else, and nobody waits for ever.
func TestBothKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HOLDFAST_DURABLE=off") // a session that is stored would be listed as lost
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	proxy, held := w.Only("proxy"), w.Only("supervisor")
	info, err := c.SessionInfo(w.ctx(), "s")
	if err != nil {
		t.Fatal(err)
	}
	waited := w.awaitsEnd(c, "s")
	v.ask("before")
	w.KillBoth()
	w.Gone(lookup(info.PID)) // its terminal is closed

	// By a supervisor that is started for it. The proxy may have yet to see the
	// link's end; then it says that the same may succeed later.
	testkit.Eventually(t, limit, func() bool {
		_, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: "t", SpawnSpec: echoing, EarlyExit: none})
		if err != nil && (code(err) != protocol.CodeSupervisorUnreachable || !protocol.AsError(err).Retryable) {
			t.Fatal(err)
		}
		return err == nil
	}, "another session is started")
	two := w.attach(c, "t", client.AttachOptions{})
	two.until("ready\n")
	two.ask("after")
	if now := w.Only("supervisor"); now == held {
		t.Error("the dead supervisor runs")
	}
	if now := w.Only("proxy"); now != proxy {
		t.Errorf("the proxy was %v, and is %v", proxy, now)
	}
	select {
	case err := <-waited:
		if c := code(err); c != protocol.CodeSessionNotFound && c != protocol.CodeSupervisorUnreachable {
			t.Errorf("who waited for its end is told %v", err)
		}
	case <-time.After(limit):
		t.Error("who waited for the session's end waits for ever")
	}
	if _, err := c.SessionInfo(w.ctx(), "s"); code(err) != protocol.CodeSessionNotFound {
		t.Errorf("a session of the dead supervisor: %v", err)
	}
	m, err := v.Receive(limit)
	if err != nil || m.Kind != client.Failed || code(m.Err) != protocol.CodeSessionNotFound {
		t.Errorf("its viewer is told %+v, %v", m, err)
	}
	if _, err := v.Write([]byte("x")); err == nil {
		t.Error("it can still be written to")
	}
}

// demand: K7: where the supervisor goes away for good during the check, the
// creation stands; where another goes on, so does the check.
func TestUnreachableDuringCheck(t *testing.T) {
	t.Parallel()
	for name, goesOn := range map[string]bool{"for good": false, "another goes on": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.dial(client.Options{})
			spawned := make(chan error, 1)
			ctx := w.ctx()
			long := time.Minute
			go func() {
				_, err := c.Spawn(ctx, client.SpawnRequest{ID: "s", SpawnSpec: shell("exec cat"), EarlyExit: &long})
				spawned <- err
			}()
			testkit.Eventually(t, limit, func() bool { _, err := c.SessionInfo(ctx, "s"); return err == nil }, "the session is there")
			var want protocol.Code
			if goesOn {
				w.KillSupervisor()
				if err := c.Terminate(ctx, "s", client.End{}); err != nil {
					t.Fatal(err)
				}
				want = protocol.CodeExitedEarly
			} else {
				w.KillBoth()
			}
			select {
			case err := <-spawned:
				if code(err) != want {
					t.Errorf("the creation ends with %v, want %q", err, want)
				}
			case <-time.After(limit):
				t.Error("the creation waits for ever")
			}
		})
	}
}

// Sockets that lie where nobody listens any more are no obstacle.
func TestStaleSockets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must("proxy", "start")
	held, proxy := w.Only("supervisor"), w.Only("proxy")
	w.KillBoth()
	w.Kill(proxy)
	for _, name := range []string{"proxy.sock", "proxy.control.sock", "supervisor.sock"} {
		if _, err := os.Stat(w.Path(name)); err != nil {
			t.Fatalf("%s is not left: %v", name, err)
		}
	}
	if r := w.Run("proxy", "stop"); r.Code != 69 {
		t.Errorf("stop of what is dead: %v", r)
	}
	w.Must("proxy", "new", "-d", "--id", "s", "--", "sleep", "1000")
	if w.Only("supervisor") == held || w.Only("proxy") == proxy {
		t.Error("the dead run")
	}
}

// demand: S3, and one supervisor whoever is first
func TestRaceFromNothing(t *testing.T) {
	t.Parallel()
	for round := range 5 {
		w := newWorld(t)
		const callers = 10
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				<-begin
				id := fmt.Sprintf("s%d", i)
				if r, err := w.Try("proxy", "new", "-d", "--id", id, "--", "sleep", "1000"); err != nil || r.Code != 0 || r.Out != id+"\n" {
					t.Errorf("round %d, caller %d: %v, %v", round, i, r, err)
				}
			})
		}
		close(begin)
		wg.Wait()
		w.Only("supervisor")
		w.Only("proxy")
		list, err := w.dial(client.Options{}).List(w.ctx(), "")
		if err != nil || len(list) != callers {
			t.Errorf("%d sessions run, %v", len(list), err)
		}
	}
}

// A client that is not told how to start a proxy does not, and says so at
// once.
// demand: R8
func TestNoProxy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := client.Dial(w.ctx(), client.Options{Dir: w.Dir})
	if !errors.Is(err, client.ErrConnect) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if all := w.Running(""); len(all) > 0 {
		t.Errorf("%v was started", all)
	}
	// One that knew a proxy looks for it for as long as it was told, not longer.
	c, err := client.Dial(w.ctx(), client.Options{Dir: w.Dir, Start: w.startProxy})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	poor, err := client.Dial(w.ctx(), client.Options{Dir: w.Dir, Redial: time.Second}) // also bounds the hello of each of its connections
	if err != nil {
		t.Fatal(err)
	}
	defer poor.Close()
	w.spawn(c, "s", echoing)
	a, err := poor.Attach(w.ctx(), "s", client.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	w.Kill(w.Only("proxy"))
	if _, err := poor.List(w.ctx(), ""); !errors.Is(err, client.ErrConnect) {
		t.Errorf("a request without a proxy: %v", err)
	}
	v := &view{t: t, Attachment: a}
	if m := v.last(); m.Kind != client.Failed || !errors.Is(m.Err, client.ErrConnect) {
		t.Errorf("an attachment without a proxy: %+v", m)
	}
}

// Started from a shell, both outlive it: they have a session of their own.
func TestOutlivesLauncher(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := w.Command("proxy", "start")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	d := w.Start(cmd)
	d.Wait(t)
	if d.Code != 0 {
		t.Fatal(d.Errout)
	}
	_ = syscall.Kill(-d.PID, syscall.SIGHUP) // what a closed terminal does; nobody is there
	keeper, held, proxy := w.Only("keeper"), w.Only("supervisor"), w.Only("proxy")
	for p, leader := range map[process]process{keeper: keeper, held: keeper, proxy: proxy} {
		if f := testkit.StatFields(p.PID); f[3] != itoa(leader.PID) { // its session
			t.Errorf("process %d is in session %s", p.PID, f[3])
		}
		for fd, to := range fds(p.PID) {
			if fd <= 2 && to != "/dev/null" {
				t.Errorf("process %d has %s as descriptor %d", p.PID, to, fd)
			}
		}
	}
	held.Signal(syscall.SIGHUP) // which says nothing about the sessions
	keeper.Signal(syscall.SIGHUP)
	w.Must("proxy", "new", "-d", "--id", "s", "--", "sleep", "1000")
	if w.Only("keeper") != keeper || w.Only("supervisor") != held || w.Only("proxy") != proxy {
		t.Error("one has ended with its launcher")
	}
}

// awaitsEnd asks for a session's end, beside the test, and gives how that went.
func (w *world) awaitsEnd(c *client.Client, id protocol.SessionID) <-chan error {
	waited, ctx := make(chan error, 1), w.ctx()
	go func() {
		_, err := c.Wait(ctx, id, -1)
		waited <- err
	}()
	return waited
}
