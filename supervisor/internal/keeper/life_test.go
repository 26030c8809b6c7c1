//go:build linux

package keeper_test

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/keeper"
	"holdfast/supervisor/internal/keeper/message"
)

func TestRefusal(t *testing.T) {
	w := start(t, keeper.Config{}, "role=refuse")
	if got := w.exit(); got != 75 {
		t.Errorf("exit code %d, want the supervisor's 75", got)
	}
}

func TestNoProgram(t *testing.T) {
	w := start(t, keeper.Config{}, "role=refuse", "KEEPER_TEST_PROGRAM=gone")
	if got := w.exit(); got != 69 {
		t.Errorf("exit code %d, want 69", got)
	}
}

// A supervisor counts as dead, whatever its exit code, unless it has announced its end with quit and exits with 0 or
// holds no records.
func TestOrderlyEnd(t *testing.T) {
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	w.send(command{Do: "exit", N: 0})
	e := w.until("up")
	if e.Before.Last != "exit code 0" || len(e.Records) != 1 {
		t.Errorf("after exit 0: %+v", e)
	}
	w.do(command{Do: "quit"})
	w.send(command{Do: "exit", N: 3})
	if e := w.until("up"); e.Before.Last != "exit code 3" || len(e.Records) != 1 {
		t.Errorf("after quit and exit 3 with a record: %+v", e)
	}
	w.do(command{Do: "quit"})
	w.send(command{Do: "exit", N: 0})
	if got := w.exit(); got != 0 {
		t.Errorf("exit code %d, want 0", got)
	}
}

func TestSignals(t *testing.T) {
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	for _, s := range []unix.Signal{unix.SIGPIPE, unix.SIGQUIT, unix.SIGUSR1, unix.SIGHUP, unix.SIGTERM} {
		w.kill(w.pid(), s)
	}
	if e := w.until("signal"); e.ID != "terminated" {
		t.Errorf("the supervisor got %s", e.ID)
	}
	w.kill(w.pid(), unix.SIGINT)
	if e := w.until("signal"); e.ID != "interrupt" {
		t.Errorf("the supervisor got %s", e.ID)
	}
	w.send(command{Do: "exit", N: 7}) // the exit code of the supervisor must become that of the keeper
	if got := w.exit(); got != 7 {
		t.Errorf("exit code %d, want 7", got)
	}
}

// A signal that comes before the supervisor is ready is kept and delivered later, if the keeper holds records.
func TestSignalIsKept(t *testing.T) {
	w := start(t, config(), "role=supervisor", "KEEPER_TEST_READY=no")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	w.kill(w.pid(), unix.SIGTERM)
	w.logged("keeper received")
	w.send(command{Do: "ready"})
	if e := w.until("signal"); e.ID != "terminated" {
		t.Errorf("the supervisor got %s", e.ID)
	}
}

// A keeper that has received SIGTERM ends if its supervisors crash again and again, because none of them could take
// over the records.
func TestToldToEndInACrashLoop(t *testing.T) {
	w := start(t, keeper.Config{Backoff: time.Microsecond}, "role=supervisor", "KEEPER_TEST_READY=no")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	w.kill(w.pid(), unix.SIGTERM)
	w.logged("keeper received")
	for n := range 5 {
		if n > 0 {
			w.until("ready")
		}
		w.kill(w.supervisor(), unix.SIGKILL)
	}
	if got := w.exit(); got != 128+15 {
		t.Errorf("exit code %d, want 143", got)
	}
}

