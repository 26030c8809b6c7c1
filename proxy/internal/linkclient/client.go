// Package linkclient asks the supervisor: one live link, made when it is
// needed, starting the supervisor where none runs, and made again when it is
// lost.
//
// Invariant: a link that cannot be made says nothing about the sessions. No
// failure here ends or forgets one; it is supervisor_unreachable, and may be
// tried again.
//
// Not here: what clients say (package apiserver).
package linkclient

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
)

const (
	// connectTimeout is how long a request waits for a supervisor that is
	// being started or upgraded.
	connectTimeout = 10 * time.Second
	backoffMin     = 2 * time.Millisecond
	backoffMax     = 200 * time.Millisecond
)

// Config is what a Client needs.
type Config struct {
	Dial  func(context.Context) (net.Conn, error) // fails with unsupported_os where there can be no supervisor
	Start func(context.Context) error             // starts a supervisor in the background; nil does not
	Held  func() error                            // why none comes, where it is no use to wait for one; nil or returns nil
	Hello func() wire.Hello
	Log   zerolog.Logger
}

// A Client holds the link. Its methods may be called from any goroutine.
type Client struct {
	cfg Config

	mu      sync.Mutex
	conn    *link.Conn
	welcome *wire.Welcome
	dialing chan struct{} // not nil while one goroutine makes the link
	made    chan struct{} // closed when the next link is made
	closed  bool
}

// New returns a Client without a link.
func New(cfg Config) *Client { return &Client{cfg: cfg, made: make(chan struct{})} }

// Conn returns the live link, making it if there is none.
//
// Errors: protocol_mismatch, unauthorized and unsupported_os, which no waiting
// mends, and supervisor_unreachable.
func (c *Client) Conn(ctx context.Context) (*link.Conn, error) {
	conn, _, err := c.reach(ctx, true)
	return conn, err
}

// reach is Conn, and whose link it is; start says whether a supervisor is started
// where none runs.
func (c *Client) reach(ctx context.Context, start bool) (*link.Conn, *wire.Welcome, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, nil, unreachable(net.ErrClosed)
		}
		if c.conn != nil && !ended(c.conn) {
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

// connect is called by the one goroutine that set dialing.
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
	c.cfg.Log.Info().Int("supervisor_pid", welcome.PID).Str("version", welcome.Version).Int("agreed", welcome.Agreed).Msg("linked")
	return conn, welcome, nil
}

func (c *Client) dial(ctx context.Context, start bool) (*link.Conn, *wire.Welcome, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	start = start && c.cfg.Start != nil
	backoff, started := backoffMin, false
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
			c.cfg.Log.Info().Err(err).Msg("link not made")
		} else if protocol.CodeOf(err) == protocol.CodeUnsupportedOS {
			return nil, nil, err // there is none to be started, either
		} else if nobody(err) && start && !started {
			// Two proxies may do this at the same moment: the second
			// supervisor finds the lock held and leaves.
			started = true
			if err := c.cfg.Start(ctx); err != nil {
				return nil, nil, unreachable(fmt.Errorf("start supervisor: %w", err))
			}
		} else if nobody(err) && !start {
			return nil, nil, unreachable(err)
		}
		select {
		case <-time.After(backoff):
			backoff = min(2*backoff, backoffMax)
		case <-ctx.Done():
			return nil, nil, unreachable(errors.Join(ctx.Err(), err))
		}
	}
}

// nobody reports whether err says for certain that no process listens.
func nobody(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

func ended(c *link.Conn) bool {
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
		Message: fmt.Sprintf("the supervisor cannot be reached, so nothing is known of its sessions: %v", err),
	}
}

// Call makes one request, which outlives a supervisor that becomes another
// program, or that dies and is started again with its sessions: see repeat.go.
// Otherwise a link that breaks before the reply is supervisor_unreachable:
// whether the request was carried out is unknown.
func (c *Client) Call(ctx context.Context, request protocol.Message) (reply protocol.Message, err error) {
	err = c.over(ctx, request, func(conn *link.Conn, m protocol.Message) error {
		st, r, err := conn.Open(ctx, m)
		if err == nil {
			reply = r
			_ = st.Close() // the reply is here, whatever becomes of the link
		}
		return err
	})
	if errors.Is(err, errDone) {
		return &wire.OK{}, nil
	}
	return reply, lost(ctx, err)
}

// Open makes a request whose stream goes on. It is repeated as Call's are.
func (c *Client) Open(ctx context.Context, request protocol.Message) (st *link.Stream, reply protocol.Message, err error) {
	err = c.over(ctx, request, func(conn *link.Conn, m protocol.Message) error {
		var err error
		st, reply, err = conn.Open(ctx, m)
		return err
	})
	return st, reply, lost(ctx, err)
}

// lost turns what a broken link causes into supervisor_unreachable.
func lost(ctx context.Context, err error) error {
	if !broke(err) || ctx.Err() != nil {
		return err
	}
	return unreachable(err)
}

// List returns what is known of every session.
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
	part, ok := first.(*wire.Sessions)
	if !ok {
		return nil, protocol.Errorf(protocol.CodeInternal, "list answered by "+first.MessageType())
	}
	if !part.More {
		return part.Sessions, nil
	}
	stop := context.AfterFunc(ctx, st.Abort)
	rest, err := st.ReadSessions()
	if !stop() && err != nil {
		return nil, ctx.Err()
	}
	return append(part.Sessions, rest...), err
}

// Linked reports whether there is a live link: what asks then starts no supervisor.
func (c *Client) Linked() bool { return c.live() != nil }

// live returns the live link, or nil.
func (c *Client) live() *link.Conn {
	conn, _ := c.liveOrNext()
	return conn
}

// liveOrNext returns the live link, or nil, and what is closed when another is
// made.
func (c *Client) liveOrNext() (live *link.Conn, made <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil || ended(c.conn) {
		return nil, c.made
	}
	return c.conn, c.made
}

// Welcome returns what the supervisor last said of itself; nil before the
// first link.
func (c *Client) Welcome() *wire.Welcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.welcome
}

// Close ends the link; there will be no other.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}
