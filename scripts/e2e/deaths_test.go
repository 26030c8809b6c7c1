package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"
)

// deathsEnv names the variable that says how often processes are killed.
const deathsEnv = "HOLDFAST_DEATHS"

// Supervisors are killed under load, one after another, some before they have adopted all sessions of their
// predecessor. No child may end, each byte must be printed and typed once, and the exits of children must be
// known, even of those that ended while no supervisor ran.
// demand: S10
func TestSupervisorDeaths(t *testing.T) {
	l := newLoad(t)
	n := number(t, deathsEnv, 4)
	keeper, _ := l.pair()
	for i := range n {
		l.supervisorDies(t, keeper)
		if now := l.Only("keeper"); now != keeper {
			t.Fatalf("after death %d the keeper is %d, want %d", i+1, now.PID, keeper.PID)
		}
	}
	l.pair()
	l.end(t)
	t.Logf("%d supervisors died", n)
}

func (l *load) supervisorDies(t *testing.T, keeper process) {
	t.Helper()
	if l.rnd.IntN(4) == 0 {
		l.Kill(l.Only("supervisor"))
		return
	}
	l.flow(t)
	ending := l.world.quitters(l.c, l.rnd, 2)
	_, supervisor := l.pair()
	switch l.rnd.IntN(3) {
	case 0: // the quitters end while no supervisor runs
		l.Stop(keeper)
		supervisor.Signal(syscall.SIGKILL)
		l.Gone(supervisor)
		l.quit(ending)
		keeper.Signal(syscall.SIGCONT)
	case 1: // the quitters end, and the stopped supervisor does not notice
		l.Stop(supervisor)
		l.quit(ending)
		l.Kill(supervisor)
	case 2:
		for _, q := range ending {
			q.Signal(q.sig)
		}
		without := span{begin: time.Now()}
		l.Kill(supervisor)
		l.pair()
		without.end = time.Now()
		l.without = append(l.without, without)
	}
	l.haveQuit(l.c, ending)
	l.quitters += len(ending)
}

// Keepers are killed under the same load. The supervisor of each must execute itself as the next keeper, with
// all files that both held.
// demand: S10
func TestKeeperDeaths(t *testing.T) {
	l := newLoad(t)
	n := number(t, deathsEnv, 4)
	for range n {
		l.keeperDies(t)
	}
	l.pair()
	l.end(t)
	t.Logf("%d keepers died", n)
}

func (l *load) keeperDies(t *testing.T) {
	t.Helper()
	if l.rnd.IntN(4) == 0 {
		keeper, _ := l.pair()
		l.Kill(keeper)
		return
	}
	l.flow(t)
	ending := l.world.quitters(l.c, l.rnd, 2)
	keeper, supervisor := l.pair()
	if l.rnd.IntN(2) == 0 { // the quitters end while neither process can notice
		l.Stop(supervisor)
		l.Kill(keeper)
		l.quit(ending)
		supervisor.Signal(syscall.SIGCONT)
	} else {
		for _, q := range ending {
			q.Signal(q.sig)
		}
		without := span{begin: time.Now()}
		l.Kill(keeper)
		if next, _ := l.pair(); next.PID != supervisor.PID {
			t.Fatalf("the keeper is %d, want the former supervisor %d", next.PID, supervisor.PID)
		}
		without.end = time.Now()
		l.without = append(l.without, without)
	}
	l.haveQuit(l.c, ending)
	l.quitters += len(ending)
}

// deathEvery is the time between two deaths in TestDeathsAtRandom.
const deathEvery = 200 * time.Millisecond

// Keeper, supervisor and proxy are killed in random order. Each byte must come once, or must be counted as
// missed by a client that was too slow. Keeper and supervisor are never killed together: the test waits until
// one has received all files from the other.
// demand: S10
func TestDeathsAtRandom(t *testing.T) {
	lasts := 3 * time.Second
	if s := os.Getenv("HOLDFAST_DEATHS_TIME"); s != "" {
		var err error
		if lasts, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	x := newChaos(t, restless[1:]...)
	x.harsh = true
	_, first := x.w.pair()
	rnd := rand.New(rand.NewPCG(x.seed, 1<<32))
	names, next := []string{"keeper", "supervisor", "proxy"}, []int{} // each once in three deaths
	deaths := map[string]int{}
	x.enough = make(chan struct{}) // closed when a keeper and a supervisor have died
	x.play(lasts, func() {
		x.every(deathEvery, func() bool {
			if len(next) == 0 {
				next = rnd.Perm(len(names))
			}
			name := names[next[0]]
			if name == "proxy" { // a proxy that is killed before it serves might never serve
				if !x.serves() {
					return true
				}
				next = next[1:]
				return x.killProxy()
			}
			keeper, supervisor, ok := x.w.paired()
			if !ok {
				return true
			}
			pid, all := fmt.Sprintf(`"pid":%d,`, supervisor.PID), fmt.Sprintf(`"sessions":%d,`, rooms)
			if supervisor != first && x.w.lines("supervisor.log", pid, all) == 0 {
				t.Errorf("supervisor %d has not adopted all sessions", supervisor.PID)
				return false
			}
			next = next[1:]
			if deaths[name]++; deaths[name] == 1 && len(deaths) == 2 {
				close(x.enough)
			}
			victim := supervisor
			if name == "keeper" {
				victim = keeper
			}
			victim.Signal(syscall.SIGKILL)
			// On a busy machine a killed process takes time to end. The other process must not die before
			// that.
			return eventually(func() bool { return !victim.Running() })
		})
	})
	x.w.pair()
	x.w.unharmed()
	t.Logf("%d keepers and %d supervisors died in %v", deaths["keeper"], deaths["supervisor"], lasts)
	if deaths["keeper"] == 0 || deaths["supervisor"] == 0 {
		t.Error("no keeper or no supervisor died")
	}
	x.shown()
}

// serves reports whether the proxy answers hello.
func (x *chaos) serves() bool {
	p, err := x.w.peer("proxy.sock")
	if err != nil {
		return false
	}
	defer func() { _ = p.Close() }()
	return p.greet("") == nil
}

// The supervisor is killed at a random moment of a handoff between proxies. One of the two proxies must serve
// afterwards, and its clients must miss nothing.
// demand: S9, S10
func TestHandoffWithDeath(t *testing.T) {
	w := newWorld(t, restless...)
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	s := newStream(t, w, "s")
	s.flow(t, 1)
	began := time.Now()
	w.handOff()
	longest := time.Since(began) * 5 / 4
	done := 0
	n := number(t, deathsEnv, 4)
	for i := range n {
		w.pair()
		proxy := w.Only("proxy")
		ended := w.Meanwhile(fmt.Sprint("handoff ", i), "proxy", "--handoff")
		<-randomMoment(rnd, longest)
		w.Kill(w.Only("supervisor"))
		r := <-ended
		now := w.Only("proxy")
		if (r.Code == 0) == (now == proxy) {
			t.Errorf("handoff %d: process %d served before it, %d serves now, and the command's result is %v", i, proxy.PID, now.PID, r)
		}
		if r.Code == 0 {
			done++
		}
		s.flow(t, 1)
	}
	w.pair()
	s.finish(t)
	w.unharmed()
	t.Logf("in %d handoffs a supervisor died within %v; %d handoffs succeeded, the others were refused", n, longest, done)
}
