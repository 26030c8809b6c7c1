package session

import (
	"context"
	"sync"
	"time"

	"holdfast/protocol"
)

// What a Hub keeps for subscribers that come back.
const (
	maxEvents     = 4096
	maxEventBytes = 8 << 20
)

// An Event is something that happened, numbered from 1 within a supervisor's
// life.
type Event struct {
	Seq     uint64                `json:"seq"`
	Kind    protocol.EventKind    `json:"kind"`
	At      time.Time             `json:"at"`
	Session *protocol.SessionInfo `json:"session,omitempty"` // as it was then; never changed

	Notification *protocol.Notification `json:"notification,omitempty"` // of EventNotification
}

// A Hub keeps the last events by number. Subscribers hold a position, so a
// slow one costs nothing and is told how many it missed.
type Hub struct {
	now    func() time.Time
	noted  func(seq uint64) // told of each number before anybody else
	mu     sync.Mutex
	events []Event // ascending, without gaps
	bytes  int
	seq    uint64
	wake   chan struct{} // closed and replaced at each event
}

// NewHub returns a Hub without events.
func NewHub(now func() time.Time) *Hub { return &Hub{now: now, wake: make(chan struct{})} }

// Publish adds an event. A notification has its text besides.
func (h *Hub) Publish(kind protocol.EventKind, info *protocol.SessionInfo, text *protocol.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	if h.noted != nil {
		h.noted(h.seq)
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

// eventBytes is about what an event costs.
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

// Seq returns the last event's number, 0 if there was none.
func (h *Hub) Seq() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seq
}

// maxSavedBytes bounds what a successor is left: all that wait for it wait for that.
// Subscribers are at the last events, or nearly.
const maxSavedBytes = 256 << 10

// saved is what restore goes on with: the last event's number, and the last of them.
func (h *Hub) saved() (uint64, []Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	from, bytes := len(h.events), 0
	for from > 0 && bytes+h.events[from-1].size() <= maxSavedBytes {
		from--
		bytes += h.events[from].size()
	}
	return h.seq, append([]Event(nil), h.events[from:]...)
}

// restore goes on after the event with number seq. Those that are not among events
// count as missed.
func (h *Hub) restore(seq uint64, events []Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq = seq
	for _, e := range events {
		h.events = append(h.events, e)
		h.bytes += e.size()
	}
}

// Next returns the events after the given number, at least one, and how many
// before them are no longer kept. It blocks while there is none.
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
