package linkserver

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
)

// The time and memory of some reads depend on the history of a session, or on a size that the
// client chooses: a screen at another size or with history, history itself, a search, and all that
// reads the past. Only a limited number of them may run at once. Further ones wait for a turn, in
// the order of arrival.
const (
	maxReads     = 8                // running reads of all links
	maxLinkReads = 4                // running reads of one link
	maxWaiting   = 64               // waiting reads of one link; further reads are refused
	turnTime     = 10 * time.Second // longest wait for a turn
)

// maxLinkCopies is the number of parts of rings that are copied into replies of one link at once. Such a copy takes 2 MiB
// until the peer has read the reply. Further requests wait in the order of arrival, however long.
const maxLinkCopies = 32

// turns bounds how many reads run at once.
type turns struct {
	room    chan struct{}
	waiting atomic.Int64
	copies  chan struct{} // of a link: has an element for each copy of a ring
}

func newTurns(atOnce int) *turns {
	return &turns{room: make(chan struct{}, atOnce), copies: make(chan struct{}, maxLinkCopies)}
}

// take waits for a turn. leave must be called to return it.
//
// Errors: limit_exceeded, which is retryable; ctx's.
func (t *turns) take(ctx context.Context) error {
	select {
	case t.room <- struct{}{}:
		return nil
	default:
	}
	if t.waiting.Add(1) > maxWaiting {
		t.waiting.Add(-1)
		return noTurn(fmt.Sprintf("%d costly reads (history, search, screens of another size) already wait on this link", maxWaiting))
	}
	defer t.waiting.Add(-1)
	ctx, cancel := context.WithTimeoutCause(ctx, turnTime, noTurn(fmt.Sprintf("other costly reads took longer than %v", turnTime)))
	defer cancel()
	select {
	case t.room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// copy waits until a part of a ring may be copied. leave must be called when the reply is sent.
func (t *turns) copy(ctx context.Context) (leave func(), err error) {
	select {
	case t.copies <- struct{}{}:
		return func() { <-t.copies }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t *turns) leave() { <-t.room }

func noTurn(why string) error {
	return &protocol.Error{Code: protocol.CodeLimitExceeded, Message: why + "; retry later", Retryable: true, RetryAfterMS: 1000}
}

// isCostly reports whether a request must wait for a turn.
func isCostly(request protocol.Message) bool {
	switch m := request.(type) {
	case *wire.Screen:
		return m.Cols != 0 || m.Rows != 0 || m.Scrollback != 0 || m.Lines > protocol.MaxRows || m.At != nil
	case *wire.Read:
		return m.Past
	case *wire.History, *wire.Search, *wire.Past, *wire.SearchPast:
		return true
	}
	return false
}

// isReplay reports whether a request reads the past, which may take long, although others of its type
// do not.
func isReplay(request protocol.Message) bool {
	switch m := request.(type) {
	case *wire.Screen:
		return m.At != nil
	case *wire.Read:
		return m.Past
	}
	return false
}

// turn waits until a request may run. leave must be called when the request is done.
func (s *Server) turn(ctx context.Context, link *turns, request protocol.Message) (leave func(), err error) {
	if !isCostly(request) {
		if _, isCopy := request.(*wire.Read); isCopy {
			return link.copy(ctx)
		}
		return func() {}, nil
	}
	if left := time.Until(s.cfg.NoReads); left > 0 {
		return nil, &protocol.Error{Code: protocol.CodeLimitExceeded, Retryable: true, RetryAfterMS: left.Milliseconds() + 1,
			Message: fmt.Sprintf("a supervisor died during costly reads (history, search, screens of another size); they are refused for %v more", left.Round(time.Second))}
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

// reading reports how many costly reads run, so that a successor knows whether this supervisor
// may have died of one.
func (s *Server) reading(change int) {
	if s.cfg.Reading == nil {
		return
	}
	s.readingMu.Lock()
	defer s.readingMu.Unlock()
	s.readingNow += change
	s.cfg.Reading(s.readingNow)
}
