package apiserver

import (
	"context"
	"sync"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
)

// subscription is a connection's subscription to events.
type subscription struct {
	mu         sync.Mutex
	isReserved bool                     // the connection has a subscription, or one is being made
	sub        *linkclient.Subscription // nil until it is made
	cancel     context.CancelFunc
}

// reserve reports whether the connection may subscribe. It may do so once.
func (f *subscription) reserve() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	isFree := !f.isReserved
	f.isReserved = true
	return isFree
}

// release reverses reserve, because the subscription could not be made.
func (f *subscription) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isReserved = false
}

// begin stores a subscription that was made. cancel ends it.
func (f *subscription) begin(sub *linkclient.Subscription, cancel context.CancelFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sub, f.cancel = sub, cancel
}

// stop ends the subscription if there is one.
func (f *subscription) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancel != nil {
		f.cancel()
	}
}

// record returns the position of the subscription, or nil if there is none.
func (f *subscription) record() *EventsRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sub == nil {
		return nil
	}
	instance, after := f.sub.Position()
	return &EventsRecord{Instance: instance, After: after}
}

// events subscribes the connection to events. If the link is lost, the subscription resumes after
// the last event that the client received.
func (c *conn) events(ctx context.Context, _ *request, m *api.Events) error {
	if err := c.authorizeList(ctx); err != nil {
		return err
	}
	if !c.following.reserve() {
		return protocol.Errorf(protocol.CodeInvalidArgument, "this connection is already subscribed to events")
	}
	err := c.follow(m.Instance, c.after(m.Instance, m.After), func(first *wire.Subscribed) {
		c.send(api.Subscribed{Request: m.Request, Instance: first.Instance, Seq: c.place(first.Seq)})
	})
	if err != nil {
		c.following.release()
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
	c.following.begin(sub, cancel)
	if c.life.is(phasePausing) { // pause may have run before this subscription was stored
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
