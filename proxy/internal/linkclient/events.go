package linkclient

import (
	"context"
	"io"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
)

// A Subscription is a stream of events. After the loss of a link it continues behind the last
// event that Next has returned.
type Subscription struct {
	c        *Client
	st       *link.Stream
	instance protocol.Instance
	seq      uint64
	release  func() bool // stops the AfterFunc of the context
}

// Subscribe requests the events after the given number of a supervisor's instance, or only new
// events if the instance is "".
func (c *Client) Subscribe(ctx context.Context, instance protocol.Instance, after uint64) (*Subscription, *wire.Subscribed, error) {
	s := &Subscription{c: c, instance: instance, seq: after}
	first, err := s.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	return s, first, nil
}

func (s *Subscription) open(ctx context.Context) (*wire.Subscribed, error) {
	st, reply, err := s.c.Open(ctx, wire.Events{Instance: s.instance, After: s.seq})
	if err != nil {
		return nil, err
	}
	first, err := wire.ReplyAs[*wire.Subscribed](reply, nil)
	if err != nil {
		st.Abort()
		return nil, err
	}
	s.release = context.AfterFunc(ctx, st.Abort)
	s.st, s.instance, s.seq = st, first.Instance, first.Seq
	return first, nil
}

// Next waits for the next event and returns it, or io.EOF when ctx is done. If the supervisor is replaced by another
// instance, which numbers its events from the beginning, Next returns an event "missed" without a number.
func (s *Subscription) Next(ctx context.Context) (*wire.Event, error) {
	var pause backoff
	for {
		m, err := s.st.Receive()
		if e, ok := m.(*wire.Event); ok && err == nil {
			s.seq = e.Seq
			return e, nil
		}
		if err == nil || protocol.CodeOf(err) == protocol.CodeUnsupported {
			continue
		}
		s.release()
		s.st.Abort()
		before := s.instance
		for err != nil {
			if ctx.Err() != nil {
				return nil, io.EOF
			}
			_ = pause.wait(ctx) // if ctx is done, so is the next attempt
			_, err = s.open(ctx)
		}
		if s.instance != before {
			return &wire.Event{Seq: s.seq, Event: protocol.EventMissed, At: time.Now()}, nil
		}
	}
}

// Position returns the supervisor's instance and the number of the last event that Next has
// returned.
func (s *Subscription) Position() (protocol.Instance, uint64) { return s.instance, s.seq }

// Status returns the supervisor's state.
func (c *Client) Status(ctx context.Context) (protocol.ProcessStatus, error) {
	report, err := wire.ReplyAs[*wire.StatusReport](c.Call(ctx, wire.Status{}))
	if err != nil {
		return protocol.ProcessStatus{}, err
	}
	return report.Supervisor, nil
}
