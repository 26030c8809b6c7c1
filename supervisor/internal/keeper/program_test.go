//go:build linux

package keeper_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/keeper"
	"holdfast/supervisor/internal/vault"
)

// copied returns the path of a copy of this program.
func copied(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(self(t))
	testkit.Must(t, err)
	path := filepath.Join(t.TempDir(), "other")
	testkit.Must(t, os.WriteFile(path, text, 0o755))
	return path
}

// The keeper starts a program that was ready again, even if its path now leads to another program.
func TestLastGoodProgram(t *testing.T) {
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	replace(t, w.prog, []byte("#!/bin/sh\nkill -SEGV $$\n"))
	for starts := 2; starts < 10; starts++ {
		w.kill(w.supervisor(), unix.SIGKILL)
		if e := w.until("up"); len(e.Records) != 1 || e.Before.Starts != starts || e.Before.Last != "SIGKILL" {
			t.Errorf("at start %d the supervisor received %+v", starts, e)
		}
		w.until("ready")
	}
}

// If the good program is not ready twice in a row, the keeper starts the program at its path. If that is ready, it is
// the good program from then on.
func TestGoodProgramTurnsBad(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	w := start(t, config(), "role=supervisor", "KEEPER_TEST_BAD="+bad)
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	text, err := os.ReadFile(self(t))
	testkit.Must(t, err)
	replace(t, w.prog, text)
	testkit.Must(t, os.WriteFile(bad, []byte(self(t)), 0o600))
	w.kill(w.supervisor(), unix.SIGKILL)
	e := w.until("up")
	if e.Program != w.prog || e.Before.Starts != 4 || e.Before.Last != "exit code 3" || len(e.Records) != 1 {
		t.Errorf("after two starts of the bad program: %+v", e)
	}
	w.until("ready")
	replace(t, w.prog, []byte("no program"))
	w.kill(e.PID, unix.SIGKILL)
	if e := w.until("up"); e.Before.Starts != 5 || e.Before.Last != "SIGKILL" {
		t.Errorf("after its death the supervisor received %+v", e)
	}
}

// TestSupervisorExec checks that a supervisor may execute another program with other arguments and keep its
// connection to the keeper. If it dies, the keeper starts the new program.
func TestSupervisorExec(t *testing.T) {
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	other := copied(t)
	argv := []string{"its name", "role=supervisor", "again"}
	before := w.supervisor()
	w.send(command{Do: "reexec", Text: other, Argv: argv})
	if e := w.until("up"); e.PID != before || e.Program != other {
		t.Errorf("want the same process with the other program: %+v", e)
	}
	w.until("ready")
	if e := w.do(command{Do: "put", ID: "b", N: 2}); e.Error != "" {
		t.Error(e.Error)
	}
	w.send(command{Do: "orphans", N: 1})
	if e := w.until("exit"); e.Exit.Status != 3<<8 {
		t.Errorf("got %+v", e)
	}
	if e := w.do(command{Do: "exec", Text: self(t), Argv: []string{self(t), "role=keeper"}}); e.Error != "" {
		t.Error(e.Error) // the next keeper must also know the program
	}
	w.kill(w.supervisor(), unix.SIGKILL)
	e := w.until("up")
	if e.PID == before || e.Program != other || !slices.Equal(e.Args, argv) || len(e.Records) != 2 || e.Before.Starts != 2 {
		t.Errorf("after the death of the supervisor: %+v", e)
	}
}

// become makes the supervisor execute another program, and returns when that is ready.
func (w *world) become(program string) (argv []string) {
	w.t.Helper()
	argv = []string{program, "role=supervisor"}
	w.send(command{Do: "reexec", Text: program, Argv: argv})
	if e := w.until("up"); e.Program != program {
		w.t.Fatalf("the supervisor runs %+v", e)
	}
	w.until("ready")
	return argv
}

// follows kills the supervisor, and returns the first event of the next one when that is ready.
func (w *world) follows() event {
	w.t.Helper()
	w.kill(w.supervisor(), unix.SIGKILL)
	e := w.until("up")
	w.until("ready")
	return e
}

// TestBackToTheGoodProgram checks that the keeper returns to the program before if a new program dies again and again
// soon after it was ready.
func TestBackToTheGoodProgram(t *testing.T) {
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	other := copied(t)
	for range 2 {
		w.become(other)
		if e := w.follows(); e.Program != other { // one death may have another cause
			t.Errorf("after one death: %+v", e)
		}
		for range 3 {
			if e := w.follows(); e.Program != self(t) || len(e.Records) != 1 {
				t.Errorf("after more than one death: %+v", e)
			}
		}
	}
}

