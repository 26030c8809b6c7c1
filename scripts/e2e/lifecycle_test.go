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
		t.Errorf("stop without a proxy: %v, want exit 69", r)
	}
	if r := w.Run("supervisor", "stop"); r.Code != 69 {
		t.Errorf("stop without a supervisor: %v, want exit 69", r)
	}
	if all := w.Running(""); len(all) > 0 {
		t.Errorf("the stop commands have started %v", all)
	}
	w.Must("proxy", "start")
	held, proxy := w.Only("supervisor"), w.Only("proxy")
	w.Must("proxy", "new", "-d", "--id", "s", "--", "sleep", "1000")
	if out := w.Must("proxy", "ls"); !strings.Contains(out, "sleep 1000") {
		t.Errorf("ls prints %q", out)
	}
	if w.Only("supervisor") != held || w.Only("proxy") != proxy {
		t.Error("a running program was started again")
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
		t.Errorf("the keeper is %v with the supervisor %v, a child of %d; want the started process as keeper", keeper, held, held.Parent())
	}
	// Only one supervisor may run, and the error of a second one must name the first one's process.
	r := w.Run("supervisor")
	if r.Code != 69 || !strings.Contains(r.Errout, fmt.Sprintf("process %d", d.PID)) {
		t.Errorf("start of a second supervisor: %v", r)
	}
	proxy := w.Only("proxy")
	r = w.Run("proxy", "serve")
	if r.Code == 0 || !strings.Contains(r.Errout, fmt.Sprintf("process %d", proxy.PID)) {
		t.Errorf("start of a second proxy: %v", r)
	}
	if w.Only("keeper") != d.Process || w.Only("supervisor") != held || w.Only("proxy") != proxy {
		t.Error("the start of a second program has replaced the first")
	}
}

// If a signal comes after the socket exists and before the supervisor serves, both programs must end in
// order.
func TestTerminatedBeforeItServes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Bin = testkit.BuildTagged(t, "faults", "holdfast/proxy", "holdfast/supervisor")
	testkit.Must(t, os.WriteFile(w.Path("fault"), []byte("adopted=stop"), 0o600))
	keeper := w.Start(w.Command("supervisor"))
	starting := w.Only("supervisor")
	testkit.Eventually(t, limit, func() bool { state, _ := testkit.Stat(starting.PID); return state == "T" }, "the supervisor has stopped before it serves")
	if w.Holder("supervisor.sock") != starting.PID {
		t.Error("the stopped supervisor does not hold the socket")
	}
	for _, p := range []process{keeper.Process, starting} { // as a signal to the process group
		p.Signal(syscall.SIGTERM)
	}
	starting.Signal(syscall.SIGCONT)
	keeper.Wait(t)
	if keeper.Code != 0 {
		t.Errorf("the keeper ended with exit code %d: %s", keeper.Code, keeper.Errout)
	}
}

