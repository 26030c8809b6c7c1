package linkclient

import (
	"context"
	"errors"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
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

// ask is Call over the live link. It does not outlast ctx, though a link that
// takes nothing may.
func (c *Client) ask(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	conn := c.live()
	if conn == nil {
		return nil, unreachable(errNoLink)
	}
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
		var e *protocol.Error
		if a.err != nil && !errors.As(a.err, &e) {
			a.err = unreachable(a.err)
		}
		return a.reply, a.err
	case <-ctx.Done():
		return nil, unreachable(ctx.Err())
	}
}
