package client

import (
	"context"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// If one of several gates is stopped, or its machine has no time for it, its connections do not end. A client therefore sends
// a ping over a silent connection, and leaves the connection for another gate if the answer does not come.

const (
	// silentTime is how long a connection through one of several gates may be silent while an answer is due, until the
	// client tries another gate. A host at a gate that does not answer connects to another one after about 20 s.
	silentTime = 5 * time.Second
	// calmTime is how long a connection on which no answer is due may be silent, until the client sends a ping.
	calmTime = 15 * time.Second
	// pingID is the request id of a ping. Other requests have numbers, and sizes other words.
	pingID = "ping"
)

// A silence is the time since the last frame of a connection.
type silence struct {
	mu       sync.Mutex
	since    time.Time // of the last frame
	pingedAt time.Time // zero if a frame has come since the last ping
}

// end ends the silence, because a frame has come.
func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.pingedAt = time.Now(), time.Time{}
}

// unanswered returns when the ping was sent that is not answered, or zero.
func (s *silence) unanswered() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pingedAt
}

// isDead reports whether a ping was not answered for silentTime. If the connection is silent for calm and no answer
// to a ping is due, isDead sends one.
func (c *conn) isDead(calm time.Duration) bool {
	s := &c.silence
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pingedAt.IsZero() {
		return time.Since(s.pingedAt) >= silentTime
	}
	if time.Since(s.since) >= calm {
		s.pingedAt = time.Now()
		go func() { _ = c.send(api.Ping{Request: protocol.Request{RequestID: pingID}}) }() // if it fails, reading fails, too
	}
	return false
}

// hasOtherGates reports whether a connection that does not answer can be replaced by one through another gate.
func (c *Client) hasOtherGates() bool { return c.o.Gate != nil && len(c.o.Gate.Addresses) > 1 }

// watch calls dead, in a goroutine, while conn is dead and something waits for its frames, until stop is called. ctx is done then.
func (c *Client) watch(conn *conn, calm time.Duration, isAwaited func() bool, dead func(ctx context.Context)) (stop func()) {
	if !c.hasOtherGates() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		tick := time.NewTicker(silentTime)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if isAwaited() && conn.isDead(calm) {
				dead(ctx)
			}
		}
	}()
	return cancel
}

// leave replaces a dead connection for requests, unless there is no other gate, or the connection answers again. The calls
// that wait for it then continue as after a lost connection.
func (c *Client) leave(ctx context.Context, conn *conn) {
	next, err := c.dial(ctx)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	isDead := conn.isDead(silentTime)
	if isDead {
		_ = conn.Close()
	}
	if !isDead || c.conn != conn || c.closed {
		_ = next.Close()
		return
	}
	c.use(next)
}
