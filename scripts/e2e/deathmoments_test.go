package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// The supervisor or its keeper is killed at a random moment of an upgrade. The old program or the new one
// must continue with all sessions.
// demand: S10
func TestUpgradeWithDeath(t *testing.T) {
	w := newWorld(t, restless...)
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	s := newStream(t, w, "s")
	s.flow(t, 1)
	began := time.Now()
	w.Must("supervisor", "--upgrade")
	longest := time.Since(began) * 5 / 4
	became := 0
	n := number(t, deathsEnv, 8)
	for i := range n {
		ending := w.quitters(s.c, rnd, 1)
		keeper, supervisor := w.pair()
		victim := supervisor
		if rnd.IntN(3) == 0 {
			victim = keeper
		}
		ended := w.Meanwhile(fmt.Sprint("upgrade ", i), "supervisor", "--upgrade")
		<-randomMoment(rnd, longest)
		for _, q := range ending {
			q.Signal(q.sig)
		}
		w.Kill(victim)
		if r := <-ended; r.Code == 0 {
			became++
		}
		w.haveQuit(s.c, ending)
		s.flow(t, 1)
	}
	w.pair()
	w.Must("supervisor", "--upgrade")
	s.flow(t, 1)
	s.finish(t)
	w.unharmed()
	t.Logf("in %d upgrades a process died within %v; %d upgrades reported success", n, longest, became)
}

// atOnce is the number of sessions that begin or end when the supervisor dies.
const atOnce = 4

// The supervisor is killed at a random moment of a session's start. The session must be started exactly once.
// demand: S10
func TestStartWithDeath(t *testing.T) {
	w := newWorld(t, restless...)
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	c := w.dial(client.Options{})
	begun := time.Now()
	w.spawn(c, "first", echoing)
	longest := max(atOnce*time.Since(begun), 10*time.Millisecond)
	n := number(t, deathsEnv, 8)
	for i := range n {
		keeper, supervisor := w.pair()
		victim := supervisor
		if rnd.IntN(4) == 0 {
			victim = keeper
		}
		var wg sync.WaitGroup
		var all [atOnce]*client.Spawned
		for j := range all {
			wg.Go(func() {
				path := w.Path(fmt.Sprintf("begun-%d-%d", i, j))
				spec := shell("echo $$ >>" + path + "; exec cat")
				spec.Env = []string{"E2E_BEGUN=" + path}
				s, err := c.Spawn(w.T.Context(), client.SpawnRequest{SpawnSpec: spec, EarlyExit: none})
				if err != nil {
					t.Errorf("session %d of round %d: %v", j, i, err)
					return
				}
				all[j] = s
			})
		}
		<-randomMoment(rnd, longest)
		w.Kill(victim)
		wg.Wait()
		for j, s := range all {
			if s == nil {
				continue
			}
			w.Adopt(lookup(s.PID))
			path := w.Path(fmt.Sprintf("begun-%d-%d", i, j))
			w.checkStartedOnce(t, c, s, path)
		}
		w.pair()
	}
	w.unharmed()
	list, err := c.List(w.ctx(), "")
	if err != nil || len(list) != 1 {
		t.Errorf("%d sessions are left, %v; want 1", len(list), err)
	}
	t.Logf("%d deaths within %v; %d sessions were started during each", n, longest, atOnce)
}

