package linkclient

import (
	"context"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
)

// watchPoll is how long Watch waits before it subscribes again over the same link.
const watchPoll = time.Second

// Position returns the position behind the last event, for Watch.
func (c *Client) Position(ctx context.Context) (wire.Events, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the subscription
	s, _, err := c.Subscribe(ctx, "", 0)
	if err != nil {
		return wire.Events{}, err
	}
	return wire.Events{Instance: s.instance, After: s.seq}, nil
}

// Watch calls report with each event behind a position until ctx is done; the zero position stands for the present one. It
// uses only live links, because an observer must not start a supervisor. Events of a time without a link are reported over
// the next link, if the supervisor is the same instance.
func (c *Client) Watch(ctx context.Context, at wire.Events, report func(*wire.Event)) {
	for ctx.Err() == nil {
		conn, made := c.liveOrNext()
		var retry <-chan time.Time
		if conn != nil {
			watch(ctx, conn, &at, report)
			retry = time.After(watchPoll)
		}
		select {
		case <-made:
		case <-retry:
		case <-ctx.Done():
		}
	}
}

// watch subscribes over one link, and calls report with each event until the link is lost.
func watch(ctx context.Context, conn *link.Conn, at *wire.Events, report func(*wire.Event)) {
	st, reply, err := conn.Open(ctx, *at)
	if err != nil {
		return
	}
	defer st.Abort()
	defer context.AfterFunc(ctx, st.Abort)()
	first, ok := reply.(*wire.Subscribed)
	if !ok {
		return
	}
	at.Instance, at.After = first.Instance, first.Seq
	for {
		m, err := st.Receive()
		if err != nil && protocol.CodeOf(err) != protocol.CodeUnsupported {
			return
		}
		if e, ok := m.(*wire.Event); ok && err == nil {
			at.After = e.Seq
			report(e)
		}
	}
}
