//go:build linux || darwin

package session

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
)

// Twenty sessions that ignore SIGHUP take one grace, not twenty. Each of several callers of Shutdown returns after
// the last session has been reaped, and no session opens after that.
// demand: M12
func TestShutdown(t *testing.T) {
	const sessions, grace = 20, time.Second
	tb := NewTable(Config{Grace: grace, Env: []string{"PATH=" + os.Getenv("PATH")}})
	var all []*Session
	var viewers []*viewer
	for range sessions {
		s := create(t, tb, bash("trap '' HUP; echo READY; while :; do sleep 1000; done"))
		all, viewers = append(all, s), append(viewers, look(t, s, protocol.AttachSpec{}))
	}
	for _, v := range viewers {
		v.until(t, "READY")
	}
	// If a caller's context is canceled, its call returns and the shutdown continues.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := tb.Shutdown(ctx, protocol.Asker{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	_, err := tb.create("", bash("exit"), "")
	wantCode(t, "Create meanwhile", err, protocol.CodeClosed)
	_, err = tb.Freeze()
	wantCode(t, "Freeze meanwhile", err, protocol.CodeClosed)
	within(t, 5*grace, "the shutdown", func() {
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				shutdown(t, tb)
				for _, s := range all {
					if !isClosed(s.gone) || !gone(s.pty.PID()) {
						t.Errorf("session %s has not ended", s.ID())
					}
				}
			})
		}
		wg.Wait()
	})
	// Viewers receive the end, although the sessions are forgotten.
	for i, v := range viewers {
		if v.end(t); !v.exited {
			t.Errorf("viewer %d did not receive the exit", i)
		}
		if rec := all[i].Exit(); rec.Reason != protocol.ReasonShutdown || rec.Outcome != protocol.OutcomeHard {
			t.Errorf("got %+v, want shutdown, hard", rec)
		}
	}
	_, err = tb.create("", bash("exit"), "")
	wantCode(t, "Create afterwards", err, protocol.CodeClosed)
	_, err = tb.reopen(all[0].ID(), "", protocol.RespawnSpec{}, "")
	wantCode(t, "Reopen afterwards", err, protocol.CodeClosed)
	if live, list := tb.Live(), tb.List(""); live != 0 || len(list) != 0 {
		t.Errorf("got %d live, %d listed, want none", live, len(list))
	}
	shutdown(t, tb) // a second shutdown returns at once
}

// A child that was being started when the shutdown began is ended and reaped before the shutdown returns. The request
// that started it fails with an error that tells of the shutdown.
// demand: M5
func TestCreateDuringShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no time passes while the shutdown waits for the start
		starting, goOn := make(chan struct{}), make(chan struct{})
		var child *fakePTY
		tb := NewTable(Config{Start: func(spec pty.Spec) (PTY, error) {
			close(starting)
			<-goOn
			child = newFake(spec)
			child.deaf = true
			return child, nil
		}})
		created, ended := make(chan error, 1), make(chan error, 1)
		go func() { created <- second(tb.create("a", bash(""), "")) }()
		<-starting
		go func() { ended <- tb.Shutdown(t.Context(), protocol.Asker{}) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("the shutdown returned %v before the child was started", err)
		default:
		}
		close(goOn)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !isClosed(child.Done()) || !child.closed {
			t.Error("the child was not reaped, or its terminal not closed, when the shutdown returned")
		}
		wantCode(t, "Create", <-created, protocol.CodeClosed)
		wantCode(t, "Get", second(tb.Get("a")), protocol.CodeSessionNotFound)
		if tb.Events().Seq() != 0 {
			t.Errorf("got %d events, want none of a session that was never created", tb.Events().Seq())
		}
	})
}

// A session ends in the usual time even if every queue is full: its child does not read, the input queue is full, and
// viewers do not read.
// demand: M10
func TestEndWithQueuesFull(t *testing.T) {
	tb := newTable(t, Config{RingBytes: 64 << 10, InputBytes: 1 << 20})
	s := create(t, tb, bash(`trap '' HUP; stty raw -echo; exec yes`))
	var idle []*viewer
	for range 10 {
		idle = append(idle, look(t, s, protocol.AttachSpec{}))
	}
	input := bytes.Repeat([]byte("x"), 256<<10)
	for typed := uint64(0); ; {
		err := idle[0].a.Type(typed, input)
		if protocol.CodeOf(err) == protocol.CodeInputFull {
			break
		}
		if err != nil && protocol.CodeOf(err) != protocol.CodeLineTooLong { // the terminal is not raw before stty has run
			t.Fatal(err)
		}
		typed += uint64(len(input))
	}
	for busy := look(t, s, protocol.AttachSpec{}); busy.pos < 1<<20; { // the ring has overtaken the others
		if _, err := busy.next(t); err != nil {
			t.Fatal(err)
		}
	}
	within(t, 2*time.Second, "the end", func() {
		testkit.Must(t, s.Terminate(End{}))
		if rec := ended(t, s); rec.Outcome != protocol.OutcomeHard {
			t.Errorf("got %+v, want hard", rec)
		}
	})
	for _, v := range idle { // a viewer that reads only now receives the end
		if v.end(t); !v.exited || v.missed == 0 {
			t.Errorf("got exit %v, %d missed", v.exited, v.missed)
		}
	}
}

// A table is closed as idle only if it has no session, and no record if those count.
func TestCloseIfIdle(t *testing.T) {
	tb := newTable(t, Config{})
	s := create(t, tb, bash("read x"))
	if tb.CloseIfIdle(false) || tb.CloseIfIdle(true) {
		t.Fatal("closed beside a session that runs")
	}
	testkit.Must(t, s.Terminate(End{}))
	ended(t, s)
	if tb.CloseIfIdle(true) {
		t.Error("closed beside an exit record")
	}
	create(t, tb, bash("exit")) // the refused calls have not closed the table
	all, _ := tb.registry.all()
	for _, s := range all {
		ended(t, s)
	}
	if !tb.CloseIfIdle(false) {
		t.Error("not closed, although no session runs")
	}
	_, err := tb.create("", bash("exit"), "")
	wantCode(t, "Create after the close", err, protocol.CodeClosed)
}