// An interrupt that a ready supervisor has received must neither be sent to the next supervisors nor let the keeper end
// in a crash loop, because the supervisor may have demanded a second interrupt. While no supervisor is started any more,
// the keeper demands it.
func TestInterruptIsForgotten(t *testing.T) {
	w := start(t, keeper.Config{Backoff: time.Microsecond, InterruptTime: patience}, "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	w.kill(w.pid(), unix.SIGINT)
	if e := w.until("signal"); e.ID != "interrupt" {
		t.Errorf("the supervisor got %s", e.ID)
	}
	for n := range 5 {
		w.kill(w.supervisor(), unix.SIGKILL)
		if n == 4 {
			break
		}
		for e := w.next(); e.Event != "ready"; e = w.next() {
			if e.Event == "signal" {
				t.Errorf("supervisor %d got %s, which its predecessor had received", n, e.ID)
			}
		}
		if e := w.do(command{Do: "alive"}); e.Error != "" { // an answer, so that a signal that was sent with ready has arrived
			t.Error(e.Error)
		}
	}
	w.interruptTwice()
}

// An interrupt that no supervisor could receive counts for no crash loop either.
func TestInterruptAtTheStart(t *testing.T) {
	w := start(t, keeper.Config{Backoff: time.Microsecond, InterruptTime: patience}, "role=supervisor", "KEEPER_TEST_READY=no")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	w.kill(w.pid(), unix.SIGINT)
	w.logged("keeper received")
	for n := range 5 {
		if n > 0 {
			w.until("ready")
		}
		w.kill(w.supervisor(), unix.SIGKILL)
	}
	w.interruptTwice()
}

// interruptTwice fails the test unless a keeper that starts no supervisor any more ends at the second interrupt, and not
// at the first.
func (w *world) interruptTwice() {
	w.t.Helper()
	w.logged("no supervisor is started for")
	w.kill(w.pid(), unix.SIGINT)
	w.logged("interrupt again within")
	w.kill(w.pid(), unix.SIGINT)
	if got := w.exit(); got != 128+2 {
		w.t.Errorf("exit code %d, want 130", got)
	}
}

func TestCrashLoop(t *testing.T) {
	cfg := keeper.Config{Backoff: time.Microsecond}
	w := start(t, cfg, "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	for round := range 2 {
		for n := range 5 {
			if n > 0 {
				w.until("ready")
			}
			w.kill(w.supervisor(), unix.SIGKILL)
		}
		if line := w.logged("no supervisor is started for"); !strings.Contains(line, "kill -HUP") {
			t.Errorf("the log does not tell how to continue: %s", line)
		}
		if pids := w.family(); len(pids) > 0 {
			t.Fatalf("round %d: the processes %v run, want none", round, pids)
		}
		if round == 0 {
			w.kill(w.pid(), unix.SIGHUP)
			if e := w.until("up"); len(e.Records) != 1 || e.Before.Starts != 6 {
				t.Errorf("after SIGHUP the supervisor received %+v", e)
			}
			w.until("ready")
		}
	}
	w.kill(w.pid(), unix.SIGTERM)
	if got := w.exit(); got != 128+15 {
		t.Errorf("exit code %d, want 143", got)
	}
}

// After a crash loop, the keeper starts one supervisor in each HeldPause, because the cause may pass without a user. The first
// one that serves ends the crash loop.
func TestCrashLoopPasses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	w := start(t, keeper.Config{Backoff: time.Microsecond, Deaths: 3, HeldPause: 100 * time.Millisecond}, "role=supervisor", "KEEPER_TEST_BAD="+bad)
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	testkit.Must(t, os.WriteFile(bad, []byte(self(t)), 0o600))
	w.kill(w.supervisor(), unix.SIGKILL)
	for range 2 {
		w.logged("no supervisor is started for 100ms, after 3 deaths")
	}
	testkit.Must(t, os.Remove(bad))
	e := w.until("up")
	pauses := strings.Count(w.log.String(), "no supervisor is started for")
	if len(e.Records) != 1 || e.Before.Starts != 3+pauses {
		t.Errorf("after %d pauses the supervisor received %+v", pauses, e)
	}
	w.until("ready")
	w.kill(w.supervisor(), unix.SIGKILL) // at most the third death of this minute
	w.until("ready")
}

