package policyhost

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/proxy/policy"
	"holdfast/shared/logging"
)

// A queue holds events until they are told.
type queue struct {
	events  chan policy.Event
	dropped atomic.Uint64
	told    chan struct{} // closed by tell

	ctx    context.Context // of telling
	giveUp context.CancelFunc

	mu     sync.RWMutex
	closed bool // and events with it
}

func newQueue() *queue {
	q := &queue{events: make(chan policy.Event, maxEvents), told: make(chan struct{})}
	q.ctx, q.giveUp = context.WithCancel(context.Background())
	return q
}

// close returns when all that was put is told, or not in that time.
func (q *queue) close(within time.Duration) {
	q.mu.Lock()
	q.closed = true
	close(q.events)
	q.mu.Unlock()
	late := time.AfterFunc(within, q.giveUp)
	<-q.told
	late.Stop()
	q.giveUp()
}

// put never waits: what there is no room for is dropped.
func (q *queue) put(e policy.Event) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.closed {
		q.dropped.Add(1)
		return
	}
	select {
	case q.events <- e:
	default:
		q.dropped.Add(1)
	}
}

// Observe implements policy.Policy. It always succeeds, and at once.
func (h *Host) Observe(_ context.Context, e policy.Event) error {
	h.counts[observe].calls.Add(1)
	e.Labels, e.Principal.Roles = maps.Clone(e.Labels), slices.Clone(e.Principal.Roles)
	h.queue.put(e)
	return nil
}

// tell tells the program each event, one after the other, until the queue is
// closed. What is in it then is told until close gives up.
func (h *Host) tell() {
	defer close(h.queue.told)
	var lost lost
	for e := range h.queue.events {
		err := h.tellOne(h.queue.ctx, e)
		if err != nil {
			h.queue.dropped.Add(1)
			lost.why = err
		}
		h.tellLost(&lost, err == nil && len(h.queue.events) == 0)
	}
	lost.last = time.Time{}
	h.tellLost(&lost, true)
}

var errDown = errors.New("the policy does not run")

// tellOne tells the program one event. A program that is not fast with events
// does not hang for that: it may write them to a disk.
func (h *Host) tellOne(ctx context.Context, e policy.Event) error {
	r, _ := h.current()
	if r == nil || ctx.Err() != nil {
		return errDown
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Deadline)
	defer cancel()
	stop := context.AfterFunc(r.program.ctx, cancel)
	defer stop()
	err := r.policy.Observe(ctx, e)
	if err != nil {
		h.counts[observe].failures.Add(1)
		if errors.Is(over(ctx), context.DeadlineExceeded) {
			h.counts[observe].timeouts.Add(1)
		}
	}
	return err
}

// lost is what was dropped and not logged yet. It is when an episode is over,
// but not each time of many, and once a minute while it lasts.
type lost struct {
	told  uint64    // of all that were dropped
	since time.Time // zero if none was since
	last  time.Time // when it was logged
	why   error     // of those that were not too many
}

func (h *Host) tellLost(l *lost, over bool) {
	n := h.queue.dropped.Load() - l.told
	if n == 0 {
		return
	}
	if l.since.IsZero() {
		l.since = time.Now()
	}
	if over && time.Since(l.last) < quiet || !over && time.Since(l.since) < time.Minute {
		return
	}
	e := h.log.Warn().Uint64(logging.Count, n)
	if l.why != nil {
		e = e.Str("err", cutText(l.why.Error()))
	}
	e.Msg("policy's events were dropped")
	*l = lost{told: l.told + n, last: time.Now()}
}
