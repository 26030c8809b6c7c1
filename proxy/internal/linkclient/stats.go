package linkclient

import (
	"context"
	"errors"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
)

var errNoLink = errors.New("there is no link")

// Stats returns the supervisor's numbers, over the live link alone: whoever looks
// on changes nothing. An older supervisor answers with unsupported.
func (c *Client) Stats(ctx context.Context) (*wire.StatsReport, error) {
	reply, err := c.ask(ctx, wire.Stats{})
	if err != nil {
		return nil, err
	}
	report, ok := reply.(*wire.StatsReport)
	if !ok {
		return nil, protocol.Errorf(protocol.CodeInternal, "stats answered by "+reply.MessageType())
	}
	return report, nil
}

// Answers returns nil if the supervisor answers over the live link before ctx ends.
func (c *Client) Answers(ctx context.Context) error {
	_, err := c.ask(ctx, wire.Status{})
	return err
}

// ask is Call over the live link, and over the next one where it is lost: that
// somebody else makes. It does not outlast ctx, though a link that takes nothing
// may.
func (c *Client) ask(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	if c.Welcome() == nil {
		return nil, unreachable(errNoLink)
	}
	for {
		conn, made := c.liveOrNext()
		var err error = errNoLink
		var again <-chan time.Time
		if conn != nil {
			var reply protocol.Message
			reply, err = askOver(ctx, conn, request)
			if !broke(err) && protocol.CodeOf(err) != protocol.CodeUpgrading {
				return reply, err
			}
			again = time.After(linkEnd)
		}
		select {
		case <-made:
		case <-again:
			if broke(err) {
				return nil, unreachable(err)
			}
		case <-ctx.Done():
			return nil, unreachable(errors.Join(ctx.Err(), err))
		}
	}
}

func askOver(ctx context.Context, conn *link.Conn, request protocol.Message) (protocol.Message, error) {
	type answer struct {
		reply protocol.Message
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		reply, err := conn.Call(ctx, request)
		answered <- answer{reply, err}
	}()
	select {
	case a := <-answered:
		return a.reply, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
