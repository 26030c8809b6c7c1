package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"
)

// deathsEnv says how often processes are killed.
const deathsEnv = "HOLDFAST_DEATHS"

// Supervisors die by SIGKILL under a load, one after another, some before they have
// taken over what the one before held: no child ends, each byte is printed and typed
// once, and it is known how children ended, those too that did while there was no
// supervisor.
// demand: S10
func TestSupervisorDeaths(t *testing.T) {
	l := newLoad(t)
	n := number(t, deathsEnv, 4)
	keeper, _ := l.pair()
	for i := range n {
		l.supervisorDies(t, keeper)
		if now := l.Only("keeper"); now != keeper {
			t.Fatalf("after death %d the keeper is %d, and was %d", i+1, now.PID, keeper.PID)
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
	case 0: // they end while there is no supervisor
		l.Stop(keeper)
		supervisor.Signal(syscall.SIGKILL)
		l.Gone(supervisor)
		l.quit(ending)
		keeper.Signal(syscall.SIGCONT)
	case 1: // they have ended, and the supervisor does not know
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

// Keepers die by SIGKILL under the same load: the supervisor of each becomes the next
// one, with all that both held.
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
	if l.rnd.IntN(2) == 0 { // they end while nobody sees to them
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
			t.Fatalf("the keeper is %d, and not what was supervisor %d", next.PID, supervisor.PID)
		}
		without.end = time.Now()
		l.without = append(l.without, without)
	}
	l.haveQuit(l.c, ending)
	l.quitters += len(ending)
}

// deathEvery is how often something dies in TestDeathsAtRandom.
const deathEvery = 200 * time.Millisecond

// The keeper, the supervisor and the proxy die in any order, and under what they
// carry each byte comes once, or is counted as missed by who was too slow. Only the
// keeper and the supervisor do not die together: one waits for the other to have all.
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
	names, next := []string{"keeper", "supervisor", "proxy"}, []int{} // each once in three
	deaths := map[string]int{}
	x.enough = make(chan struct{}) // closed when a keeper and a supervisor have died
	x.play(lasts, func() {
		x.every(deathEvery, func() bool {
			if len(next) == 0 {
				next = rnd.Perm(len(names))
			}
			name := names[next[0]]
			if name == "proxy" { // one that never comes to serve would be waited for in vain
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
				t.Errorf("supervisor %d does not have all sessions", supervisor.PID)
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
			// A process takes its time to die, on a busy machine, and the other must not
			// before that.
			return eventually(func() bool { return !victim.Running() })
		})
	})
	x.w.pair()
	x.w.unharmed()
	t.Logf("%d keepers and %d supervisors died in %v", deaths["keeper"], deaths["supervisor"], lasts)
	if deaths["keeper"] == 0 || deaths["supervisor"] == 0 {
		t.Error("there is a part of this that did not happen")
	}
	x.shown()
}

// serves reports whether the proxy answers.
func (x *chaos) serves() bool {
	p, err := x.w.peer("proxy.sock")
	if err != nil {
		return false
	}
	defer func() { _ = p.Close() }()
	return p.greet("") == nil
}

// The supervisor dies at any moment of a handoff of proxies: one of the two serves
// then, and its clients miss nothing.
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
		<-aMoment(rnd, longest)
		w.Kill(w.Only("supervisor"))
		r := <-ended
		now := w.Only("proxy")
		if (r.Code == 0) == (now == proxy) {
			t.Errorf("handoff %d: process %d served, %d does, and it says %v", i, proxy.PID, now.PID, r)
		}
		if r.Code == 0 {
			done++
		}
		s.flow(t, 1)
	}
	w.pair()
	s.finish(t)
	w.unharmed()
	t.Logf("%d handoffs within %v of which a supervisor died; %d were done, the others refused", n, longest, done)
}
