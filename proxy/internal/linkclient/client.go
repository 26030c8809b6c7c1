// Package linkclient sends requests to the supervisor over one live link. It makes the link when
// a request needs it, starts the supervisor if none runs, and makes a new link after a loss.
//
// Invariant: if no link can be made, that says nothing about the sessions. No failure in this
// package ends or forgets a session. The error is supervisor_unreachable, and the request may be
// repeated.
//
// Not here: the messages of clients (package apiserver).
package linkclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/socket"
)

// connectTimeout is how long a request waits for a supervisor that is being started or upgraded.
const connectTimeout = 10 * time.Second

// Config holds the dependencies of a Client.
type Config struct {
	Dial  func(context.Context) (net.Conn, error) // fails with unsupported_os if this system can have no supervisor
	Start func(context.Context) error             // starts a supervisor in the background; nil starts none
	Held  func() error                            // returns why no supervisor will come, or nil; it may be nil
	Hello func() wire.Hello
	Log   zerolog.Logger
}

// A Client holds the link to the supervisor. Its methods may be called from any goroutine.
type Client struct {
	cfg Config

	mu      sync.Mutex
	conn    *link.Conn
	welcome *wire.Welcome
	dialing chan struct{} // not nil while a goroutine makes the link
	made    chan struct{} // closed when the next link is made
	closed  bool
}

// New returns a Client that has no link yet.
func New(cfg Config) *Client { return &Client{cfg: cfg, made: make(chan struct{})} }

// Conn returns the live link, and makes one if there is none.
//
// Its errors are supervisor_unreachable, and protocol_mismatch, unauthorized and unsupported_os,
// which a repetition would not change.
func (c *Client) Conn(ctx context.Context) (*link.Conn, error) {
	conn, _, err := c.reach(ctx, true)
	return conn, err
}

// reach returns the live link and its welcome, and makes the link if there is none. If start is
// true and no supervisor runs, reach starts one.
func (c *Client) reach(ctx context.Context, start bool) (*link.Conn, *wire.Welcome, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, nil, unreachable(net.ErrClosed)
		}
		if c.conn != nil && !hasEnded(c.conn) {
			conn, welcome := c.conn, c.welcome
			c.mu.Unlock()
			return conn, welcome, nil
		}
		if c.dialing == nil {
			c.dialing = make(chan struct{})
			c.mu.Unlock()
			return c.connect(ctx, start)
		}
		wait := c.dialing
		c.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, nil, unreachable(ctx.Err())
		}
	}
}

// connect makes the link. It must be called by the goroutine that has set c.dialing.
func (c *Client) connect(ctx context.Context, start bool) (*link.Conn, *wire.Welcome, error) {
	conn, welcome, err := c.dial(ctx, start)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.dialing)
	c.dialing = nil
	if err != nil {
		return nil, nil, err
	}
	if c.closed {
		return nil, nil, errors.Join(unreachable(net.ErrClosed), conn.Close())
	}
	c.conn, c.welcome = conn, welcome
	close(c.made)
	c.made = make(chan struct{})
	c.cfg.Log.Info().Int("supervisor_pid", welcome.PID).Str("version", welcome.Version).Int("agreed", welcome.Agreed).Msg("link to the supervisor made")
	return conn, welcome, nil
}

func (c *Client) dial(ctx context.Context, start bool) (*link.Conn, *wire.Welcome, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	start = start && c.cfg.Start != nil
	var pause backoff
	started := false
	for {
		if c.cfg.Held != nil {
			if err := c.cfg.Held(); err != nil {
				return nil, nil, unreachable(err)
			}
		}
		nc, err := c.cfg.Dial(ctx)
		if err == nil {
			conn, welcome, sessions, err := link.Dial(nc, c.cfg.Hello(), c.cfg.Log)
			if err == nil {
				c.cfg.Log.Info().Int("sessions", len(sessions)).Msg("supervisor enumerated its sessions")
				return conn, welcome, nil
			}
			if code := protocol.CodeOf(err); code == protocol.CodeProtocolMismatch || code == protocol.CodeUnauthorized {
				return nil, nil, err
			}
			c.cfg.Log.Info().Err(err).Msg("link could not be made")
		} else if protocol.CodeOf(err) == protocol.CodeUnsupportedOS {
			return nil, nil, err // a supervisor cannot be started either
		} else if socket.IsAbsent(err) && start && !started {
			// Two proxies may start a supervisor at the same moment. The second supervisor finds
			// the lock held and ends.
			started = true
			if err := c.cfg.Start(ctx); err != nil {
				return nil, nil, unreachable(fmt.Errorf("start supervisor: %w", err))
			}
		} else if socket.IsAbsent(err) && !start {
			return nil, nil, unreachable(err)
		}
		if ended := pause.wait(ctx); ended != nil {
			return nil, nil, unreachable(errors.Join(ended, err))
		}
	}
}

