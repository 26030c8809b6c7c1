package client

import (
	"context"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// Mark returns the present position of a session, which Await takes as Since. Await then ignores
// everything that the screen showed before the mark.
//
// Its error is session_not_found.
func (c *Client) Mark(ctx context.Context, id protocol.SessionID) (*protocol.MarkInfo, error) {
	m, err := ask[*api.Marked](ctx, c, &api.Mark{SessionID: id})
	if err != nil {
		return nil, err
	}
	return &m.MarkInfo, nil
}

// Await waits until a session meets the condition in spec, or has ended; in that case the answer
// has its Exit. If timeout is negative, Await waits until ctx is done. To see the effect of an
// input, call Mark, send the input, and call Await with the mark as Since. A wait without a mark
// may miss lines that appear and disappear while the proxy or its supervisor is replaced.
//
// Its errors are timeout, invalid_argument, instance_mismatch if the mark belongs to another
// instance of the session, limit_exceeded and session_not_found.
func (c *Client) Await(ctx context.Context, spec protocol.AwaitSpec, timeout time.Duration) (*protocol.AwaitedInfo, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	a, err := waitFor(ctx, c, timeout, func(ms *int64) (*api.Awaited, error) {
		return ask[*api.Awaited](ctx, c, &api.Await{AwaitSpec: spec, TimeoutMS: ms})
	})
	if err != nil {
		return nil, err
	}
	return &a.AwaitedInfo, nil
}

// waitFor calls ask, and calls it again if the answer was lost, until the timeout has passed.
// Each call receives the remaining milliseconds, or nil if timeout is negative.
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
