package linkserver

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/testkit"
)

// Only a few reads that may be costly are executed at a time, for each link and for all links. Others wait in order,
// and are refused if too many wait, or if one waits too long. Requests of other kinds do not wait.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		one, other := newTurns(maxLinkReads), newTurns(maxLinkReads)
		read := &wire.Screen{ScreenSpec: protocol.ScreenSpec{Cols: 2}}
		take := func(link *turns) func() {
			t.Helper()
			leave, err := s.turn(t.Context(), link, read)
			testkit.Must(t, err)
			return leave
		}
		var leave []func()
		for range maxLinkCopies {
			done, err := s.turn(t.Context(), one, &wire.Read{})
			testkit.Must(t, err)
			defer done()
		}
		brief, end := context.WithTimeout(t.Context(), time.Hour)
		defer end()
		if _, err := s.turn(brief, one, &wire.Read{}); err == nil {
			t.Error("one copy of a ring too many was made")
		}
		for range maxLinkReads {
			leave = append(leave, take(one))
		}
		if _, err := s.turn(t.Context(), one, &wire.Screen{}); err != nil {
			t.Errorf("a screen in its own size has to wait: %v", err)
		}
		for range maxReads - maxLinkReads {
			leave = append(leave, take(other))
		}
		came := make(chan int, maxWaiting)
		var all []func()
		for i := range maxWaiting {
			go func() { all = append(all, take(one)); came <- i }()
			synctest.Wait()
		}
		if len(came) != 0 {
			t.Errorf("%d reads above the limit were executed", len(came))
		}
		_, err := s.turn(t.Context(), one, read)
		if e := protocol.AsError(err); e == nil || e.Code != protocol.CodeLimitExceeded || !e.Retryable {
			t.Errorf("one waiting read too many: got %v, want limit_exceeded, retryable", err)
		}
		leave[0]()
		synctest.Wait()
		if got := <-came; got != 0 {
			t.Errorf("read %d was executed first", got)
		}
		for range maxWaiting - 1 {
			all[len(all)-1]()
			synctest.Wait()
		}
		if len(came) != maxWaiting-1 {
			t.Errorf("%d of the other reads were executed, want %d", len(came), maxWaiting-1)
		}
		third := newTurns(maxLinkReads)
		began := time.Now()
		if _, err = s.turn(t.Context(), third, read); protocol.CodeOf(err) != protocol.CodeLimitExceeded || time.Since(began) != turnTime {
			t.Errorf("after %v: got %v, want limit_exceeded after %v", time.Since(began), err, turnTime)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err = s.turn(gone, third, read); err == nil {
			t.Error("a read was executed although its link had ended")
		}
		all[len(all)-1]()
		for _, l := range leave[1:] {
			l()
		}
		if len(s.reads.room)+len(one.room)+len(other.room)+len(third.room) != 0 {
			t.Errorf("%d turns are held, although no read is executed", len(s.reads.room))
		}
	})
}

// While costly reads are refused, because a supervisor has died of one, other requests are answered. Reading is
// called with the number of reads that are executed.
func TestNoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now []int
		s := New(Config{NoReads: time.Now().Add(time.Minute), Reading: func(n int) { now = append(now, n) }})
		link := newTurns(maxLinkReads)
		_, err := s.turn(t.Context(), link, &wire.History{})
		if e := protocol.AsError(err); e == nil || e.Code != protocol.CodeLimitExceeded || !e.Retryable || e.RetryAfterMS < 59_000 {
			t.Errorf("got %v, want limit_exceeded, retryable in a minute", err)
		}
		if _, err := s.turn(t.Context(), link, &wire.Screen{}); err != nil || len(now) != 0 {
			t.Errorf("a screen in its own size: %v; Reading was called with %v", err, now)
		}
		time.Sleep(time.Minute)
		for range 2 {
			leave, err := s.turn(t.Context(), link, &wire.History{})
			testkit.Must(t, err)
			defer leave()
		}
		if !slices.Equal(now, []int{1, 2}) {
			t.Errorf("Reading was called with %v", now)
		}
	})
}
