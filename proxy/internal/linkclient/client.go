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
	closed  bool
}

// New returns a Client without a link.
func New(cfg Config) *Client { return &Client{cfg: cfg} }

// Conn returns the live link, making it if there is none.
//
// Errors: protocol_mismatch, unauthorized and unsupported_os, which no waiting
// mends, and supervisor_unreachable.
func (c *Client) Conn(ctx context.Context) (*link.Conn, error) { return c.reach(ctx, true) }

// reach is Conn; start says whether a supervisor is started where none runs.
func (c *Client) reach(ctx context.Context, start bool) (*link.Conn, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, unreachable(net.ErrClosed)
		}
		if c.conn != nil && !ended(c.conn) {
			conn := c.conn
			c.mu.Unlock()
			return conn, nil
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
			return nil, unreachable(ctx.Err())
		}
	}
}

// connect is called by the one goroutine that set dialing.
func (c *Client) connect(ctx context.Context, start bool) (*link.Conn, error) {
	conn, welcome, err := c.dial(ctx, start)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.dialing)
	c.dialing = nil
	if err != nil {
		return nil, err
	}
	if c.closed {
		return nil, errors.Join(unreachable(net.ErrClosed), conn.Close())
	}
	c.conn, c.welcome = conn, welcome
	c.cfg.Log.Info().Int("supervisor_pid", welcome.PID).Str("version", welcome.Version).Int("agreed", welcome.Agreed).Msg("linked")
	return conn, nil
}

func (c *Client) dial(ctx context.Context, start bool) (*link.Conn, *wire.Welcome, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	start = start && c.cfg.Start != nil
	backoff, started := backoffMin, false
	for {
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

// Call makes one request. A link that breaks before the reply is
// supervisor_unreachable: whether the request was carried out is unknown.
func (c *Client) Call(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	conn, err := c.Conn(ctx)
	if err != nil {
		return nil, err
	}
	reply, err := conn.Call(ctx, request)
	return reply, c.lost(ctx, conn, err)
}

// Open makes a request whose stream goes on.
func (c *Client) Open(ctx context.Context, request protocol.Message) (*link.Stream, protocol.Message, error) {
	conn, err := c.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	st, reply, err := conn.Open(ctx, request)
	return st, reply, c.lost(ctx, conn, err)
}

// lost turns what a broken link causes into supervisor_unreachable.
func (c *Client) lost(ctx context.Context, conn *link.Conn, err error) error {
	var e *protocol.Error
	if err == nil || errors.As(err, &e) || ctx.Err() != nil {
		return err
	}
	return unreachable(err)
}

// List returns what is known of every session.
func (c *Client) List(ctx context.Context, originator string) ([]protocol.SessionInfo, error) {
	st, first, err := c.Open(ctx, wire.List{Originator: originator})
	if err != nil {
		return nil, err
	}
	defer st.Abort()
	part, ok := first.(*wire.Sessions)
	if !ok {
		return nil, protocol.Errorf(protocol.CodeInternal, "list answered by "+first.MessageType())
	}
	all := part.Sessions
	if part.More {
		stop := context.AfterFunc(ctx, st.Abort)
		rest, err := st.ReadSessions()
		if !stop() && err != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, unreachable(err)
		}
		all = append(all, rest...)
	}
	return all, nil
}

// Linked reports whether there is a live link: what asks then starts no supervisor.
func (c *Client) Linked() bool { return c.live() != nil }

// live returns the live link, or nil.
func (c *Client) live() *link.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil || ended(c.conn) {
		return nil
	}
	return c.conn
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
