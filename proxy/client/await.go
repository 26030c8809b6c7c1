package client

import (
	"context"
	"errors"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// Mark returns the present position of a session, which Await takes as Since. Await then ignores
// everything that the screen showed before the mark.
//
// Its error is session_not_found.
func (c *Client) Mark(ctx context.Context, id protocol.SessionID) (*protocol.MarkInfo, error) {
	return askFor(ctx, c, &api.Mark{SessionID: id}, func(m *api.Marked) *protocol.MarkInfo { return &m.MarkInfo })
}

// Await waits until a session meets the condition in spec, or has ended; in that case the answer
// has its Exit. If timeout is negative, Await waits until ctx is done. To see the effect of an
// input, call Mark, send the input, and call Await with the mark as Since. If spec has a Text and no
// Since, Await takes an inclusive mark first, so that it misses no line if the connection is lost.
// If no answer comes within the timeout, because the supervisor was stopped, for example, Await fails
// with timeout some seconds later.
//
// Its errors are timeout, invalid_argument, instance_mismatch if the mark belongs to another
// instance of the session, limit_exceeded and session_not_found.
func (c *Client) Await(ctx context.Context, spec protocol.AwaitSpec, timeout time.Duration) (*protocol.AwaitedInfo, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if spec.Text != "" && len(spec.Since) == 0 {
		begun := time.Now()
		mark, err := waitFor(ctx, c, timeout, func(ctx context.Context, _ *int64) (*protocol.MarkInfo, error) {
			return c.Mark(ctx, spec.SessionID)
		})
		if err == nil { // otherwise the await fails for the same reason
			spec.Since = mark.Inclusive
		} else if ctx.Err() != nil || errors.Is(err, protocol.ErrTimeout) {
			return nil, err
		}
		if timeout >= 0 {
			timeout = max(0, timeout-time.Since(begun))
		}
	}
	return waitFor(ctx, c, timeout, func(ctx context.Context, ms *int64) (*protocol.AwaitedInfo, error) {
		return askFor(ctx, c, &api.Await{AwaitSpec: spec, TimeoutMS: ms}, func(a *api.Awaited) *protocol.AwaitedInfo { return &a.AwaitedInfo })
	})
}

// waitFor calls ask, and calls it again if the answer was lost, until the timeout has passed.
// Each call receives the remaining milliseconds, or nil if timeout is negative. The supervisor measures the timeout; if no
// answer comes, because a process was stopped, for example, waitFor fails with timeout some time later.
func waitFor[T any](ctx context.Context, c *Client, timeout time.Duration, ask func(ctx context.Context, ms *int64) (T, error)) (T, error) {
	deadline := time.Now().Add(timeout)
	caller := ctx
	if timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(c.answerTime))
		defer cancel()
	}
	for {
		var ms *int64
		if timeout >= 0 {
			left := max(0, time.Until(deadline))
			ms = millis(&left)
		}
		answer, err := ask(ctx, ms)
		if err == nil {
			return answer, nil
		}
		if lost(err) && !c.isClosed() {
			_ = pause(ctx, backoffMax/10) // ctx is examined next
		}
		if lost(err) && caller.Err() != nil {
			return answer, caller.Err()
		}
		if isLate := lost(err) || errors.Is(err, context.DeadlineExceeded); isLate && ctx.Err() != nil && caller.Err() == nil {
			return answer, protocol.Errorf(protocol.CodeTimeout, "no answer came within the timeout, so the state of the session is not known: %v", err)
		}
		if !lost(err) || ctx.Err() != nil || c.isClosed() {
			return answer, err
		}
	}
}
