//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A storm is a world whose programs are killed, and whose supervisor is upgraded, at times to programs that
// fail at a chosen step (supervisor/fault_on.go).
type storm struct {
	*world
	rnd       *rand.Rand
	good, bad string // directories of programs
	shells    []process
	kills     map[string]int
	upgrades  map[string]int // by the fault of the new program
	ways      map[string]int // the number of recoveries of each kind
}

// failSteps are the steps at which a program fails; failHows and hangHows are the kinds of failures. A trial
// that hangs takes the whole time of a trial, so only the long mode includes the step trial.
var (
	failSteps = []string{"main", "run", "adopted", "serves", "ready"}
	failHows  = []string{"exit", "panic", "kill"}
	hangHows  = []string{"hang", "stop"}
)

// prints is the script of each session.
const prints = "while :; do date; sleep 0.2; done"

// TestKillStorm kills keeper, supervisor and proxy in random order, between upgrades, of which one in five is
// to a program that fails. No shell may end, there may never be two keepers, and the recovery that the
// commands describe must work. HOLDFAST_LONG=1 and HOLDFAST_KILLS=1000 make it long; HOLDFAST_STORM_SEED=N
// repeats a run.
//
// Keeper and supervisor are never killed at the same time, because without systemd's store no process would
// hold the terminals then. Each death waits until both have all files again.
// demand: S10
func TestKillStorm(t *testing.T) {
	t.Parallel()
	seed := uint64(number(t, "HOLDFAST_STORM_SEED", int(rand.Uint32())))
	t.Logf("HOLDFAST_STORM_SEED=%d", seed)
	w := newWorld(t, "HOLDFAST_CRASH_LIMIT=3", "HOLDFAST_CRASH_PAUSE=10ms", "HOLDFAST_START_TIMEOUT=2s", "HOLDFAST_SPAWN_RATE=1000")
	s := &storm{world: w, rnd: rand.New(rand.NewPCG(seed, 0)), good: w.Bin,
		bad:   testkit.BuildTagged(t, "faults", "holdfast/proxy", "holdfast/supervisor"),
		kills: map[string]int{}, upgrades: map[string]int{}, ways: map[string]int{}}
	// The limit is what a successor needs to adopt all sessions, so that one more session must be refused.
	const sessions = 8
	s.startLimited(64 + 14*sessions)
	for i := range sessions - 1 {
		s.Must("proxy", "new", "-d", "--id", fmt.Sprint("s", i+1), "--", "sh", "-c", prints)
	}
	if r := s.world.Run("proxy", "new", "-d", "--", "cat"); r.Code == 0 || !strings.Contains(r.Errout, "RLIMIT_NOFILE") {
		t.Errorf("new beyond the number of sessions that a successor can adopt: %v", r)
	}
	for i := range sessions {
		p := lookup(s.info(fmt.Sprint("s", i)).PID)
		s.shells = append(s.shells, p)
		w.Adopt(p)
	}
	if r, keeper := s.world.Run("supervisor"), s.Only("keeper"); r.Code != 69 || !strings.Contains(r.Errout, fmt.Sprintf("process %d", keeper.PID)) {
		t.Errorf("start of a second keeper: %v, want 69 and the pid of the first, %d", r, keeper.PID)
	}
	n := number(t, "HOLDFAST_KILLS", 15)
	for i := 0; i < n && !t.Failed(); i++ {
		if i%3 == 0 {
			s.upgrade(i%15 == 0)
		}
		s.awaitWhole()
		s.killOne([]string{"keeper", "supervisor", "proxy"}[s.rnd.IntN(3)])
		s.check(i)
		if (i+1)%100 == 0 {
			t.Logf("after %d: %v; %v; %v", i+1, s.kills, s.upgrades, s.ways)
		}
	}
	s.fault("")
	s.awaitWhole()
	s.check(n)
	s.Must("supervisor", "stop", "--sessions=end")
	for _, path := range []string{"supervisor.crash", "keeper.crash"} {
		_ = os.Truncate(s.Path(path), 0) // they contain the panics of the faults
	}
	t.Logf("%d kills: %v; upgrades: %v; ways back: %v", n, s.kills, s.upgrades, s.ways)
}

// startLimited starts the daemons and the first session with a limit of the number of open files.
func (s *storm) startLimited(files int) {
	s.T.Helper()
	cmd := s.Command("proxy", "new", "-d", "--id", "s0", "--", "sh", "-c", prints)
	cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	if r, err := s.Finish(cmd); err != nil || r.Code != 0 {
		s.T.Fatal(r, err)
	}
}