func hasEnded(c *link.Conn) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

func unreachable(err error) error {
	return &protocol.Error{
		Code: protocol.CodeSupervisorUnreachable, Retryable: true, RetryAfterMS: backoffMax.Milliseconds(),
		Message: fmt.Sprintf("the supervisor cannot be reached, so the state of its sessions is unknown: %v", err),
	}
}

// Call makes one request and returns the reply. If the supervisor execs another program, or dies
// and is started again with its sessions, Call may repeat the request: see repeat.go. If the link
// breaks before the reply in any other case, the error is supervisor_unreachable, and it is
// unknown whether the request was carried out.
func (c *Client) Call(ctx context.Context, request protocol.Message) (reply protocol.Message, err error) {
	err = c.over(ctx, request, func(conn *link.Conn, m protocol.Message) error {
		st, r, err := conn.Open(ctx, m)
		if err == nil {
			reply = r
			_ = st.Close() // the reply has arrived, so the state of the link does not matter
		}
		return err
	})
	if errors.Is(err, errDone) {
		return &wire.OK{}, nil
	}
	return reply, lost(ctx, err)
}

// Open makes a request with a stream that continues after the reply. The request is repeated under the
// same conditions as in Call.
func (c *Client) Open(ctx context.Context, request protocol.Message) (st *link.Stream, reply protocol.Message, err error) {
	st, reply, _, err = c.openFrom(ctx, request)
	return st, reply, err
}

// openFrom is Open, and also returns the process id of the supervisor that has replied, or 0 if its link is the live one no
// more.
func (c *Client) openFrom(ctx context.Context, request protocol.Message) (st *link.Stream, reply protocol.Message, pid int, err error) {
	err = c.over(ctx, request, func(conn *link.Conn, m protocol.Message) error {
		var err error
		st, reply, err = conn.Open(ctx, m)
		pid = c.pidOf(conn)
		return err
	})
	return st, reply, pid, lost(ctx, err)
}

func (c *Client) pidOf(conn *link.Conn) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != conn {
		return 0
	}
	return c.welcome.PID
}

// lost replaces the error of a broken link by supervisor_unreachable.
func lost(ctx context.Context, err error) error {
	if !isBroken(err) || ctx.Err() != nil {
		return err
	}
	return unreachable(err)
}

// List returns the state of every session, or of the sessions of one originator.
func (c *Client) List(ctx context.Context, originator string) (all []protocol.SessionInfo, err error) {
	err = c.over(ctx, wire.List{Originator: originator}, func(conn *link.Conn, m protocol.Message) error {
		var err error
		all, err = list(ctx, conn, m)
		return err
	})
	if err != nil {
		return nil, lost(ctx, err)
	}
	return all, nil
}

// list reads all parts of the answer to a List.
func list(ctx context.Context, conn *link.Conn, m protocol.Message) ([]protocol.SessionInfo, error) {
	st, first, err := conn.Open(ctx, m)
	if err != nil {
		return nil, err
	}
	defer st.Abort()
	part, err := wire.ReplyAs[*wire.Sessions](first, nil)
	if err != nil {
		return nil, err
	}
	if !part.More {
		return part.Sessions, nil
	}
	stop := context.AfterFunc(ctx, st.Abort)
	remainder, err := st.ReadSessions()
	if !stop() && err != nil {
		return nil, ctx.Err()
	}
	return append(part.Sessions, remainder...), err
}

// Linked reports whether there is a live link. If so, a request does not start a supervisor.
func (c *Client) Linked() bool { return c.live() != nil }

// live returns the live link, or nil.
func (c *Client) live() *link.Conn {
	conn, _ := c.liveOrNext()
	return conn
}

// liveOrNext returns the live link, or nil, and a channel that is closed when another link is
// made.
func (c *Client) liveOrNext() (live *link.Conn, made <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil || hasEnded(c.conn) {
		return nil, c.made
	}
	return c.conn, c.made
}

// Welcome returns the last welcome of the supervisor; nil before the first link.
func (c *Client) Welcome() *wire.Welcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.welcome
}

// Close closes the link. Later requests fail.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}
