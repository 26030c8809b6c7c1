package event

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
)

// check checks that Next returns the events first to last in order, and how many were missed.
func check(t *testing.T, h *Hub, after, first, last, missed uint64) {
	t.Helper()
	events, m, err := h.Next(context.Background(), after)
	if err != nil || m != missed || uint64(len(events)) != last-first+1 {
		t.Fatalf("after %d: got %d events, %d missed, %v; want %d to %d, %d missed", after, len(events), m, err, first, last, missed)
	}
	for i, e := range events {
		if e.Seq != first+uint64(i) {
			t.Errorf("after %d: event %d has number %d, want %d", after, i, e.Seq, first+uint64(i))
		}
	}
}

func publish(h *Hub, n int, info *protocol.SessionInfo) {
	for range n {
		h.Publish(protocol.EventCreated, info, nil)
	}
}

// A subscriber receives every event once and in order, from any number on, and learns how many are no longer kept.
func TestHub(t *testing.T) {
	h := NewHub(time.Now, nil)
	small := &protocol.SessionInfo{}
	if h.Seq() != 0 {
		t.Errorf("got %d, want none yet", h.Seq())
	}
	publish(h, 10, small)
	check(t, h, 0, 1, 10, 0)
	check(t, h, 0, 1, 10, 0) // the same for another subscriber
	check(t, h, 9, 10, 10, 0)
	publish(h, maxEvents, small)
	check(t, h, 0, 11, maxEvents+10, 10) // a slow subscriber
	check(t, h, 9, 11, maxEvents+10, 1)
	check(t, h, 10, 11, maxEvents+10, 0)
	publish(h, 10*maxEvents, small)
	if len(h.events) != maxEvents || cap(h.events) > 4*maxEvents || h.bytes != maxEvents*eventBytes(small) {
		t.Errorf("got %d events in room for %d, %d bytes; at most %d are kept", len(h.events), cap(h.events), h.bytes, maxEvents)
	}
	check(t, h, h.Seq()-1, h.Seq(), h.Seq(), 0)
}

// The events that a hub keeps are also bounded in bytes, whichever field the bytes are in. The last event is kept at
// any size.
func TestHubBytes(t *testing.T) {
	big := strings.Repeat("x", maxEventBytes/10)
	for name, info := range map[string]*protocol.SessionInfo{
		"cwd":        {Cwd: big},
		"argv":       {Argv: []string{big}},
		"label":      {Labels: map[string]string{"a": big}},
		"label key":  {Labels: map[string]string{big: "a"}},
		"tail":       {Exit: &protocol.ExitRecord{Tail: []string{big}}},
		"last lines": {Exit: &protocol.ExitRecord{LastLines: []string{big}}},
	} {
		h := NewHub(time.Now, nil)
		publish(h, 100, info)
		if len(h.events) == 0 || len(h.events) > 10 || h.bytes > maxEventBytes {
			t.Errorf("%s: got %d events, %d bytes; want at most %d bytes", name, len(h.events), h.bytes, maxEventBytes)
		}
		publish(h, 1, &protocol.SessionInfo{Cwd: strings.Repeat("x", 2*maxEventBytes)})
		check(t, h, 0, 101, 101, 100)
		publish(h, 1, &protocol.SessionInfo{})
		check(t, h, 0, 102, 102, 101)
	}
}

// Next waits for an event, and for no longer than it should.
func TestHubWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(func() time.Time { return time.Unix(7, 0) }, nil)
		ctx, cancel := context.WithCancel(context.Background())
		got := make(chan []Event)
		for range 3 {
			go func() {
				events, _, _ := h.Next(ctx, 0)
				got <- events
			}()
		}
		synctest.Wait()
		h.Publish(protocol.EventExited, &protocol.SessionInfo{ID: "a"}, nil)
		for range 3 {
			if e := <-got; len(e) != 1 || e[0].Kind != protocol.EventExited || e[0].Session.ID != "a" || e[0].At != time.Unix(7, 0) {
				t.Errorf("got %+v, want one event", e)
			}
		}
		failed := make(chan error)
		go func() {
			_, _, err := h.Next(ctx, 1)
			failed <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
}

// Subscribers that begin late, stop, and begin again receive each event once, while events are published.
func TestHubConcurrent(t *testing.T) {
	h := NewHub(time.Now, nil)
	const total = 3 * maxEvents
	done := make(chan string, 4)
	for every := range 4 {
		go func() {
			var after, missed, got uint64
			for after < total {
				events, m, err := h.Next(context.Background(), after)
				if err != nil || events[0].Seq != after+m+1 {
					done <- "missed events that Next did not report"
					return
				}
				missed += m
				n := min(len(events), 100+every*300) // accepts only some of the events and asks again
				got += uint64(n)
				after = events[n-1].Seq
			}
			if got+missed != total {
				done <- "events doubled or lost"
				return
			}
			done <- ""
		}()
	}
	publish(h, total, &protocol.SessionInfo{})
	for range 4 {
		if problem := <-done; problem != "" {
			t.Error(problem)
		}
	}
}

// A hub that continues from a saved state has the last events, and reports how many it lacks.
func TestHubGoesOn(t *testing.T) {
	h := NewHub(time.Now, nil)
	info := &protocol.SessionInfo{ID: "s", Title: strings.Repeat("t", 1000)}
	const n = 1000
	for range n {
		h.Publish(protocol.EventTitle, info, nil)
	}
	seq, events := h.Saved()
	if size := events[0].size() * len(events); seq != n || size > maxSavedBytes || size < maxSavedBytes-2*events[0].size() {
		t.Fatalf("%d events of %d bytes, up to number %d", len(events), size, seq)
	}
	next := NewHub(time.Now, nil)
	next.Restore(seq, events)
	got, missed, err := next.Next(t.Context(), n-1)
	if err != nil || missed != 0 || len(got) != 1 || got[0].Seq != n {
		t.Errorf("after the last but one: %d events, %d missed, %v", len(got), missed, err)
	}
	got, missed, err = next.Next(t.Context(), 0)
	if err != nil || int(missed) != n-len(events) || len(got) != len(events) {
		t.Errorf("from the beginning: %d events, %d missed, %v", len(got), missed, err)
	}
	// After a crash only the number of the last event is known.
	last := NewHub(time.Now, nil)
	last.Restore(seq, nil)
	last.Publish(protocol.EventBell, info, nil)
	got, missed, err = last.Next(t.Context(), n-10)
	if err != nil || missed != 10 || len(got) != 1 || got[0].Seq != n+1 {
		t.Errorf("after a crash: %d events, %d missed, %v", len(got), missed, err)
	}
}
