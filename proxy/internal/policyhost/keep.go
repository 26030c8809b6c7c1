package policyhost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/protocol"
	"holdfast/shared/logging"
)

// A state is where the program stands.
//
//	starting → up → waiting → starting …
//
// and closed after each of them.
type state int

const (
	starting state = iota
	up
	waiting
	closed
)

// moveLocked makes every change of state.
func (h *Host) moveLocked(to state) {
	ok := to == closed || to == up && h.state == starting || to == waiting && h.state != closed || to == starting && h.state == waiting
	if !ok {
		panic(fmt.Sprintf("policyhost: from state %d to %d", h.state, to))
	}
	h.state, h.run = to, nil
}

// keep has the program run until ctx ends.
func (h *Host) keep(r *run) {
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
		h.ended(r, hung)
		r = h.again()
	}
	h.mu.Lock()
	h.moveLocked(closed)
	h.mu.Unlock()
	h.log.Info().Msg("policy closed")
}

func (h *Host) ended(r *run, hung bool) {
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
	e.Str(logging.Reason, r.program.how()).Msg("policy ended")
}

// waitNext moves to waiting, and doubles what is waited the next time.
func (h *Host) waitNext() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	wait := h.wait
	h.crashes++
	h.moveLocked(waiting)
	h.next, h.wait = time.Now().Add(wait), min(2*wait, h.cfg.LastWait)
	return wait
}

// again starts the program until it runs, or returns nil at the end of ctx.
func (h *Host) again() *run {
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
		e.Msg("policy cannot be started again")
	}
	return nil
}

// sleep waits until h.next, and reports whether to go on then.
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

// least is the shortest time to name as that of a start: it is never at once.
const least = 10 * time.Millisecond

// current returns the program to ask, or nil and how long it will not be there.
func (h *Host) current() (*run, time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.state == closed:
		return nil, time.Second // of our successor nothing is known
	case h.state == up && !h.run.gone():
		return h.run, 0
	case h.state == up: // and keep is about to learn that it is not
		return nil, h.wait + max(h.took, least)
	}
	return nil, max(time.Until(h.next.Add(h.took)), least)
}
