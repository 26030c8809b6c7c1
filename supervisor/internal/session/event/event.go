// Package event keeps the last events of all sessions for subscribers.
//
// Invariant: events are numbered without gaps. A subscriber that misses events is told how many.
//
// Not here: the causes of an event (package session), and the wires on which it is sent (package
// linkserver).
package event

import (
	"context"
	"sync"
	"time"

	"holdfast/protocol"
)

// Bounds on the events that a Hub keeps for subscribers that connect again.
const (
	maxEvents     = 4096
	maxEventBytes = 8 << 20
)

// Event is something that happened to a session. Events are numbered from 1 during the life of
// a supervisor and its successors.
type Event struct {
	Seq     uint64                `json:"seq"`
	Kind    protocol.EventKind    `json:"kind"`
	At      time.Time             `json:"at"`
	Session *protocol.SessionInfo `json:"session,omitempty"` // the session's info at that time; never changed

	Notification *protocol.Notification `json:"notification,omitempty"` // of EventNotification
}

// Hub keeps the last events by number. A subscriber holds a position, so that a slow subscriber
// has no cost and is told how many events it missed.
type Hub struct {
	now      func() time.Time
	onNumber func(seq uint64) // may be nil
	mu       sync.Mutex
	events   []Event // ascending, without gaps
	bytes    int
	seq      uint64
	wake     chan struct{} // closed and replaced at each event
}

// NewHub returns a Hub without events. now is its clock. onNumber is called with the number of
// each event before any subscriber receives the event; it may be nil.
func NewHub(now func() time.Time, onNumber func(seq uint64)) *Hub {
	return &Hub{now: now, onNumber: onNumber, wake: make(chan struct{})}
}

// Publish adds an event. text is the text of a notification, or nil.
func (h *Hub) Publish(kind protocol.EventKind, info *protocol.SessionInfo, text *protocol.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	if h.onNumber != nil {
		h.onNumber(h.seq)
	}
	h.events = append(h.events, Event{Seq: h.seq, Kind: kind, At: h.now(), Session: info, Notification: text})
	h.bytes += h.events[len(h.events)-1].size()
	for len(h.events) > maxEvents || h.bytes > maxEventBytes && len(h.events) > 1 {
		h.bytes -= h.events[0].size()
		h.events[0] = Event{}
		h.events = h.events[1:]
	}
	close(h.wake)
	h.wake = make(chan struct{})
}

func (e *Event) size() int {
	n := eventBytes(e.Session)
	if t := e.Notification; t != nil {
		n += len(t.Title) + len(t.Body)
	}
	return n
}

// eventBytes estimates the memory of an event.
func eventBytes(i *protocol.SessionInfo) int {
	n := 512 + len(i.Cwd) + len(i.CurrentCwd) + len(i.Title)
	for _, a := range i.Argv {
		n += len(a)
	}
	n += 128 * len(i.Viewers)
	for _, v := range i.Viewers {
		n += len(v.Client)
	}
	if i.Command != nil {
		n += 128 + len(i.Command.Line)
	}
	for k, v := range i.Labels {
		n += len(k) + len(v)
	}
	if i.Exit != nil {
		for _, l := range i.Exit.Tail {
			n += len(l)
		}
		for _, l := range i.Exit.LastLines {
			n += len(l)
		}
	}
	return n
}

// Seq returns the number of the last event, or 0 if there was none.
func (h *Hub) Seq() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seq
}

// maxSavedBytes bounds the events that are passed to a successor, because all clients wait
// meanwhile. Most subscribers have read all but the last events.
const maxSavedBytes = 256 << 10

// Saved returns the number of the last event, and the last events for Restore.
func (h *Hub) Saved() (uint64, []Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	from, bytes := len(h.events), 0
	for from > 0 && bytes+h.events[from-1].size() <= maxSavedBytes {
		from--
		bytes += h.events[from].size()
	}
	return h.seq, append([]Event(nil), h.events[from:]...)
}

// Restore continues after the event with number seq. Earlier events that are not in events
// count as missed.
func (h *Hub) Restore(seq uint64, events []Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq = seq
	for _, e := range events {
		h.events = append(h.events, e)
		h.bytes += e.size()
	}
}

// Next returns the events after the given number, at least one, and the number of events before
// them that are not kept any more. It blocks while there is none. Errors: ctx's.
func (h *Hub) Next(ctx context.Context, after uint64) ([]Event, uint64, error) {
	for {
		h.mu.Lock()
		if after < h.seq && len(h.events) > 0 {
			first := h.events[0].Seq
			missed := first - min(first, after+1)
			from := max(after+1, first) - first
			got := append([]Event(nil), h.events[from:]...)
			h.mu.Unlock()
			return got, missed, nil
		}
		wake := h.wake
		h.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}