// fault makes the programs of the bad directory fail as STEP=HOW says, from now on.
func (s *storm) fault(how string) {
	s.T.Helper()
	testkit.Must(s.T, os.WriteFile(s.Path("fault"), []byte(how), 0o600))
}

// upgrade upgrades the supervisor to the good program, or to the bad one with a random fault.
func (s *storm) upgrade(bad bool) {
	s.T.Helper()
	s.awaitWhole()
	if !bad {
		s.fault("")
		if r := s.runFrom(s.good, "supervisor", "--upgrade"); r.Code != 0 {
			s.T.Errorf("upgrade to a good program: %v", r)
		}
		s.upgrades["good"]++
		return
	}
	steps, hows := failSteps, append(failHows, hangHows...)
	if isLong {
		steps = append(steps, "trial")
	}
	how := steps[s.rnd.IntN(len(steps))] + "=" + hows[s.rnd.IntN(len(hows))]
	if s.rnd.IntN(8) == 0 {
		how = "ready=panic1s"
	}
	s.fault(how)
	r := s.runFrom(s.bad, "supervisor", "--upgrade")
	s.upgrades[how]++
	if r.Code == 0 && !strings.HasPrefix(how, "ready=") { // these faults may happen after the answer
		s.T.Errorf("upgrade to a program with the fault %s: %v", how, r)
	}
}

// awaitWhole returns when a supervisor serves all sessions. If none does, awaitWhole recovers as the commands describe.
func (s *storm) awaitWhole() {
	s.T.Helper()
	for range 10 {
		if r := s.world.Run("proxy", "status", "--json"); r.Code == 0 && s.serving(r.Out) {
			return
		}
		s.recoverSupervisor()
	}
	s.T.Fatalf("no recovery after 10 attempts: %v", s.world.Run("proxy", "status"))
}

// serving reports whether status is the answer of a supervisor that has all sessions and whose parent is a
// keeper with all sessions.
func (s *storm) serving(status string) bool {
	var st client.Status
	if json.Unmarshal([]byte(status), &st) != nil || st.Supervisor == nil || st.Supervisor.Keeper == nil {
		return false
	}
	parent := lookup(st.Supervisor.PID).Parent()
	return st.Supervisor.Sessions == len(s.shells) && st.Supervisor.Keeper.Sessions >= len(s.shells) && st.Supervisor.Keeper.PID == parent
}

var toKill = regexp.MustCompile(`kill -9 (\d+)`)

// recoverSupervisor runs supervisor --upgrade with the good program, and follows the advice of its error.
func (s *storm) recoverSupervisor() {
	s.T.Helper()
	r := s.runFrom(s.good, "supervisor", "--upgrade")
	switch m := toKill.FindStringSubmatch(r.Errout); {
	case m != nil:
		pid, _ := strconv.Atoi(m[1])
		s.Kill(lookup(pid))
		s.ways["kill -9 of one that does not answer"]++
	case strings.Contains(r.Out, "is told to start"):
		s.ways["the keeper is told"]++
	case r.Code == 0:
		s.ways["upgrade"]++
	default:
		s.ways["again"]++
	}
}

func (s *storm) killOne(name string) {
	s.T.Helper()
	var victim process
	switch running := s.Running(name); {
	case len(running) == 1:
		victim = running[0]
	case name == "proxy" && len(running) == 0: // no command has started a proxy yet
		return
	default:
		s.T.Logf("%d of %s run", len(running), name)
		return
	}
	victim.Signal(syscall.SIGKILL)
	s.Gone(victim)
	s.kills[name]++
}

// check fails the test if a shell has ended, or if two keepers stay. A second keeper that finds the lock
// taken holds no file and ends without intervention.
func (s *storm) check(i int) {
	s.T.Helper()
	for k, p := range s.shells {
		if !p.Running() {
			s.T.Errorf("after kill %d: the shell of s%d, process %d, has ended", i, k, p.PID)
		}
	}
	if _, err := os.Lstat(s.Path("supervisor.sock")); err != nil {
		s.T.Errorf("after kill %d: %v", i, err)
	}
	if !eventually(func() bool { return len(s.Running("keeper")) <= 1 }) {
		s.T.Errorf("after kill %d: the keepers %v run", i, s.Running("keeper"))
	}
}
