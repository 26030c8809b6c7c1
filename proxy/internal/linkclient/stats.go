package linkclient

import (
	"context"
	"errors"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
)

var errNoLink = errors.New("no link to the supervisor exists")

// Stats returns the supervisor's statistics. It uses only a live link, because a monitor must not
// start a supervisor.
func (c *Client) Stats(ctx context.Context) (*wire.StatsReport, error) {
	return wire.ReplyAs[*wire.StatsReport](c.ask(ctx, wire.Stats{}))
}

// Answers returns nil if the supervisor answers over the live link before ctx ends.
func (c *Client) Answers(ctx context.Context) error {
	_, err := c.ask(ctx, wire.Status{})
	return err
}

// ask makes a request over the live link and, if that link is lost, over the next one, which
// another goroutine must make. It returns when ctx ends, even if the link blocks.
func (c *Client) ask(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	if c.Welcome() == nil {
		return nil, unreachable(errNoLink)
	}
	for {
		conn, made := c.liveOrNext()
		var err error = errNoLink
		var retry <-chan time.Time
		if conn != nil {
			var reply protocol.Message
			reply, err = askOver(ctx, conn, request)
			if !isBroken(err) && protocol.CodeOf(err) != protocol.CodeUpgrading {
				return reply, err
			}
			retry = time.After(linkEnd)
		}
		select {
		case <-made:
		case <-retry:
			if isBroken(err) {
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
