package client

import (
	"context"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// Mark returns where a session is now, for Await: what is shown by then is no news.
//
// Errors: session_not_found, and unsupported where the proxy or its supervisor is too old.
func (c *Client) Mark(ctx context.Context, id protocol.SessionID) (*protocol.MarkInfo, error) {
	m, err := ask[*api.Marked](ctx, c, &api.Mark{SessionID: id}, true)
	if err != nil {
		return nil, err
	}
	return &m.MarkInfo, nil
}

// Await waits until a session has come to what spec asks for, or has ended: then the
// answer has its Exit. A negative timeout waits until ctx is done. To see what an input
// leads to, take a Mark, type, and await it with the mark as Since; a wait that is not
// since a mark may miss lines that come and go while the proxy or its supervisor is
// replaced.
//
// Errors: timeout, invalid_argument, instance_mismatch for a mark of another life,
// limit_exceeded, session_not_found, unsupported.
func (c *Client) Await(ctx context.Context, spec protocol.AwaitSpec, timeout time.Duration) (*protocol.AwaitedInfo, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	a, err := waitFor(ctx, c, timeout, func(ms *int64) (*api.Awaited, error) {
		return ask[*api.Awaited](ctx, c, &api.Await{AwaitSpec: spec, TimeoutMS: ms}, false)
	})
	if err != nil {
		return nil, err
	}
	return &a.AwaitedInfo, nil
}

// waitFor asks, and asks again where the answer is lost, for as long as timeout says:
// each time with what is left of it, or with nil if it is negative.
func waitFor[T any](ctx context.Context, c *Client, timeout time.Duration, ask func(ms *int64) (T, error)) (T, error) {
	deadline := time.Now().Add(timeout)
	for {
		var ms *int64
		if timeout >= 0 {
			left := max(0, time.Until(deadline))
			ms = millis(&left)
		}
		answer, err := ask(ms)
		if err == nil || !lost(err) || ctx.Err() != nil || c.isClosed() {
			return answer, err
		}
		if err := pause(ctx, backoffMax/10); err != nil {
			return answer, err
		}
	}
}