// A supervisor that is stopped by SIGSTOP is not ended, and does not keep the keeper from collecting children and
// signals.
func TestStopped(t *testing.T) {
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	w.send(command{Do: "orphans", N: 1})
	w.until("exit")
	stopper := w.supervisor()
	w.send(command{Do: "orphans", N: 1000})
	w.until("exit")
	w.kill(stopper, unix.SIGSTOP)
	deadline := time.Now().Add(patience)
	for len(children(w.pid())) > 1 { // waits until the keeper has collected all others
		if time.Now().After(deadline) {
			t.Fatalf("%d children are left", len(children(w.pid())))
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.kill(w.pid(), unix.SIGHUP)
	w.kill(stopper, unix.SIGCONT)
	for range 999 {
		if e := w.until("exit"); e.PID != stopper || e.Exit.Status != 3<<8 {
			t.Fatalf("got %+v", e)
		}
	}
	w.kill(stopper, unix.SIGSTOP)
	w.kill(stopper, unix.SIGKILL)
	if e := w.until("up"); len(e.Records) != 1 || len(e.Exits) < 1000 {
		t.Errorf("after the end of the stopped supervisor: %d records, %d exits", len(e.Records), len(e.Exits))
	}
}

// TestStoppedAtStart checks that the keeper starts the next supervisor although the present one was stopped before it
// has read the records.
func TestStoppedAtStart(t *testing.T) {
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	if e := w.do(command{Do: "fill", ID: "m", N: 30, Text: strings.Repeat("x", message.MaxMeta)}); e.Error != "" {
		t.Fatal(e.Error)
	}
	for range 3 {
		pid := w.supervisor()
		w.kill(pid, unix.SIGSTOP)
		w.kill(pid, unix.SIGKILL)
		e := w.next()
		for e.PID == pid { // skips events that were written before the supervisor was stopped
			e = w.next()
		}
		w.kill(e.PID, 0)
	}
}

func TestBotchedExec(t *testing.T) {
	program, err := os.ReadFile(self(t))
	testkit.Must(t, err)
	other := slices.Clone(program)
	other[18] ^= 0x55 // e_machine
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	before, limits := descriptors(w.pid()), limitsOf(t, w.pid())
	for name, text := range map[string][]byte{
		"truncated": program[:len(program)/3], "text": []byte("not a program\n"), "other machine": other,
		"another program": []byte("#!/bin/sh\nexit 0\n"), "empty": nil,
	} {
		path := filepath.Join(t.TempDir(), "program")
		testkit.Must(t, os.WriteFile(path, text, 0o755))
		for range 5 {
			if e := w.do(command{Do: "exec", Text: path, Argv: []string{path, "role=keeper"}}); e.Error == "" {
				t.Fatalf("%s: no error", name)
			}
		}
	}
	if e := w.do(command{Do: "exec", Text: self(t), Argv: []string{self(t), "role=refuse"}}); e.Error == "" {
		t.Error("a program that is no keeper: no error")
	}
	if got := descriptors(w.pid()); got != before {
		t.Errorf("%d descriptors, want %d", got, before)
	}
	if got := limitsOf(t, w.pid()); got != limits {
		t.Errorf("limits were\n%s\nand are\n%s", limits, got)
	}
	w.kill(w.supervisor(), unix.SIGKILL)
	if e := w.until("up"); len(e.Records) != 1 {
		t.Errorf("after the failed execs the supervisor received %+v", e)
	}
}

// TestExecUnderSignals checks that signals that arrive during the exec of a keeper are handled by the new program.
func TestExecUnderSignals(t *testing.T) {
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Kill(w.pid(), unix.SIGHUP)
				unix.Kill(w.pid(), unix.SIGUSR1)
				time.Sleep(50 * time.Microsecond)
			}
		}
	}()
	for n := range 20 {
		if e := w.do(command{Do: "exec", Text: self(t), Argv: []string{self(t), "role=keeper"}}); e.Error != "" {
			t.Fatalf("exec %d: %s; the keeper's exit code is %d", n, e.Error, w.exit())
		}
	}
	close(stop)
	<-stopped
	if e := w.do(command{Do: "leave"}); e.Error != "" {
		t.Error(e.Error)
	}
	w.kill(w.supervisor(), unix.SIGKILL)
	if e := w.until("up"); len(e.Records) != 1 || e.Before.Starts != 2 {
		t.Errorf("after the execs the supervisor received %+v", e)
	}
}

// TestEndDuringTrial checks that a request to end that arrives while a keeper program is tried is not lost.
func TestEndDuringTrial(t *testing.T) {
	w := start(t, config(), "role=supervisor")
	w.until("ready")
	w.do(command{Do: "put", ID: "a", N: 1})
	w.send(command{Do: "exec", Text: self(t), Argv: []string{self(t), "role=terminate"}})
	if e := w.until("signal"); e.ID != "terminated" {
		t.Errorf("the supervisor received the signal %q", e.ID)
	}
}

// TestMemory measures the memory of a keeper. The race detector would add its own.
func TestMemory(t *testing.T) {
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("with the race detector")
	}
	for n, size := range map[int]int{100: 2000, 1000: 200} {
		w := start(t, config(), "role=supervisor")
		w.until("ready")
		text := strings.Repeat("x", size)
		for _, c := range []command{{Do: "fill", ID: "m", N: n, Text: text}, {Do: "exec", Text: self(t), Argv: []string{self(t), "role=keeper"}}} {
			if e := w.do(c); e.Error != "" {
				t.Fatal(e.Error)
			}
			kB := memory(t, w.pid())
			t.Logf("%d records, after %s: %v kB", n, c.Do, kB)
			if kB["Rss"] >= 8000 {
				t.Errorf("%d records, after %s: %v, want less than 8 MB", n, c.Do, kB)
			}
		}
	}
}
