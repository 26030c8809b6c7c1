//go:build linux || darwin

package session

import (
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// While loop is busy, list and info return the state that was published last, with the present output offset, and a
// requested end begins. A request that needs loop fails with busy, and is not carried out later.
func TestBusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		other := create(t, tb, bash(""))
		testkit.Must(t, s.Resize(protocol.Size{Cols: 100, Rows: 30}))
		if got := info(t, s).Size; got != (protocol.Size{Cols: 100, Rows: 30}) {
			t.Errorf("after a resize info says %v", got)
		}
		held, over := make(chan struct{}), make(chan struct{})
		go s.do(func() { close(held); <-over })
		<-held
		by(s).print([]byte("printed meanwhile"))
		synctest.Wait()
		began := time.Now()
		i := info(t, s)
		if list := tb.List(""); len(list) != 2 || i.OutputOffset != uint64(len("printed meanwhile")) || i.State != protocol.StateRunning {
			t.Errorf("%d sessions are listed; info says %+v", len(list), i)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("list and info waited %v for a busy session", took)
		}
		wantCode(t, "relabel", s.Relabel(map[string]string{"a": "b"}), protocol.CodeBusy)
		if _, err := tb.Freeze(); protocol.CodeOf(err) != protocol.CodeBusy {
			t.Errorf("freeze: got %v, want busy", err)
		}
		if err := other.Relabel(map[string]string{"a": "b"}); err != nil {
			t.Errorf("after a freeze that failed: %v", err)
		}
		began = time.Now()
		testkit.Must(t, s.Terminate(End{Asker: protocol.Asker{By: "first"}, Reason: protocol.ReasonIdleTimeout, TimedOut: true}))
		if err := s.Terminate(End{Asker: protocol.Asker{By: "second"}}); err != nil {
			t.Errorf("a second end: %v", err)
		}
		if took := time.Since(began); took > noteTime {
			t.Errorf("the ends waited %v for a busy session", took)
		}
		wantCode(t, "signal", s.Interrupt(), protocol.CodeSessionNotFound)
		<-s.pty.Done() // although loop is busy, the signals are sent
		close(over)
		e := ended(t, s)
		if e.EndedBy != "first" || e.Reason != protocol.ReasonIdleTimeout || !e.TimedOut || e.Outcome == protocol.OutcomeNatural {
			t.Errorf("got %+v, want the first requester and reason", e)
		}
		if got := info(t, s); got.Labels["a"] != "" {
			t.Error("a request that was refused as busy was carried out")
		}
	})
}

// Publishing allocates no memory if only output has come.
func TestPublishAllocates(t *testing.T) {
	s := run(t, "sleep 1000")
	s.do(func() {
		if n := testing.AllocsPerRun(100, func() { s.receive(chunk{offset: s.display.received}); s.publish() }); n != 0 {
			t.Errorf("%v allocations for a piece of output, want none", n)
		}
	})
}
