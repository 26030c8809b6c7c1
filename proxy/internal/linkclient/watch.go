package linkclient

import (
	"context"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
)

// watchPoll is how soon events are asked for again over a link that stays, where
// that failed.
const watchPoll = time.Second

// Watch calls told with each event until ctx is done, over live links alone:
// whoever looks on starts no supervisor. What happens while there is no link is
// told once there is one, if the supervisor is the same.
func (c *Client) Watch(ctx context.Context, told func(*wire.Event)) {
	at := wire.Events{}
	for ctx.Err() == nil {
		conn, made := c.liveOrNext()
		var again <-chan time.Time
		if conn != nil {
			watch(ctx, conn, &at, told)
			again = time.After(watchPoll)
		}
		select {
		case <-made:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// watch is Watch over one link.
func watch(ctx context.Context, conn *link.Conn, at *wire.Events, told func(*wire.Event)) {
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
			told(e)
		}
	}
}
