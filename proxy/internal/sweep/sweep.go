// Package sweep ends sessions that nobody has used for long.
//
// It looks at last_io_at, and leaves the last word to the supervisor, which
// knows whether there was I/O since, and does not count what the machine slept.
//
// Invariant: a session without an idle timeout is never ended here, nor is one
// of which nothing is known.
//
// Not here: what the end is (the supervisor's), what clients are told of it.
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
	// parts is how many looks there are in an idle timeout (DEMANDS M11), but they
	// are shortest apart at least, and longest at most: sessions come with timeouts
	// of their own.
	parts    = 4
	shortest = time.Second
	longest  = 15 * time.Second
)

// A Link is what is asked of the supervisor; *linkclient.Client is one.
type Link interface {
	Linked() bool
	List(ctx context.Context, originator string) ([]protocol.SessionInfo, error)
	Call(ctx context.Context, request protocol.Message) (protocol.Message, error)
}

// A Sweeper ends idle sessions while it runs.
type Sweeper struct {
	Link Link
	// Timeout is of sessions without the label idle_timeout; zero or negative is
	// never.
	Timeout time.Duration
	Log     zerolog.Logger
}

// Run looks from time to time until ctx is done.
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

// sweep looks once, and returns how long it is until the next time.
func (s *Sweeper) sweep(ctx context.Context) time.Duration {
	if !s.Link.Linked() { // nothing here is a reason to start a supervisor
		return longest
	}
	least := time.Duration(0) // of all timeouts
	sessions, err := s.Link.List(ctx, "")
	if err != nil && ctx.Err() == nil {
		s.Log.Warn().Err(err).Msg("idle sessions not looked for")
	}
	now := time.Now()
	for i := range sessions {
		info := &sessions[i]
		timeout := s.timeout(info)
		if timeout <= 0 || info.State != protocol.StateRunning {
			continue
		}
		if least == 0 || timeout < least {
			least = timeout
		}
		if now.Sub(info.LastIOAt) >= timeout {
			s.end(ctx, info, timeout)
		}
	}
	if least == 0 {
		return longest
	}
	return min(max(least/parts, shortest), longest)
}

// timeout is a session's own, or the default.
func (s *Sweeper) timeout(info *protocol.SessionInfo) time.Duration {
	own, ok := info.Labels[protocol.LabelIdleTimeout]
	if !ok {
		return s.Timeout
	}
	d, err := time.ParseDuration(own)
	if err != nil {
		return 0 // somebody meant something: not to end it is never wrong
	}
	return d
}

// end has the session marked, then ended, if it is still idle.
func (s *Sweeper) end(ctx context.Context, info *protocol.SessionInfo, timeout time.Duration) {
	_, err := s.Link.Call(ctx, wire.Terminate{
		SessionID: info.ID, Instance: info.Instance, IdleMS: timeout.Milliseconds(),
		Reason: protocol.ReasonIdleTimeout, TimedOut: true, Asker: protocol.Asker{By: "idle sweep"},
	})
	log := s.Log.With().Str(logging.Session, string(info.ID)).Dur("idle_timeout", timeout).Logger()
	switch code := protocol.CodeOf(err); {
	case err == nil:
		log.Info().Msg("idle session is ended")
	case code == protocol.CodeSessionRunning, code == protocol.CodeSessionExited, code == protocol.CodeSessionNotFound, code == protocol.CodeInstanceMismatch:
	case !errors.Is(err, context.Canceled):
		log.Warn().Err(err).Msg("idle session not ended")
	}
}
