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

// A queue holds events until they are sent to the program.
type queue struct {
	events  chan policy.Event
	dropped atomic.Uint64
	done    chan struct{} // closed when sendEvents ends

	ctx    context.Context // canceled when the remaining events must not be sent any more
	giveUp context.CancelFunc

	mu     sync.RWMutex
	closed bool // events is closed, too
}

func newQueue() *queue {
	q := &queue{events: make(chan policy.Event, maxEvents), done: make(chan struct{})}
	q.ctx, q.giveUp = context.WithCancel(context.Background())
	return q
}

// close returns when all queued events are sent, or when the duration within has passed.
func (q *queue) close(within time.Duration) {
	q.mu.Lock()
	q.closed = true
	close(q.events)
	q.mu.Unlock()
	late := time.AfterFunc(within, q.giveUp)
	<-q.done
	late.Stop()
	q.giveUp()
}

// put queues an event. It never waits: if the queue is full or closed, the event is dropped and
// counted.
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

// Observe implements policy.Policy. It queues the event and always succeeds at once.
func (h *Host) Observe(_ context.Context, e policy.Event) error {
	h.counts[observe].calls.Add(1)
	e.Labels, e.Principal.Roles = maps.Clone(e.Labels), slices.Clone(e.Principal.Roles)
	h.queue.put(e)
	return nil
}

// sendEvents sends the queued events to the program, one after the other, until the queue is
// closed. Then it sends the remaining events until close gives up.
func (h *Host) sendEvents() {
	defer close(h.queue.done)
	var lost lost
	for e := range h.queue.events {
		err := h.sendEvent(h.queue.ctx, e)
		if err != nil {
			h.queue.dropped.Add(1)
			lost.reason = err
		}
		h.logLost(&lost, err == nil && len(h.queue.events) == 0)
	}
	lost.last = time.Time{}
	h.logLost(&lost, true)
}

var errDown = errors.New("the policy does not run")

// sendEvent sends one event to the program. A late answer to an event does not count towards a
// hang, because the program may have to write the event to a disk.
func (h *Host) sendEvent(ctx context.Context, e policy.Event) error {
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
		if errors.Is(contextError(ctx), context.DeadlineExceeded) {
			h.counts[observe].timeouts.Add(1)
		}
	}
	return err
}

// lost counts events that were dropped and not logged yet. They are logged when an episode of
// losses ends, but not more often than every 10 s, and once a minute during an episode.
type lost struct {
	done   uint64    // number of dropped events that were logged
	since  time.Time // time of the first loss that is not logged; zero if there is none
	last   time.Time // time of the last log line
	reason error     // error of the last event that was not dropped for a full queue
}

func (h *Host) logLost(l *lost, isOver bool) {
	n := h.queue.dropped.Load() - l.done
	if n == 0 {
		return
	}
	if l.since.IsZero() {
		l.since = time.Now()
	}
	if isOver && time.Since(l.last) < quiet || !isOver && time.Since(l.since) < time.Minute {
		return
	}
	e := h.log.Warn().Uint64(logging.Count, n)
	if l.reason != nil {
		e = e.Str("err", cutText(l.reason.Error()))
	}
	e.Msg("policy events were dropped")
	*l = lost{done: l.done + n, last: time.Now()}
}