// While a supervisor tries the program that is to take the place of a dead keeper, its sessions must continue, because the
// trial may hang. Afterwards they must have all lines above their screens, also those that the ring has no more.
// demand: S1
func TestKeeperTrialHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Bin = testkit.BuildTagged(t, "faults", "holdfast/proxy", "holdfast/supervisor")
	w.Must("proxy", "start")
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	v.ask("before")
	w.spawn(c, "lines", shell("seq -f %070g 60000; exec sleep 1000"))
	w.Must("proxy", "wait", "lines", "--text", "060000")
	printed := w.Must("proxy", "export", "lines")
	keeper, supervisor := w.Only("keeper"), w.Only("supervisor")
	testkit.Must(t, os.WriteFile(w.Path("fault"), []byte("trial=stop"), 0o600))
	w.Kill(keeper)
	var trial process
	testkit.Eventually(t, limit, func() bool {
		for _, p := range w.Running("") {
			if state, _ := testkit.Stat(p.PID); state == "T" && p.Parent() == supervisor.PID {
				trial = p
			}
		}
		return trial.PID != 0
	}, "the program on trial has stopped")
	v.ask("during the trial")
	testkit.Must(t, os.Remove(w.Path("fault")))
	if !trial.Running() {
		t.Error("the trial has ended before the question was answered")
	}
	trial.Signal(syscall.SIGKILL)
	testkit.Eventually(t, limit, func() bool {
		return w.lines("supervisor.log", "keeper not replaced") == 1 && w.Only("keeper") == supervisor
	}, "the supervisor has become the keeper")
	v.ask("after it")
	if now := w.Must("proxy", "export", "lines"); now != printed {
		t.Errorf("the session had %d bytes of lines, from %.70q; now it has %d, from %.70q", len(printed), printed, len(now), now)
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
	testkit.Must(t, err)
	first := w.Only("proxy")
	_ = v.Flush(w.ctx())
	_ = v.Detach()
	_ = c.Close()
	if out := w.Must("proxy", "stop"); !strings.Contains(out, fmt.Sprint(first.PID)) {
		t.Errorf("stop prints %q", out)
	}
	w.Gone(first)
	if _, err := os.Stat(w.Path("proxy.sock")); err == nil {
		t.Error("the socket of the stopped proxy still exists")
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
		t.Fatalf("the session was %+v; now it is %+v, %v", info, after, err)
	}
	v = w.attach(c, "s", client.AttachOptions{})
	v.until("before") // R6: output that came while no viewer was attached
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
			t.Fatalf("process %d has ended although stop was refused", p.PID)
		}
	}

	begun := time.Now()
	var wg sync.WaitGroup
	for range 3 { // each of several callers receives its answer when all sessions have ended
		wg.Go(func() {
			r, err := w.Try("supervisor", "stop", "--sessions=end")
			if err != nil || r.Code != 0 && !strings.Contains(r.Errout, "no supervisor runs") {
				t.Errorf("stop: %v, %v", r, err)
			}
			if _, err := os.Lstat(w.Path("supervisor.sock")); err == nil {
				t.Error("the socket still exists after stop has returned")
			}
			for _, p := range kids {
				if p.Running() {
					t.Errorf("process %d still runs after stop has returned", p.PID)
				}
			}
		})
	}
	wg.Wait()
	if took := time.Since(begun); took > sessions*400*time.Millisecond/2 {
		t.Errorf("stop took %v, as if it ended the sessions one after the other", took)
	}
	w.Gone(held)
	w.Gone(keeper)
	for i, v := range views {
		end := v.last()
		if end.Kind != client.Exited || end.Exit.Reason != protocol.ReasonShutdown || end.Exit.Outcome != protocol.OutcomeHard {
			t.Errorf("viewer %d received %+v, want the exit by shutdown", i, end)
		}
	}
	if again := w.Running("supervisor"); len(again) > 0 {
		t.Errorf("after the stop another supervisor was started: %v", again)
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
	v.until("got hangup") // the shutdown has begun
	_, err := c.Spawn(w.ctx(), client.SpawnRequest{SpawnSpec: shell("exec cat")})
	if code(err) != protocol.CodeClosed {
		t.Errorf("spawn during the shutdown: %v, want closed", err)
	}
	end := v.last()
	if end.Kind != client.Exited || end.Exit.Reason != protocol.ReasonShutdown || end.Exit.Outcome != protocol.OutcomeHard {
		t.Errorf("the viewer received %+v, exit %+v; want the exit by shutdown", end, end.Exit)
	}
	if r := <-stopped; r.Code != 0 {
		t.Errorf("stop: %v", r)
	}
}

// If the supervisor is killed, sessions must continue, requests that wait for an exit must be answered, and
// viewers must receive each byte once.
// demand: S10
func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	proxy, keeper, held := w.Only("proxy"), w.Only("keeper"), w.Only("supervisor")
	was, err := c.SessionInfo(w.ctx(), "s")
	testkit.Must(t, err)
	waited := w.awaitExit(c, "s")
	for i := range 3 {
		v.ask(fmt.Sprintf("before %d\n", i))
		if now := w.KillSupervisor(); now == held || now.Parent() != keeper.PID {
			t.Errorf("the next supervisor, %v, is a child of process %d, not of the keeper %v", now, now.Parent(), keeper)
		}
		v.ask(fmt.Sprintf("after %d\n", i)) // a later viewer checks below that no byte came twice
	}
	if v.Missed() != 0 {
		t.Errorf("the viewer has missed %d bytes", v.Missed())
	}
	now, err := c.SessionInfo(w.ctx(), "s")
	if err != nil || now.PID != was.PID || now.Instance != was.Instance || now.OutputOffset <= was.OutputOffset || !lookup(was.PID).Running() {
		t.Errorf("the session was %+v; now it is %+v, %v", was, now, err)
	}
	late := w.attach(c, "s", client.AttachOptions{})
	for i := range 3 {
		if before := late.until(fmt.Sprintf("before %d\nafter %d\n", i, i)); i > 0 && before != "" {
			t.Errorf("round %d: a later viewer received %q before the expected lines", i, before)
		}
	}
	if w.Only("proxy") != proxy || w.Only("keeper") != keeper {
		t.Error("the proxy or the keeper was replaced too")
	}
	if status, err := c.Status(w.ctx()); err != nil || status.Supervisor.Keeper == nil ||
		status.Supervisor.Keeper.PID != keeper.PID || status.Supervisor.Keeper.Starts != 4 || status.Supervisor.Keeper.Last != "SIGKILL" {
		t.Errorf("status returns %+v, %v", status, err)
	}
	testkit.Must(t, c.Terminate(w.ctx(), "s", client.End{}))
	if err := <-waited; err != nil {
		t.Errorf("the request that waited for the exit ended with %v", err)
	}
	if m := v.last(); m.Kind != client.Exited || m.Exit.ExitCode != 129 {
		t.Errorf("the viewer received %+v, want the exit 129", m)
	}
}