// checkStartedOnce fails the test unless exactly one child was started for a session and is the session's child.
// Then it ends the session.
func (w *world) checkStartedOnce(t *testing.T, c *client.Client, s *client.Spawned, path string) {
	t.Helper()
	var began []byte
	testkit.Eventually(t, limit, func() bool {
		began, _ = os.ReadFile(path)
		return len(began) > 0
	}, "a child has written its pid")
	var live []int
	one := func() bool { // the environment of a process cannot be read during an exec
		live = nil
		for _, pid := range pids() {
			if slices.Contains(environ(pid), "E2E_BEGUN="+path) && lookup(pid).Running() {
				live = append(live, pid)
			}
		}
		return slices.Equal(live, []int{s.PID})
	}
	if !eventually(one) || string(began) != fmt.Sprintln(s.PID) {
		t.Errorf("session %s has pid %d; the children started were %q, and %v run", s.SessionID, s.PID, began, live)
	}
	if err := c.Terminate(w.ctx(), s.SessionID, client.End{}); err != nil {
		t.Errorf("session %s: %v", s.SessionID, err)
	}
	exit, err := c.Wait(w.ctx(), s.SessionID, limit)
	if err != nil || exit.ExitCode != 129 || exit.Reason != protocol.ReasonUserRequested {
		t.Errorf("exit of session %s: %+v, %v", s.SessionID, exit, err)
	}
	if err := c.Forget(w.ctx(), s.SessionID); err != nil {
		t.Errorf("session %s: %v", s.SessionID, err)
	}
}

// The supervisor is killed at a random moment of a session's end, which is natural or requested. The viewer
// must receive all output and the exit, once.
// demand: S10
func TestEndWithDeath(t *testing.T) {
	w := newWorld(t, restless...)
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	c := w.dial(client.Options{})
	n := number(t, deathsEnv, 8)
	const longest = 10 * time.Millisecond
	for i := range n {
		var views [atOnce]*view
		for j := range views {
			id := fmt.Sprintf("s-%d-%d", i, j)
			w.spawn(c, id, shell(fmt.Sprintf("stty -echo -opost; echo ready; read x; seq 1 2000; exit %d", j)))
			views[j] = w.attach(c, id, client.AttachOptions{})
			views[j].until("ready\n")
		}
		keeper, supervisor := w.pair()
		victim := supervisor
		if rnd.IntN(4) == 0 {
			victim = keeper
		}
		var wg sync.WaitGroup
		for j, v := range views {
			if j < 2 {
				v.say("\n")
				continue
			}
			wg.Go(func() {
				if err := c.Terminate(w.T.Context(), protocol.SessionID(fmt.Sprintf("s-%d-%d", i, j)), client.End{}); err != nil {
					t.Errorf("round %d: %v", i, err)
				}
			})
		}
		<-randomMoment(rnd, longest)
		w.Kill(victim)
		wg.Wait()
		for j, v := range views {
			id := protocol.SessionID(fmt.Sprintf("s-%d-%d", i, j))
			said, code, reason := "", 129, protocol.ReasonUserRequested
			if j < 2 {
				said, code, reason = strings.Join(numbers(2000), "\n")+"\n", j, protocol.ReasonExited
			}
			m := v.last()
			if m.Kind != client.Exited || m.Exit.ExitCode != code || m.Exit.Reason != reason || string(v.buf) != said {
				t.Errorf("%s: the viewer received %+v, exit %+v after %d bytes of %d", id, m, m.Exit, len(v.buf), len(said))
			}
			exit, err := c.Wait(w.ctx(), id, limit)
			if err != nil || exit.ExitCode != code || exit.Reason != reason {
				t.Errorf("%s: exit %+v, %v", id, exit, err)
			}
			if err := c.Forget(w.ctx(), id); err != nil {
				t.Errorf("%s: %v", id, err)
			}
			if _, err := c.SessionInfo(w.ctx(), id); protocol.CodeOf(err) != protocol.CodeSessionNotFound {
				t.Errorf("%s: the forgotten session still exists: %v", id, err)
			}
		}
	}
	w.pair()
	w.unharmed()
	if list, err := c.List(w.ctx(), ""); err != nil || len(list) != 0 {
		t.Errorf("%d sessions are left, %v; want none", len(list), err)
	}
	t.Logf("%d deaths within %v; %d sessions ended during each", n, longest, atOnce)
}

func numbers(n int) (all []string) {
	for i := range n {
		all = append(all, itoa(i+1))
	}
	return all
}

