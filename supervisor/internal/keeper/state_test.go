//go:build linux

package keeper

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/keeper/message"
)

// TestGoldenManifest checks the manifest of version 1. Fields may be added; these bytes never change.
func TestGoldenManifest(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := state{
		Version: 1, Entries: map[string]*Entry{"a": {PID: 42, Meta: []byte{0, 1, 255}, FDs: []int{7, 8}}, "b": {}},
		Exits: []exit{{PID: 42, Status: 7 << 8, At: at}}, Starts: 2, Last: "SIGKILL", Status: 9,
		Supervisor: &child{PID: 41, Socket: 5, Ready: true, Quit: true, Unsent: []byte{1, 2}}, Good: 12, Answer: 5,
	}
	testkit.GoldenJSON(t, "testdata/v1/manifest.json", s)
	fd, err := unix.Open("testdata/v1/manifest.json", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	var back state
	err = back.load(fd)
	if got, want := asJSON(t, back), asJSON(t, s); err != nil || got != want {
		t.Errorf("read back %s, %v; want %s", got, err, want)
	}
}

func asJSON(t *testing.T, v any) string {
	text, err := json.Marshal(v)
	testkit.Must(t, err)
	return string(text)
}

func newState() *state { return &state{Entries: map[string]*Entry{}} }

// TestRecords compares the records of a state with a map, for random puts, deletions and changes of the pid.
func TestRecords(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	s, model := newState(), map[string]Entry{}
	for range 10_000 {
		m := Entry{ID: fmt.Sprint(r.IntN(30)), PID: 1<<30 + r.IntN(10), Meta: make([]byte, r.IntN(100))}
		_, known := model[m.ID]
		switch r.IntN(4) {
		case 0, 1:
			if err := s.putEntry(&Entry{ID: m.ID, PID: m.PID, Meta: m.Meta}); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			model[m.ID] = m
		case 2:
			if known {
				s.deleteEntry(m.ID)
			}
			delete(model, m.ID)
		case 3:
			if known {
				s.setPID(s.Entries[m.ID], m.PID)
				m.Meta = model[m.ID].Meta
				model[m.ID] = m
			}
		}
		if len(s.Entries) != len(model) {
			t.Fatalf("seed %d: %d records, want %d", seed, len(s.Entries), len(model))
		}
		for id, want := range model {
			if got := s.Entries[id]; got == nil || got.PID != want.PID || len(got.Meta) != len(want.Meta) {
				t.Fatalf("seed %d: %s is %+v, want %+v", seed, id, got, want)
			}
		}
	}
}

func TestLimits(t *testing.T) {
	s := newState()
	big := make([]byte, message.MaxMeta)
	for name, r := range map[string]*Entry{
		"no id": {}, "long id": {ID: strings.Repeat("x", message.MaxID+1)},
		"meta": {ID: "a", Meta: make([]byte, message.MaxMeta+1)}, "pid": {ID: "a", PID: -1},
	} {
		if s.putEntry(r) == nil {
			t.Errorf("an entry with a wrong %s was accepted", name)
		}
	}
	for i := range message.MaxMetaTotal / message.MaxMeta {
		if err := s.putEntry(&Entry{ID: fmt.Sprint(i), Meta: big}); err != nil {
			t.Fatal(i, err)
		}
	}
	if s.putEntry(&Entry{ID: "a", Meta: big[:1]}) == nil {
		t.Error("more than MaxMetaTotal bytes were accepted")
	}
	if err := s.putEntry(&Entry{ID: "0", Meta: big}); err != nil {
		t.Errorf("a put that replaces an entry of the same size: %v", err)
	}
	for i := len(s.Entries); i < message.MaxRecords; i++ {
		if err := s.putEntry(&Entry{ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(i, err)
		}
	}
	if s.putEntry(&Entry{ID: "a"}) == nil {
		t.Error("more than MaxRecords entries were accepted")
	}
}

// TestExitsKept checks that exits of processes with a record are always kept, and others while there is room.
func TestExitsKept(t *testing.T) {
	s := newState()
	const first = 1 << 30 // above all pids
	testkit.Must(t, s.putEntry(&Entry{ID: "a", PID: first}))
	const last = first + maxExits*5/4
	for pid := first; pid <= last; pid++ {
		s.recordExit(pid, 7<<8)
	}
	if n := len(s.Exits); n > maxExits || n < maxExits/2 || s.Exits[0].PID != first || s.Exits[n-1].PID != last {
		t.Errorf("%d exits, from %+v on", n, s.Exits[0])
	}
	if s.deleteEntry("a"); s.Exits[0].PID == first {
		t.Errorf("after delete: %+v", s.Exits[0])
	}
	// If a record names a pid that is in use, the exit of an earlier process with that pid must go.
	n := len(s.Exits)
	s.recordExit(os.Getpid(), 7<<8)
	if err := s.putEntry(&Entry{ID: "a", PID: os.Getpid()}); err != nil || len(s.Exits) != n {
		t.Errorf("a process that runs has an exit, %v", err)
	}
}