// If the supervisor and its keeper are killed at the same time, the sessions are lost. Everything else must
// continue, and no request may wait for ever.
func TestBothKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HOLDFAST_DURABLE=off") // otherwise a stored session would be listed as lost
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	proxy, held := w.Only("proxy"), w.Only("supervisor")
	info, err := c.SessionInfo(w.ctx(), "s")
	testkit.Must(t, err)
	waited := w.awaitExit(c, "s")
	v.ask("before")
	w.KillBoth()
	w.Gone(lookup(info.PID)) // the kernel closes its terminal

	// The proxy starts a supervisor for the request. If it has not noticed the end of the link yet, it must
	// answer that the request can be retried.
	testkit.Eventually(t, limit, func() bool {
		_, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: "t", SpawnSpec: echoing, EarlyExit: none})
		if err != nil && (code(err) != protocol.CodeSupervisorUnreachable || !protocol.AsError(err).Retryable) {
			t.Fatal(err)
		}
		return err == nil
	}, "a new session is started")
	two := w.attach(c, "t", client.AttachOptions{})
	two.until("ready\n")
	two.ask("after")
	if now := w.Only("supervisor"); now == held {
		t.Error("the killed supervisor still runs")
	}
	if now := w.Only("proxy"); now != proxy {
		t.Errorf("the proxy was %v; now it is %v", proxy, now)
	}
	select {
	case err := <-waited:
		if c := code(err); c != protocol.CodeSessionNotFound && c != protocol.CodeSupervisorUnreachable {
			t.Errorf("the request that waited for the exit ended with %v", err)
		}
	case <-time.After(limit):
		t.Error("the request that waited for the exit was not answered within the limit")
	}
	if _, err := c.SessionInfo(w.ctx(), "s"); code(err) != protocol.CodeSessionNotFound {
		t.Errorf("info of a lost session: %v", err)
	}
	m, err := v.Receive(limit)
	if err != nil || m.Kind != client.Failed || code(m.Err) != protocol.CodeSessionNotFound {
		t.Errorf("the viewer received %+v, %v; want session_not_found", m, err)
	}
	if _, err := v.Write([]byte("x")); err == nil {
		t.Error("a write to the lost session succeeded")
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
				testkit.Must(t, c.Terminate(ctx, "s", client.End{}))
				want = protocol.CodeExitedEarly
			} else {
				w.KillBoth()
			}
			select {
			case err := <-spawned:
				if code(err) != want {
					t.Errorf("spawn ends with %v, want %q", err, want)
				}
			case <-time.After(limit):
				t.Error("spawn was not answered within the limit")
			}
		})
	}
}

// Sockets without a listening process must not prevent a start.
func TestStaleSockets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must("proxy", "start")
	held, proxy := w.Only("supervisor"), w.Only("proxy")
	w.KillBoth()
	w.Kill(proxy)
	for _, name := range []string{"proxy.sock", "proxy.control.sock", "supervisor.sock"} {
		if _, err := os.Stat(w.Path(name)); err != nil {
			t.Fatalf("%s of the killed program does not exist: %v", name, err)
		}
	}
	if r := w.Run("proxy", "stop"); r.Code != 69 {
		t.Errorf("stop of a killed proxy: %v, want exit 69", r)
	}
	w.Must("proxy", "new", "-d", "--id", "s", "--", "sleep", "1000")
	if w.Only("supervisor") == held || w.Only("proxy") == proxy {
		t.Error("a killed program still runs")
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
			t.Errorf("%d sessions are listed, %v", len(list), err)
		}
	}
}

// If a client has no function that starts a proxy, it must start none, and must report this at once.
// demand: R8
func TestNoProxy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := client.Dial(w.ctx(), client.Options{Dir: w.Dir})
	if !errors.Is(err, client.ErrConnect) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial without a proxy: %v, want ErrConnect at once", err)
	}
	if all := w.Running(""); len(all) > 0 {
		t.Errorf("%v was started", all)
	}
	// A client that was connected must try to reconnect for as long as Redial says, not longer.
	c, err := client.Dial(w.ctx(), client.Options{Dir: w.Dir, Start: w.startProxy})
	testkit.Must(t, err)
	defer c.Close()
	poor, err := client.Dial(w.ctx(), client.Options{Dir: w.Dir, Redial: time.Second}) // Redial also limits the hello of each connection
	testkit.Must(t, err)
	defer poor.Close()
	w.spawn(c, "s", echoing)
	a, err := poor.Attach(w.ctx(), "s", client.AttachOptions{})
	testkit.Must(t, err)
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

// The programs must outlive the shell that has started them, so they must have sessions of their own.
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
	_ = syscall.Kill(-d.PID, syscall.SIGHUP) // as a closed terminal does; no process remains in this group
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
	held.Signal(syscall.SIGHUP) // SIGHUP must not affect the sessions
	keeper.Signal(syscall.SIGHUP)
	w.Must("proxy", "new", "-d", "--id", "s", "--", "sleep", "1000")
	if w.Only("keeper") != keeper || w.Only("supervisor") != held || w.Only("proxy") != proxy {
		t.Error("a program has ended with its launcher")
	}
}

// awaitExit waits for a session's exit in a goroutine, and returns a channel with the error of the wait.
func (w *world) awaitExit(c *client.Client, id protocol.SessionID) <-chan error {
	waited, ctx := make(chan error, 1), w.ctx()
	go func() {
		_, err := c.Wait(ctx, id, -1)
		waited <- err
	}()
	return waited
}
