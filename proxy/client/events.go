package client

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// An Event is an event of a session. The event of a session's end has Exit and no Session; its time is that of
// the end.
type Event struct {
	Seq     uint64                `json:"seq"`
	Event   protocol.EventKind    `json:"event"`
	At      time.Time             `json:"at,omitzero"`
	Session *protocol.SessionInfo `json:"session,omitempty"`
	Exit    *api.PTYExited        `json:"exit,omitempty"`
	Missed  uint64                `json:"missed,omitempty"`

	Notification *protocol.Notification `json:"notification,omitempty"`
}

// Events is a subscription to events. If the proxy is replaced, the subscription continues
// without a gap, unless the supervisor has dropped events meanwhile, or has died with its sessions. Then an event
// "missed" comes first.
type Events struct {
	c        *Client
	conn     *conn
	release  func() bool // ends the wait for Close that would close conn
	ctx      context.Context
	end      context.CancelFunc
	instance protocol.Instance
	seq      uint64
	newest   uint64
	isRead   atomic.Bool // Next waits for a frame
	hasLost  bool        // the supervisor is another instance since the last event, so its events before are unknown
}

// Events subscribes to all later events. After Close of the client, the error is an ErrIO.
func (c *Client) Events(ctx context.Context) (*Events, error) {
	if err := c.checkOpen(); err != nil {
		return nil, err
	}
	e := &Events{c: c}
	e.ctx, e.end = context.WithCancel(context.Background())
	if err := e.connect(ctx, lost); err != nil {
		e.end()
		return nil, err
	}
	e.newest = e.seq
	return e, nil
}

// EventsAfter subscribes to all events after the event number after: those that the supervisor
// still holds, and all later ones. If after is 0, it begins with the oldest event that the
// supervisor holds. If some events are no longer held, the first event is "missed". The numbers
// begin anew when a supervisor has died with its sessions.
func (c *Client) EventsAfter(ctx context.Context, after uint64) (*Events, error) {
	e, err := c.Events(ctx) // learns the supervisor's instance
	if err != nil {
		return nil, err
	}
	e.drop()
	e.newest, e.seq = e.seq, after
	if err := e.connect(ctx, lost); err != nil {
		e.end()
		return nil, err
	}
	return e, nil
}

// Newest returns the number of the last event before the subscription.
func (e *Events) Newest() uint64 { return e.newest }

// Close ends the subscription; Next then returns io.EOF.
func (e *Events) Close() error {
	e.end()
	return nil
}

// connect subscribes over a new connection. If mayRetry permits it for an error, connect tries again for the time
// Options.Redial.
func (e *Events) connect(ctx context.Context, mayRetry func(error) bool) error {
	ctx, cancel := context.WithTimeout(ctx, e.c.o.Redial)
	defer cancel()
	for wait := (backoff{}); ; {
		err := e.subscribe(ctx)
		if err == nil {
			return nil
		}
		if !mayRetry(err) || wait.pause(ctx, err) != nil {
			return orCanceled(ctx, err)
		}
	}
}

func (e *Events) subscribe(ctx context.Context) error {
	conn, err := e.c.dial(ctx)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	err = conn.send(api.Events{Instance: e.instance, After: e.seq})
	if err == nil {
		err = e.subscribed(conn)
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	e.conn = conn
	unwatch := e.c.watch(conn, calmTime, e.isRead.Load, func(ctx context.Context) { e.leave(ctx, conn) })
	closed := context.AfterFunc(e.ctx, func() {
		unwatch()
		_ = conn.Close()
	})
	e.release = func() bool {
		unwatch()
		return closed()
	}
	return nil
}

// leave closes a dead connection if there is another gate, so that Next subscribes again.
func (e *Events) leave(ctx context.Context, conn *conn) {
	next, err := e.c.dial(ctx)
	if err != nil {
		return
	}
	_ = next.Close()
	if conn.isDead(calmTime) {
		_ = conn.Close()
	}
}

// drop closes the connection before the next one is made. It also ends the connection's wait for Close, which would
// keep the connection and its buffers in memory as long as the subscription lasts.
func (e *Events) drop() {
	e.release()
	_ = e.conn.Close()
}

func (e *Events) subscribed(conn *conn) error {
	m, err := conn.receive()
	if err != nil {
		return err
	}
	s, err := answerTo[*api.Subscribed]("events", m)
	if err != nil {
		return err
	}
	e.hasLost = e.hasLost || e.instance != "" && e.instance != s.Instance
	e.instance, e.seq = s.Instance, s.Seq
	return nil
}

// Next waits for the next event and returns it, or io.EOF after Close. After an event "missed", the caller should
// list the sessions. Its number of missed events is 0 if the supervisor is another instance, which numbers its events
// from the beginning.
func (e *Events) Next() (*Event, error) {
	for {
		if e.hasLost {
			e.hasLost = false
			return &Event{Seq: e.seq, Event: protocol.EventMissed}, nil
		}
		e.isRead.Store(true)
		m, err := e.conn.receive()
		e.isRead.Store(false)
		if err != nil {
			if e.ctx.Err() != nil {
				return nil, io.EOF
			}
			if errors.Is(err, ErrDecode) {
				return nil, err // the same message would come again
			}
			e.drop()
			_ = pause(e.ctx, backoffMin) // if a proxy drops each connection, this wait limits the attempts
			if err := e.connect(e.ctx, mayResume); err != nil && e.ctx.Err() == nil {
				return nil, err
			}
			continue
		}
		switch m := m.(type) {
		case *api.Goaway:
			_ = e.conn.Close() // the next subscription continues after the last event
		case *api.Event:
			e.seq = m.Seq
			return &Event{Seq: m.Seq, Event: m.Event, At: m.At, Session: m.Session, Missed: m.Missed, Notification: m.Notification}, nil
		case *api.PTYExited:
			e.seq = m.Seq
			return &Event{Seq: m.Seq, Event: protocol.EventExited, At: m.ExitedAt, Exit: m}, nil
		}
	}
}
