// Package policyhost runs a policy's program. It starts the program, asks it, and starts it again
// when it ends or hangs.
//
// A Host is a policy.Policy. It asks over gRPC; each question has a deadline, and the number of
// simultaneous questions is limited. It sends events from a queue.
//
// Invariant: a question without an answer is refused. Whatever happens to the program, a question
// ends within its deadline with an answer, a refusal or policy_unavailable. No other part of the
// proxy waits for the program.
//
// Not here: which questions are asked and when (package apiserver); the meaning of the questions,
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
	maxCalls  = 256  // simultaneous questions; events are sent in addition
	maxEvents = 1024 // events that wait to be sent
)

// A Host keeps one program running and asks it.
//
//	keepRunning  owns the program: it starts, ends and replaces it (restart.go)
//	sendEvents   sends the events of the queue to it (observe.go)
//
// Both end with Close: sendEvents ends first, so that the last events are sent.
type Host struct {
	cfg  Config
	log  zerolog.Logger
	says *says

	slots  chan struct{}
	counts [methods]counts

	mu    sync.Mutex // guards the fields below
	state state
	run   *run          // set in state up; the program may have ended just now
	next  time.Time     // in state waiting: time of the next start; in state starting: time when the start began
	wait  time.Duration // wait before the start after the next one, or after the running program's end
	took  time.Duration // duration of the last start

	starts, crashes uint64

	queue *queue

	closing sync.Once
	ctx     context.Context // of keepRunning; canceled when all events are sent
	cancel  context.CancelFunc
	kept    chan struct{} // closed when keepRunning ends
}

var _ policy.Policy = (*Host)(nil)

// Check returns an error if the program of a config would not be started. It starts nothing.
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

// allowed returns an error unless the program may be started.
func (c Config) allowed() error {
	if err := trusted(c.Path); err != nil {
		return err
	}
	return hasSum(c.Path, c.SHA256)
}

// Start starts the program and returns when the program has answered the handshake. ctx limits
// only the start. The caller must close the Host.
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
	go h.keepRunning(r)
	go h.sendEvents()
	return h, nil
}

// Close ends the program and returns when its processes and files are removed. Before that it
// sends the queued events, for at most Config.Grace.
func (h *Host) Close() error {
	h.closing.Do(func() {
		h.queue.close(h.cfg.Grace)
		h.cancel()
		<-h.kept
	})
	return nil
}
