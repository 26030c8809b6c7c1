package link

import (
	"context"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/link"
)

// Status asks the supervisor for its status. If ctx is done before the answer, Status closes the
// link, because a call to a supervisor that reads nothing would not return otherwise.
func (c *Conn) Status(ctx context.Context) (*protocol.ProcessStatus, error) {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	reply, err := c.Call(ctx, link.Status{})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	report, ok := reply.(*link.StatusReport)
	if !ok {
		return nil, unexpected(reply)
	}
	return &report.Supervisor, nil
}

// statusPoll is the pause between two questions of AwaitStatus.
const statusPoll = 5 * time.Millisecond

// AwaitStatus calls ask until judge decides about the status that ask returned, and returns the
// error of judge. It is meant for a supervisor that is being replaced: judge also receives the
// errors of ask, because for a while no supervisor answers. If ctx is done first, AwaitStatus
// returns decided = false and the last error of ask.
func AwaitStatus(
	ctx context.Context, ask func(context.Context) (*protocol.ProcessStatus, error),
	judge func(*protocol.ProcessStatus, error) (decided bool, err error),
) (decided bool, err error) {
	for {
		status, err := ask(ctx)
		if decided, err := judge(status, err); decided {
			return true, err
		}
		select {
		case <-time.After(statusPoll):
		case <-ctx.Done():
			return false, err
		}
	}
}
