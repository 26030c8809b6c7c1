package linkserver

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
)

// Reads that may be dear are worked on few at a time, for each link and for all; more wait
// in their order, and are refused if too many do, or for too long. Other requests do not
// wait.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		one, other := newTurns(maxLinkReads), newTurns(maxLinkReads)
		read := &wire.Screen{ScreenSpec: protocol.ScreenSpec{Cols: 2}}
		take := func(link *turns) func() {
			t.Helper()
			leave, err := s.turn(t.Context(), link, read)
			if err != nil {
				t.Fatal(err)
			}
			return leave
		}
		var leave []func()
		for range maxLinkReads {
			leave = append(leave, take(one))
		}
		if _, err := s.turn(t.Context(), one, &wire.Screen{}); err != nil {
			t.Errorf("a screen as it is waits for its turn: %v", err)
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
			t.Errorf("%d more were let in", len(came))
		}
		_, err := s.turn(t.Context(), one, read)
		if e := protocol.AsError(err); e == nil || e.Code != protocol.CodeLimitExceeded || !e.Retryable {
			t.Errorf("one more than may wait: got %v, want limit_exceeded, retryable", err)
		}
		leave[0]()
		synctest.Wait()
		if got := <-came; got != 0 {
			t.Errorf("number %d was let in first", got)
		}
		for range maxWaiting - 1 {
			all[len(all)-1]()
			synctest.Wait()
		}
		if len(came) != maxWaiting-1 {
			t.Errorf("%d of the others were let in, want %d", len(came), maxWaiting-1)
		}
		third := newTurns(maxLinkReads)
		began := time.Now()
		if _, err = s.turn(t.Context(), third, read); protocol.CodeOf(err) != protocol.CodeLimitExceeded || time.Since(began) != turnTime {
			t.Errorf("after %v: got %v, want limit_exceeded after %v", time.Since(began), err, turnTime)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err = s.turn(gone, third, read); err == nil {
			t.Error("let in when the link had ended")
		}
		all[len(all)-1]()
		for _, l := range leave[1:] {
			l()
		}
		if len(s.reads.room)+len(one.room)+len(other.room)+len(third.room) != 0 {
			t.Errorf("%d turns are held, and none is used", len(s.reads.room))
		}
	})
}

// While such reads are refused, as a supervisor has died of one, all others are answered; how many
// are worked on is told.
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
			t.Errorf("a screen as it is: %v; told %v", err, now)
		}
		time.Sleep(time.Minute)
		for range 2 {
			leave, err := s.turn(t.Context(), link, &wire.History{})
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
		}
		if !slices.Equal(now, []int{1, 2}) {
			t.Errorf("told %v", now)
		}
	})
}
