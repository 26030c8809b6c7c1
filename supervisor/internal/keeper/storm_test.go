//go:build linux

package keeper_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/supervisor/internal/vault"
)

const (
	storms  = 30 // rounds; the long mode has 100
	records = 50
)

// A model tells what the keeper must hold: the records that were put and whose deletion has not begun, and the exits
// of their processes that were reported.
type model struct {
	t     *testing.T
	rand  *rand.Rand
	n     int
	must  map[string]bool
	may   map[string]bool // the keeper may hold it: its put or deletion was begun
	exits map[int]uint32
	pids  map[int]string
}

func newModel(t *testing.T) *model {
	seed := uint64(time.Now().UnixNano())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return &model{t: t, rand: rand.New(rand.NewPCG(seed, 0)), must: map[string]bool{}, may: map[string]bool{}, exits: map[int]uint32{}, pids: map[int]string{}}
}

// spawn returns a command that starts a child. It lives for up to 0.3 s, and its id contains its exit code.
func (m *model) spawn() command {
	m.n++
	id := fmt.Sprintf("r%d-%d", m.n, m.n%200)
	m.may[id] = true
	return command{Do: "spawn", ID: id, Text: fmt.Sprintf("sleep 0.%02d; exit %d", m.rand.IntN(30), m.n%200)}
}

// heard updates the model by an event, except up.
func (m *model) heard(e event) {
	switch e.Event {
	case "put":
		m.must[e.ID] = true
	case "deleting":
		delete(m.must, e.ID)
	case "exit":
		m.exit(e.Exit)
	case "did":
		if e.Error != "" {
			m.t.Errorf("%s: %s", e.ID, e.Error)
		}
	}
}

func (m *model) exit(x vault.Exit) {
	id, known := m.pids[x.PID]
	if !known {
		return // the pid is that of a sleep, or of a child whose supervisor died before it reported the pid
	}
	if _, code, _ := strings.Cut(id, "-"); fmt.Sprint(x.Status>>8) != code || x.Status&0xff != 0 {
		m.t.Errorf("%s ended with status %#x", id, x.Status)
	}
	m.exits[x.PID] = x.Status
}

// up compares the records and exits that a supervisor received with the model.
func (m *model) up(e event) {
	m.t.Helper()
	found := map[string]bool{}
	m.pids = map[int]string{}
	for _, r := range e.Records {
		found[r.ID] = true
		if want := []string{content(r.ID, 0), content(r.ID, 1)}; !slices.Equal(r.Files, want) {
			m.t.Fatalf("%s has %q, want %q", r.ID, r.Files, want)
		}
		if !m.must[r.ID] && !m.may[r.ID] {
			m.t.Fatalf("the deleted record %s is there again", r.ID)
		}
		if r.PID != 0 {
			m.pids[r.PID] = r.ID
		}
	}
	for id := range m.must {
		if !found[id] {
			m.t.Fatalf("record %s is lost", id)
		}
	}
	m.must, m.may = found, map[string]bool{}
	told := m.exits
	m.exits = map[int]uint32{}
	for _, x := range e.Exits {
		m.exit(x)
	}
	for pid := range told {
		if _, again := m.exits[pid]; !again && m.pids[pid] != "" {
			m.t.Fatalf("the exit of %s is lost", m.pids[pid])
		}
	}
}

// turn returns the commands of one supervisor: it deletes the records of processes that have ended, and starts as
// many new ones.
func (m *model) turn(e event) (all []command) {
	for pid := range m.exits {
		if id := m.pids[pid]; id != "" {
			m.may[id] = true
			all = append(all, command{Do: "delete", ID: id})
		}
	}
	for _, r := range e.Records {
		if r.PID == 0 { // the process was not started, so no exit will come
			m.may[r.ID] = true
			all = append(all, command{Do: "delete", ID: r.ID})
		}
	}
	for range records - (len(e.Records) - len(all)) {
		all = append(all, m.spawn())
	}
	m.rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// TestStorm kills the supervisor again and again. In half of the rounds it is killed while it puts and deletes. In
// the other part the keeper also executes its program again.
func TestStorm(t *testing.T) {
	for _, execs := range []bool{false, true} {
		t.Run(fmt.Sprintf("execs=%v", execs), func(t *testing.T) {
			rounds := storms
			if os.Getenv("HOLDFAST_LONG") != "" {
				rounds = 100
			}
			if execs {
				rounds /= 3
			}
			storm(t, rounds, execs)
		})
	}
}

func storm(t *testing.T, rounds int, execs bool) {
	w, m := start(t, config(), "role=supervisor"), newModel(t)
	e := w.until("up")
	base, own := descriptors(w.pid()), e.FDs
	for round := range rounds {
		quiet := round%2 == 0
		for _, c := range m.turn(e) {
			c.Start = e.Before.Starts
			for w.send(c); quiet; {
				heard := w.next()
				if m.heard(heard); heard.Event == "did" {
					break
				}
			}
		}
		if execs {
			w.send(command{Do: "exec", Start: e.Before.Starts, ID: "exec", Text: self(t), Argv: []string{self(t), "role=keeper"}})
			for round%4 != 0 { // in every fourth round the exec is cut off by the kill
				heard := w.next()
				if m.heard(heard); heard.ID == "exec" {
					break
				}
			}
		}
		time.Sleep(time.Duration(m.rand.IntN(3000)) * time.Microsecond) // kills at a random moment
		w.kill(e.PID, unix.SIGKILL)
		e = w.next()
		for ; e.Event != "up"; e = w.next() {
			m.heard(e)
		}
		m.up(e)
		if e.Before.Starts != round+2 || e.Before.Last != "SIGKILL" {
			t.Fatalf("round %d: the supervisor before is %+v", round, e.Before)
		}
		files := 0
		for _, r := range e.Records {
			files += len(r.Files)
		}
		if got := descriptors(w.pid()); got > base+files+2 || e.FDs > own+1 {
			t.Fatalf("round %d: keeper has %d descriptors for %d, and %d; the supervisor %d after %d", round, got, files, base, e.FDs, own)
		}
	}
	for w.kill(e.PID, unix.SIGKILL); ; {
		e := w.next()
		if e.Event == "up" {
			m.up(e)
		}
		m.heard(e)
		if len(m.exits) >= len(m.pids) && len(m.pids) > 0 {
			break
		}
	}
	for pid, id := range m.pids {
		if _, there := m.exits[pid]; !there {
			t.Errorf("the exit of %s was not reported", id)
		}
	}
	if pid := w.cmd.Process.Pid; descriptors(pid) < 0 {
		t.Error("the keeper has died")
	}
	t.Logf("%d kills, %d children; the keeper's memory: %v kB", rounds, m.n, memory(t, w.pid()))
}

// memory returns the memory of a process in kB, by name.
func memory(t *testing.T, pid int) map[string]int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	kB := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var n int
		name, rest, _ := strings.Cut(line, ":")
		if _, err := fmt.Sscanf(rest, "%d kB", &n); err == nil && slices.Contains([]string{"Rss", "Pss", "Private_Clean", "Private_Dirty"}, name) {
			kB[name] = n
		}
	}
	return kB
}
