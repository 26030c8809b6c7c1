package apiserver

import (
	"context"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
)

// subscription is a connection's subscription to events; its fields are nil if there is none.
type subscription struct {
	sub    *linkclient.Subscription
	cancel context.CancelFunc
}

// events subscribes the connection to events. If the link is lost, the subscription resumes after
// the last event that the client received.
func (c *conn) events(ctx context.Context, _ *request, m *api.Events) error {
	if err := c.authorizeList(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	twice := c.isSubscribed
	c.isSubscribed = true
	c.mu.Unlock()
	if twice {
		return protocol.Errorf(protocol.CodeInvalidArgument, "this connection is already subscribed to events")
	}
	err := c.follow(m.Instance, c.after(m.Instance, m.After), func(first *wire.Subscribed) {
		c.send(api.Subscribed{Request: m.Request, Instance: first.Instance, Seq: c.place(first.Seq)})
	})
	if err != nil {
		c.mu.Lock()
		c.isSubscribed = false
		c.mu.Unlock()
	}
	return err
}

// follow subscribes to events, calls announce with the answer, and starts a goroutine that sends
// events until the connection ends or is frozen.
func (c *conn) follow(instance protocol.Instance, after uint64, announce func(*wire.Subscribed)) error {
	ctx, cancel := context.WithCancel(c.ctx)
	sub, first, err := c.s.cfg.Link.Subscribe(ctx, instance, after)
	if err != nil {
		cancel()
		return err
	}
	announce(first)
	c.mu.Lock()
	c.following = subscription{sub, cancel}
	isPausing := c.life.is(phasePausing)
	c.mu.Unlock()
	if isPausing { // pause has run before this subscription was stored
		cancel()
	}
	c.wg.Go(func() {
		defer cancel()
		for {
			e, err := sub.Next(ctx)
			if err != nil {
				return
			}
			c.sendEvent(e)
		}
	})
	return nil
}

// sendEvent sends an event to the client, unless the client may not see the session.
func (c *conn) sendEvent(e *wire.Event) {
	missed := e.Missed
	if e.Event == protocol.EventMissed && !c.canSeeAll() {
		missed = 1 // the true number would also count events of sessions that the client cannot see
	} else if e.Event != protocol.EventMissed && !c.canSeeAll() && (e.Session == nil || !c.canSee(e.Session)) {
		return
	}
	if s := e.Session; e.Event == protocol.EventExited && s != nil && s.Exit != nil {
		c.send(c.exitMessage(&wire.Exited{SessionID: s.ID, Instance: s.Instance, Labels: s.Labels, Exit: *s.Exit}, nil, c.place(e.Seq)))
		return
	}
	about := e.Session
	if about != nil {
		shown := c.clientView(*about)
		c.addForeground(&shown)
		about = &shown
	}
	c.send(api.Event{Seq: c.place(e.Seq), Event: e.Event, At: e.At, Session: about, Missed: missed, Notification: e.Notification})
}