// The keeper must not start a supervisor that has died five times in a minute. The keeper holds all files:
// children run and print until the kernel accepts no more output. When a user sends the keeper SIGHUP, all
// sessions must continue.
// demand: S10
func TestCrashLoop(t *testing.T) {
	w := newWorld(t, bigRing)
	rnd := rand.New(rand.NewPCG(1, 1))
	s := newStream(t, w, "s")
	printed := w.Path("printed")
	loud := w.spawn(s.c, "loud", shell("stty -opost -echo; i=0; while :; do i=$((i+1)); echo line $i; echo $i >"+printed+"; done"))
	v := w.attach(s.c, "loud", client.AttachOptions{})
	v.until("line 1\n")
	child := lookup(loud.PID)
	lines := 1
	for range 2 {
		s.flow(t, 1)
		child.Signal(syscall.SIGSTOP)
		ending := w.quitters(s.c, rnd, 2)
		keeper := w.Only("keeper")
		held := w.lines("supervisor.log", "no supervisor is started for")
		for range 5 {
			_, supervisor := w.pair()
			w.Kill(supervisor)
		}
		testkit.Eventually(t, limit, func() bool { return w.lines("supervisor.log", "no supervisor is started for") > held }, "the keeper starts no supervisor")
		before := counted(printed)
		child.Signal(syscall.SIGCONT)
		w.quit(ending)
		at := before
		testkit.Eventually(t, limit, func() bool {
			was := at
			at = counted(printed)
			state, _ := testkit.Stat(loud.PID)
			return at > before+100 && at == was && state == "S"
		}, "the child has printed until the kernel accepts no more")
		if left := w.Running("supervisor"); len(left) > 0 || !keeper.Running() {
			t.Errorf("running supervisors: %v, want none; the keeper is %v", left, keeper)
		}
		t.Logf("%d lines were printed while there was no supervisor", at-before)

		keeper.Signal(syscall.SIGHUP)
		now, _ := w.pair()
		if now != keeper {
			t.Errorf("the keeper was %v; now it is %v", keeper, now)
		}
		w.haveQuit(s.c, ending)
		for last := at + 100; lines < last; {
			lines++
			if before := v.until("\n"); before != fmt.Sprint("line ", lines) {
				t.Fatalf("line %d is %q", lines, before)
			}
		}
		s.flow(t, 1)
	}
	s.finish(t)
	w.unharmed()
}

// counted returns the number in a file that a child writes all the time.
func counted(path string) (n int) {
	b, _ := os.ReadFile(path)
	_, _ = fmt.Sscan(string(b), &n)
	return n
}

// startedBy limits the time of a session's start while the keeper is stopped. It is long because the machine
// may be busy.
const startedBy = 10 * time.Second

// A stopped keeper must delay no session. When it continues, it must hold the files of the sessions that were
// started meanwhile.
// demand: S10
func TestStoppedKeeper(t *testing.T) {
	w := newWorld(t, restless...)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := newStream(t, w, "s")
	keeper, supervisor := w.pair()
	w.Stop(keeper)
	t.Cleanup(func() { keeper.Signal(syscall.SIGCONT) })
	s.flow(t, 1000)
	begun := time.Now()
	v := w.echo(s.c, "new")
	took := time.Since(begun)
	if took > startedBy {
		t.Errorf("starting a session beside a stopped keeper took %v", took)
	}
	v.ask("it works\n")
	ending := w.quitters(s.c, rand.New(rand.NewPCG(seed, 0)), 1)
	w.quit(ending)
	w.haveQuit(s.c, ending)
	s.flow(t, 1)
	if !keeper.Running() || !supervisor.Running() {
		t.Error("the keeper or the supervisor has ended")
	}
	keeper.Signal(syscall.SIGCONT)
	s.flow(t, 1)
	w.Kill(supervisor)
	if now, _ := w.pair(); now != keeper {
		t.Errorf("the keeper was %v; now it is %v", keeper, now)
	}
	v.ask("it works on\n")
	s.flow(t, 1)
	s.finish(t)
	w.unharmed()
	t.Logf("starting a session took %v", took)
}