func TestProgramThatServedWell(t *testing.T) {
	cfg := config()
	cfg.GoodTime = time.Second // must exceed the time from the readiness of a program to its death in follows, on a busy machine too
	w := start(t, cfg, "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	other := copied(t)
	w.become(other)
	w.logged("accepted: it has served")
	for range 5 {
		if e := w.follows(); e.Program != other {
			t.Fatalf("although the program has served for GoodTime, the keeper started %+v", e)
		}
	}
	w.become(self(t))
	for range 2 {
		w.follows()
	}
	if e := w.follows(); e.Program != other {
		t.Errorf("after the deaths of a newer program the keeper started %+v", e)
	}
}

// TestChosenProgram checks that a keeper that has given up starts, after SIGHUP, the program that Config.Chosen
// returns.
func TestChosenProgram(t *testing.T) {
	next := filepath.Join(t.TempDir(), "next")
	w := start(t, keeper.Config{Backoff: time.Microsecond, Deaths: 2}, "role=supervisor", "KEEPER_TEST_NEXT="+next)
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	w.follows()
	w.kill(w.supervisor(), unix.SIGKILL)
	w.logged("no supervisor is started for")
	for _, program := range []string{"/does/not/exist", copied(t)} {
		testkit.Must(t, os.WriteFile(next, []byte(program), 0o600))
		w.kill(w.pid(), unix.SIGHUP)
		e := w.until("up")
		w.until("ready")
		if want := map[bool]string{true: program, false: self(t)}[program[0:5] != "/does"]; e.Program != want || len(e.Records) != 1 || e.Args[0] == "" {
			t.Errorf("with the chosen program %s the keeper started %+v", program, e)
		}
		w.follows()
		w.kill(w.supervisor(), unix.SIGKILL)
		if program[0:5] == "/does" {
			w.logged("no supervisor is started for")
		}
	}
}

// TestNotServing checks that a program that does not become ready in time is ended and replaced. A program that is
// ready is not ended, even if it does not react.
func TestNotServing(t *testing.T) {
	cfg := config()
	cfg.StartTime = time.Second // with the race detector, a good program needs 200 ms if the machine is loaded
	w := start(t, cfg, "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	shell, err := exec.LookPath("sh")
	testkit.Must(t, err)
	for _, how := range []string{"exec sleep 1000", "kill -STOP $$"} {
		pid := w.supervisor()
		w.send(command{Do: "reexec", Text: shell, Argv: []string{"sh", "-c", how}})
		e := w.until("up")
		if e.PID == pid || e.Program != self(t) || e.Before.Last != "did not serve in time and was ended" || len(e.Records) != 1 {
			t.Errorf("after %s: %+v", how, e)
		}
		w.until("ready")
	}
	pid := w.supervisor()
	w.kill(pid, unix.SIGSTOP)
	time.Sleep(2 * cfg.StartTime) // a test of a time-out has to wait for it
	w.kill(pid, unix.SIGCONT)
	if e := w.do(command{Do: "put", ID: "b", N: 1}); e.PID != pid || e.Error != "" {
		t.Errorf("a supervisor that was ready and stopped: %+v", e)
	}
}

// TestGettingOn checks that a supervisor that needs long before it is ready is not ended while it reports progress.
func TestGettingOn(t *testing.T) {
	cfg := config()
	cfg.StartTime = time.Second // as in TestNotServing, because the start of the program counts as well
	w := start(t, cfg, "role=supervisor", "KEEPER_TEST_READY=no")
	w.until("ready")
	pid := w.supervisor()
	for range 12 { // longer than StartTime in all
		time.Sleep(cfg.StartTime / 10)
		if e := w.do(command{Do: "alive"}); e.PID != pid || e.Error != "" {
			t.Fatalf("%+v", e)
		}
	}
}

func TestGivenRecords(t *testing.T) {
	w := start(t, config(), "role=supervisor", "KEEPER_TEST_RECORDS=3")
	for range 2 {
		e := w.until("up")
		if len(e.Records) != 3 {
			t.Fatalf("got %+v", e)
		}
		for _, r := range e.Records {
			if r.Meta != "given" || !slices.Equal(r.Files, []string{content(r.ID, 0)}) {
				t.Errorf("got %+v", r)
			}
		}
		w.until("ready")
		w.kill(e.PID, unix.SIGKILL)
	}
}

// TestHandover checks that a supervisor whose keeper has died becomes the keeper, and starts a new supervisor.
func TestHandover(t *testing.T) {
	w := start(t, config(), "role=supervisor", "KEEPER_TEST_KEEPS=yes")
	w.until("ready")
	gate := filepath.Join(t.TempDir(), "gate")
	testkit.Must(t, unix.Mkfifo(gate, 0o600))
	for _, c := range []command{{Do: "put", ID: "a", N: 1}, {Do: "spawn", ID: "b", Text: "cat " + gate + "; exit 7"}} {
		if e := w.do(c); e.Error != "" {
			t.Fatal(e.Error)
		}
	}
	first, old := w.pid(), w.supervisor()
	w.kill(first, unix.SIGKILL)
	w.until("lost")
	w.keeper = old
	e := w.until("up")
	if e.PID == old || e.Before.Starts != 2 || e.Before.Last == "" || len(e.Records) != 2 || e.Program != self(t) {
		t.Fatalf("the next supervisor received %+v", e)
	}
	for i, r := range e.Records {
		if want := content(r.ID, 0); len(r.Files) != i+1 || r.Files[0] != want {
			t.Errorf("%s has %q", r.ID, r.Files)
		}
	}
	pid := e.Records[1].PID
	if all := children(old); !slices.Contains(all, pid) || !slices.Contains(all, e.PID) {
		t.Errorf("the keeper %d has the children %v, want %d and %d", old, all, pid, e.PID)
	}
	w.until("ready")
	if err := os.WriteFile(gate, nil, 0); err != nil { // lets the child end
		t.Fatal(err)
	}
	want := vault.Exit{PID: pid, Status: 7 << 8}
	if e := w.until("exit"); e.Exit != want {
		t.Errorf("got %+v, want %+v", e.Exit, want)
	}
	w.kill(e.PID, unix.SIGKILL)
	if e := w.until("up"); len(e.Records) != 2 || !slices.Contains(e.Exits, want) || e.Before.Starts != 3 {
		t.Errorf("after the death of the new supervisor: %+v", e)
	}
}
