// Package sweep ends sessions that have been idle for longer than their timeout.
//
// It selects sessions by last_io_at. The supervisor then decides, because it knows the newest
// input and output, and does not count the time for which the machine slept.
//
// Invariant: a session without an idle timeout must never be ended here, nor a session in an
// unknown state.
//
// Not here: how a session is ended (the supervisor), the messages about it to clients.
package sweep

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/logging"
)

const (
	// parts is how many times within an idle timeout the sessions are examined. The interval is
	// at least shortest and at most longest, because a session with a shorter timeout may be
	// started at any time.
	parts    = 4
	shortest = time.Second
	longest  = 15 * time.Second
)

// A Link carries requests to the supervisor; *linkclient.Client implements it.
type Link interface {
	Linked() bool
	List(ctx context.Context, originator string) ([]protocol.SessionInfo, error)
	Call(ctx context.Context, request protocol.Message) (protocol.Message, error)
}

// A Sweeper ends idle sessions while it runs.
type Sweeper struct {
	Link Link
	// Timeout applies to sessions without the label idle_timeout; if it is zero or negative, they
	// are never ended.
	Timeout time.Duration
	Log     zerolog.Logger
}

// Run examines the sessions from time to time until ctx is done.
func (s *Sweeper) Run(ctx context.Context) {
	for {
		wait := s.sweep(ctx)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// sweep examines the sessions once, and returns the time until the next examination.
func (s *Sweeper) sweep(ctx context.Context) time.Duration {
	if !s.Link.Linked() { // an examination must not start a supervisor
		return longest
	}
	smallest := time.Duration(0) // smallest of all timeouts
	sessions, err := s.Link.List(ctx, "")
	if err != nil && ctx.Err() == nil {
		s.Log.Warn().Err(err).Msg("idle sessions could not be listed")
	}
	now := time.Now()
	for i := range sessions {
		info := &sessions[i]
		timeout := s.timeout(info)
		if timeout <= 0 || info.State != protocol.StateRunning || info.Frozen { // a frozen session cannot print
			continue
		}
		if smallest == 0 || timeout < smallest {
			smallest = timeout
		}
		if now.Sub(info.LastIOAt) >= timeout {
			s.end(ctx, info, timeout)
		}
	}
	if smallest == 0 {
		return longest
	}
	return min(max(smallest/parts, shortest), longest)
}

// timeout returns the session's own timeout, or the default.
func (s *Sweeper) timeout(info *protocol.SessionInfo) time.Duration {
	own, ok := info.Labels[protocol.LabelIdleTimeout]
	if !ok {
		return s.Timeout
	}
	d, err := time.ParseDuration(own)
	if err != nil {
		return 0 // the label is invalid, and a session must not be ended on doubt
	}
	return d
}

// end asks the supervisor to end the session if it is still idle.
func (s *Sweeper) end(ctx context.Context, info *protocol.SessionInfo, timeout time.Duration) {
	_, err := s.Link.Call(ctx, wire.Terminate{
		SessionID: info.ID, Instance: info.Instance, IdleMS: timeout.Milliseconds(),
		Reason: protocol.ReasonIdleTimeout, TimedOut: true, Asker: protocol.Asker{By: "idle sweep"},
	})
	log := s.Log.With().Str(logging.Session, string(info.ID)).Dur("idle_timeout", timeout).Logger()
	switch code := protocol.CodeOf(err); {
	case err == nil:
		log.Info().Msg("idle session is being ended")
	case code == protocol.CodeSessionRunning, code == protocol.CodeSessionExited, code == protocol.CodeSessionNotFound, code == protocol.CodeInstanceMismatch:
	case !errors.Is(err, context.Canceled):
		log.Warn().Err(err).Msg("idle session could not be ended")
	}
}
