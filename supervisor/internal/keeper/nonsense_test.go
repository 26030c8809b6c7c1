//go:build linux

package keeper_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/keeper/message"
)

// TestGarbage checks that a supervisor that sends invalid messages loses only the answers to them. Records and
// descriptors of the keeper stay.
func TestGarbage(t *testing.T) {
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 2})
	before := descriptors(w.pid())
	seed := rand.Uint64()
	random := make([]byte, 1<<16)
	for i, r := 0, rand.New(rand.NewPCG(seed, 0)); i < len(random); i++ {
		random[i] = byte(r.Uint32())
	}
	for _, c := range []command{
		{Do: "raw", Bytes: []byte("\x00\x00\x00\x0e{\"op\":\"dance\"}"), N: 5000},
		{Do: "raw", Bytes: []byte("\x00\x00\x00\x02{]"), N: 5000},
		{Do: "rights", Bytes: []byte("\x00\x00\x00\x0c{\"op\":\"put\"}"), N: 200},
		{Do: "raw", Bytes: []byte{0, 4, 0, 0}},
		{Do: "raw", Bytes: make([]byte, 1<<12), N: 1 << 6},
		{Do: "put", ID: "b", N: 1},
		{Do: "put", ID: strings.Repeat("x", message.MaxID+1), N: 1},
		{Do: "put", ID: "c", N: message.MaxFDs + 1},
		{Do: "put", ID: "c", Text: strings.Repeat("x", message.MaxMeta+1)},
		{Do: "raw", Bytes: random},
	} {
		refused := c.Do == "put" && c.ID != "b"
		if e := w.do(c); (e.Error != "") != refused {
			t.Errorf("seed %d: %s %.10s: %q", seed, c.Do, c.ID, e.Error)
		}
	}
	if got := descriptors(w.pid()); got != before+1 {
		t.Errorf("seed %d: %d descriptors, want one more than %d", seed, got, before)
	}
	w.kill(w.supervisor(), unix.SIGKILL)
	if e := w.until("up"); len(e.Records) != 2 {
		t.Errorf("seed %d: %d records afterwards", seed, len(e.Records))
	}
}

// TestFewDescriptors checks that a keeper without free descriptors refuses a record, and loses no other one.
func TestFewDescriptors(t *testing.T) {
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	limit := unix.Rlimit{Cur: uint64(descriptors(w.pid()) + 8), Max: 1 << 10}
	testkit.Must(t, unix.Prlimit(w.pid(), unix.RLIMIT_NOFILE, &limit, nil))
	taken := 0
	for id := "a"; w.do(command{Do: "put", ID: id, N: 3}).Error == ""; id += "a" {
		taken++
	}
	if e := w.do(command{Do: "put", ID: "none"}); e.Error != "" {
		t.Errorf("a record without descriptors: %s", e.Error)
	}
	limit.Cur = 1 << 10
	testkit.Must(t, unix.Prlimit(w.pid(), unix.RLIMIT_NOFILE, &limit, nil))
	w.kill(w.supervisor(), unix.SIGKILL)
	e := w.until("up")
	if len(e.Records) != taken+1 || taken == 0 {
		t.Errorf("%d records, want %d", len(e.Records), taken+1)
	}
	for _, r := range e.Records {
		if r.ID != "none" && len(r.Files) != 3 {
			t.Errorf("%s has %q", r.ID, r.Files)
		}
	}
}

// TestShortage checks that a keeper that has no descriptor left to start a supervisor tries it until it has one, however
// often that fails.
func TestShortage(t *testing.T) {
	cfg := config()
	cfg.Deaths = 2
	w := start(t, cfg, "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	limit := unix.Rlimit{Cur: 3, Max: 1 << 10}
	testkit.Must(t, unix.Prlimit(w.pid(), unix.RLIMIT_NOFILE, &limit, nil))
	w.kill(w.supervisor(), unix.SIGKILL)
	w.logged("supervisor not started")
	limit.Cur = 1 << 10
	testkit.Must(t, unix.Prlimit(w.pid(), unix.RLIMIT_NOFILE, &limit, nil))
	if e := w.until("up"); len(e.Records) != 1 || e.Before.Starts != 2 {
		t.Errorf("after the shortage the supervisor received %+v", e)
	}
}

// TestShortageOfChosen checks that a shortage does not make the keeper forget the program that it was asked to start.
func TestShortageOfChosen(t *testing.T) {
	next := filepath.Join(t.TempDir(), "next")
	cfg := config()
	cfg.Deaths = 2
	w := start(t, cfg, "role=supervisor", "KEEPER_TEST_NEXT="+next)
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	w.follows()
	w.kill(w.supervisor(), unix.SIGKILL)
	w.logged("no supervisor is started for")
	program := copied(t)
	testkit.Must(t, os.WriteFile(next, []byte(program), 0o600))
	// The keeper needs one descriptor to read the path, the same one for the program, and more to start it.
	room, free := 0, 0
	for ; free < 2; room++ {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", w.pid(), room)); err != nil {
			free++
		}
	}
	limit := unix.Rlimit{Cur: uint64(room - 1), Max: 1 << 10}
	testkit.Must(t, unix.Prlimit(w.pid(), unix.RLIMIT_NOFILE, &limit, nil))
	w.kill(w.pid(), unix.SIGHUP)
	w.logged("is started next, by request")
	w.logged("supervisor not started")
	limit.Cur = 1 << 10
	testkit.Must(t, unix.Prlimit(w.pid(), unix.RLIMIT_NOFILE, &limit, nil))
	if e := w.until("up"); e.Program != program || len(e.Records) != 1 {
		t.Errorf("after the shortage the keeper started %+v, want %s", e, program)
	}
}

// TestKeeperDies checks that a supervisor learns that its keeper has died, and continues.
func TestKeeperDies(t *testing.T) {
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	w.kill(w.pid(), unix.SIGKILL)
	w.until("lost")
}
