package policyhost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/protocol"
	"holdfast/shared/logging"
)

// A state is the state of the program:
//
//	starting → up → waiting → starting …
//
// From each of these states it may change to closed.
type state int

const (
	starting state = iota
	up
	waiting
	closed
)

// moveLocked changes the state, and panics if the change is not allowed.
func (h *Host) moveLocked(to state) {
	ok := to == closed || to == up && h.state == starting || to == waiting && h.state != closed || to == starting && h.state == waiting
	if !ok {
		panic(fmt.Sprintf("policyhost: from state %d to %d", h.state, to))
	}
	h.state, h.run = to, nil
}

// keepRunning restarts the program r whenever it ends or hangs, until ctx is canceled.
func (h *Host) keepRunning(r *run) {
	defer close(h.kept)
	for r != nil {
		select {
		case <-r.program.ctx.Done():
		case <-r.hung:
		case <-h.ctx.Done():
		}
		if h.ctx.Err() != nil {
			r.end(h.cfg.Grace)
			break
		}
		hung := r.isHung()
		r.kill()
		h.handleEnd(r, hung)
		r = h.restart()
	}
	h.mu.Lock()
	h.moveLocked(closed)
	h.mu.Unlock()
	h.log.Info().Msg("policy closed")
}

func (h *Host) handleEnd(r *run, hung bool) {
	lived := time.Since(r.since)
	h.mu.Lock()
	if lived >= h.cfg.Settled {
		h.wait = h.cfg.FirstWait
	}
	h.mu.Unlock()
	e := h.log.Warn().Int(logging.PID, r.program.pid).Dur(logging.Took, lived).Dur(logging.Wait, h.waitNext())
	if hung {
		e.Msg("policy hung and was killed")
		return
	}
	e.Str(logging.Reason, r.program.exitStatus()).Msg("policy ended")
}

// waitNext changes to waiting, returns the wait before the next start, and doubles it for the
// start after that.
func (h *Host) waitNext() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	wait := h.wait
	h.crashes++
	h.moveLocked(waiting)
	h.next, h.wait = time.Now().Add(wait), min(2*wait, h.cfg.LastWait)
	return wait
}

// restart starts the program until a start succeeds. It returns nil when ctx is canceled.
func (h *Host) restart() *run {
	for h.sleep() {
		h.mu.Lock()
		h.moveLocked(starting)
		h.next = time.Now()
		h.mu.Unlock()
		r, err := h.launch(h.ctx)
		switch {
		case err == nil:
			h.up(r)
			return r
		case h.ctx.Err() != nil:
			return nil
		}
		e := h.log.Warn().Err(err).Dur(logging.Wait, h.waitNext())
		if errors.Is(err, &protocol.Error{Code: protocol.CodePermissionDenied}) {
			e = e.Bool(logging.Security, true)
		}
		e.Msg("policy could not be restarted")
	}
	return nil
}

// sleep waits until h.next, and returns false if ctx was canceled.
func (h *Host) sleep() bool {
	h.mu.Lock()
	until := h.next
	h.mu.Unlock()
	ctx, cancel := context.WithDeadline(h.ctx, until)
	defer cancel()
	<-ctx.Done()
	return h.ctx.Err() == nil
}

func (h *Host) up(r *run) {
	h.mu.Lock()
	h.moveLocked(up)
	h.run, h.took = r, r.took
	h.starts++
	h.mu.Unlock()
	h.log.Info().Str(logging.Program, h.cfg.Path).Int(logging.PID, r.program.pid).Dur(logging.Took, r.took).Msg("policy started")
}

// minRetry is the shortest retry time that a client receives, because a start takes some time.
const minRetry = 10 * time.Millisecond

// current returns the program to ask, or nil and the expected time until there is one.
func (h *Host) current() (*run, time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.state == closed:
		return nil, time.Second // the time until another proxy serves is unknown
	case h.state == up && !h.run.isGone():
		return h.run, 0
	case h.state == up: // keep will notice soon that the program has ended
		return nil, h.wait + max(h.took, minRetry)
	}
	return nil, max(time.Until(h.next.Add(h.took)), minRetry)
}
