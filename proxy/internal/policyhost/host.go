// Package policyhost runs a policy's program: it starts it, asks it, and starts
// it again when it dies or hangs.
//
// A Host is a policy.Policy. It asks over gRPC, each question with a deadline
// and so many at once, and tells events from a queue of its own.
//
// Invariant: what is no answer is a no. Whatever happens to the program, a
// question ends within its deadline with an answer, a refusal, or
// policy_unavailable; nothing else in the proxy waits for the program.
//
// Not here: what is asked and when (package apiserver), what the questions mean
// and how a program answers them (package policy).
package policyhost

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"holdfast/proxy/policy"
)

const (
	maxCalls  = 256  // questions at once; events are told beside them
	maxEvents = 1024 // that wait to be told
)

// A Host keeps one program running and asks it.
//
//	keep   owns the program: starts, ends and replaces it (keep.go)
//	tell   tells it the events of the queue (observe.go)
//
// Both end with Close, tell before keep, so that the last events are told.
type Host struct {
	cfg  Config
	log  zerolog.Logger
	says *says

	slots  chan struct{}
	counts [methods]counts

	mu    sync.Mutex // of what follows
	state state
	run   *run          // while up; it may have ended just now
	next  time.Time     // of waiting: when it is started again; of starting: when that began
	wait  time.Duration // before the next start but one, or that after the program's end
	took  time.Duration // of the last start

	starts, crashes uint64

	queue *queue

	closing sync.Once
	ctx     context.Context // keep's; ends once the events are told
	cancel  context.CancelFunc
	kept    chan struct{} // closed by keep
}

var _ policy.Policy = (*Host)(nil)

// Check says why the program of a config would not be started, without trying.
func Check(cfg Config) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return err
	}
	return cfg.allowed()
}

// Try starts the program as Start does, ends it again, and returns why it does not work.
func Try(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return err
	}
	h := &Host{cfg: cfg, log: cfg.Log, says: newSays(cfg.Log)}
	r, err := h.launch(ctx)
	if err != nil {
		return err
	}
	r.end(cfg.Grace)
	return nil
}

// allowed says whether the program is one that may be started.
func (c Config) allowed() error {
	if err := trusted(c.Path); err != nil {
		return err
	}
	return hasSum(c.Path, c.SHA256)
}

// Start starts the program and returns when it has answered the handshake; ctx
// is of that alone. A Host must be closed.
func Start(ctx context.Context, cfg Config) (*Host, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	sweepSockets(cfg.Dir)
	h := &Host{
		cfg:   cfg,
		log:   cfg.Log,
		slots: make(chan struct{}, maxCalls),
		wait:  cfg.FirstWait,
		queue: newQueue(),
		kept:  make(chan struct{}),
	}
	h.says = newSays(h.log)
	r, err := h.launch(ctx)
	if err != nil {
		return nil, err
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.up(r)
	go h.keep(r)
	go h.tell()
	return h, nil
}

// Close ends the program and returns when nothing of it is left. Events that
// wait are told before, for as long as the program has to end.
func (h *Host) Close() error {
	h.closing.Do(func() {
		h.queue.close(h.cfg.Grace)
		h.cancel()
		<-h.kept
	})
	return nil
}
