package linkserver

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
)

// Some reads cost time and memory by what a session keeps, or by the size that the client
// names: a screen at another size or with history, history itself, a search. So many are
// worked on at once; more wait for their turn, in the order of coming.
const (
	maxReads     = 8                // of all links
	maxLinkReads = 4                // of one
	maxWaiting   = 64               // of one; more are refused
	turnTime     = 10 * time.Second // in which a turn has to come
)

// turns lets in so many at once.
type turns struct {
	room    chan struct{}
	waiting atomic.Int64
}

func newTurns(atOnce int) *turns { return &turns{room: make(chan struct{}, atOnce)} }

// take waits for a turn, which leave ends.
//
// Errors: limit_exceeded, retryable; ctx's.
func (t *turns) take(ctx context.Context) error {
	select {
	case t.room <- struct{}{}:
		return nil
	default:
	}
	if t.waiting.Add(1) > maxWaiting {
		t.waiting.Add(-1)
		return noTurn(fmt.Sprintf("%d reads of histories and of screens at other sizes wait for their turn", maxWaiting))
	}
	defer t.waiting.Add(-1)
	ctx, cancel := context.WithTimeoutCause(ctx, turnTime, noTurn(fmt.Sprintf("the turn of this read did not come in %v", turnTime)))
	defer cancel()
	select {
	case t.room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *turns) leave() { <-t.room }

func noTurn(why string) error {
	return &protocol.Error{Code: protocol.CodeLimitExceeded, Message: why + "; ask again later", Retryable: true, RetryAfterMS: 1000}
}

// isDear reports whether a request has to wait for its turn.
func isDear(request protocol.Message) bool {
	switch m := request.(type) {
	case *wire.Screen:
		return m.Cols != 0 || m.Rows != 0 || m.Scrollback != 0 || m.Lines > protocol.MaxRows
	case *wire.History, *wire.Search:
		return true
	}
	return false
}

// turn waits until a request may be worked on. leave is to be called when that is done.
func (s *Server) turn(ctx context.Context, link *turns, request protocol.Message) (leave func(), err error) {
	if !isDear(request) {
		return func() {}, nil
	}
	if left := time.Until(s.cfg.NoReads); left > 0 {
		return nil, &protocol.Error{Code: protocol.CodeLimitExceeded, Retryable: true, RetryAfterMS: left.Milliseconds() + 1,
			Message: fmt.Sprintf("a supervisor died while it read history, or a screen at another size; such reads are refused for %v more", left.Round(time.Second))}
	}
	if err := link.take(ctx); err != nil {
		return nil, err
	}
	if err := s.reads.take(ctx); err != nil {
		link.leave()
		return nil, err
	}
	s.reading(1)
	return func() { s.reading(-1); s.reads.leave(); link.leave() }, nil
}

// reading tells how many dear reads are worked on, so that a successor knows what this
// supervisor may have died of.
func (s *Server) reading(change int) {
	if s.cfg.Reading == nil {
		return
	}
	s.readingMu.Lock()
	defer s.readingMu.Unlock()
	s.readingNow += change
	s.cfg.Reading(s.readingNow)
}
