// Package client talks to a Holdfast proxy: start sessions, look at them, type
// into them, and learn how they ended.
//
// Every call survives the replacement of the proxy: requests are asked again
// where that is harmless, and attachments go on at their offsets, so that a
// reader sees every byte once and what is written arrives once.
//
// Failures to reach a proxy match ErrConnect, a broken connection ErrIO, and
// what makes no sense ErrDecode; what the proxy answers is a *protocol.Error
// and matches the protocol package's sentinels.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/shared/config"
)

// Options say which proxy to talk to. The zero value means the user's own.
type Options struct {
	Dir   string // where everything lies; default $HOLDFAST_DIR or the user's directories
	Proxy string // which of several proxies; default "proxy"
	Name  string // the client's name, for people and logs; default the program's
	// Start is called when no proxy runs, to start one; default none.
	Start func(context.Context) error
	// Redial is how long a lost connection is tried again; default 30 s.
	Redial time.Duration

	// Dial makes the connection, in place of Dir and Proxy.
	Dial          func(context.Context) (net.Conn, error)
	Token, Secret string
}

const (
	defaultRedial = 30 * time.Second
	backoffMin    = 2 * time.Millisecond
	backoffMax    = 200 * time.Millisecond
	// startAgain is how long a proxy that was started may take to serve. One
	// that is started beside it finds the lock held and leaves.
	startAgain = 2 * time.Second
)

func (o Options) withDefaults() (Options, error) {
	o.Redial = cmp.Or(o.Redial, defaultRedial)
	o.Name = cmp.Or(o.Name, programName())
	if o.Dial != nil {
		return o, nil
	}
	dirs, err := config.Resolve(o.Dir, os.Getenv)
	if err != nil {
		return o, err
	}
	o.Dial, err = dialer(dirs, config.APISocket(cmp.Or(o.Proxy, config.DefaultProxy)))
	return o, err
}

func programName() string {
	if exe, err := os.Executable(); err == nil {
		for i := len(exe) - 1; i >= 0; i-- {
			if os.IsPathSeparator(exe[i]) {
				return exe[i+1:]
			}
		}
	}
	return "client"
}

// A Client talks to one proxy and its successors. Its methods may be called
// from any goroutine.
//
//	read   one for the connection; ends the calls that wait when it breaks
type Client struct {
	o Options

	mu      sync.Mutex
	conn    *conn // of requests; attachments and events have their own
	dialing chan struct{}
	waiting map[string]chan protocol.Message
	last    uint64
	closed  bool
}

// Dial connects to a proxy and says hello.
func Dial(ctx context.Context, o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{o: o, waiting: make(map[string]chan protocol.Message)}
	if _, err := c.connection(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends the client's connection. Attachments and subscriptions are closed
// on their own.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// dial makes a connection, trying for as long as Options say, and starting a
// proxy where there is none and Options know how.
func (c *Client) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Redial)
	defer cancel()
	backoff, started := backoffMin, time.Time{}
	for {
		conn, err := dial(ctx, &c.o)
		if err == nil {
			return conn, nil
		}
		var answer *protocol.Error
		if errors.Is(err, ErrDecode) || errors.As(err, &answer) && !answer.Retryable {
			return nil, err // no waiting mends it
		}
		if errors.Is(err, ErrConnect) && ctx.Err() == nil {
			switch {
			case c.o.Start != nil && time.Since(started) > startAgain:
				started = time.Now()
				if err := c.o.Start(ctx); err != nil {
					return nil, failed(ErrConnect, err)
				}
			case c.o.Start == nil && !c.known():
				return nil, err // there never was one
			}
		}
		select {
		case <-time.After(backoff):
			backoff = min(2*backoff, backoffMax)
		case <-ctx.Done():
			return nil, err
		}
	}
}

// known reports whether this client has been connected before.
func (c *Client) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn != nil
}

// connection returns the live connection of requests, or makes it.
func (c *Client) connection(ctx context.Context) (*conn, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, failed(ErrIO, net.ErrClosed)
		}
		if c.conn != nil && !c.conn.over {
			conn := c.conn
			c.mu.Unlock()
			return conn, nil
		}
		if c.dialing == nil {
			c.dialing = make(chan struct{})
			c.mu.Unlock()
			return c.redial(ctx)
		}
		wait := c.dialing
		c.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, failed(ErrConnect, ctx.Err())
		}
	}
}

func (c *Client) redial(ctx context.Context) (*conn, error) {
	conn, err := c.dial(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.dialing)
	c.dialing = nil
	if err != nil {
		return nil, err
	}
	if c.closed {
		return nil, failed(ErrIO, errors.Join(net.ErrClosed, conn.Close()))
	}
	c.conn = conn
	go c.read(conn)
	return conn, nil
}

// read gives replies to the calls that wait for them.
func (c *Client) read(conn *conn) {
	for {
		m, err := conn.receive()
		if err != nil {
			break
		}
		if r, ok := m.(interface{ ID() string }); ok {
			c.mu.Lock()
			ch := c.waiting[r.ID()]
			c.mu.Unlock()
			if ch == nil {
				continue
			}
			select {
			case ch <- m:
			default: // more parts than any answer has
				_ = conn.Close()
			}
		}
	}
	_ = conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.over = true
	for id, ch := range c.waiting {
		delete(c.waiting, id)
		close(ch)
	}
}

// request is a message with a request id.
type request interface {
	protocol.Message
	SetID(string)
}

// maxParts is how many messages may answer one request and wait to be read.
const maxParts = 64

// begin sends a request and returns where its answers come. The channel is
// closed when the connection breaks.
func (c *Client) begin(ctx context.Context, m request) (answers chan protocol.Message, id string, err error) {
	conn, err := c.connection(ctx)
	if err != nil {
		return nil, "", err
	}
	answers = make(chan protocol.Message, maxParts)
	c.mu.Lock()
	if conn.over {
		c.mu.Unlock()
		return nil, "", failed(ErrIO, net.ErrClosed)
	}
	c.last++
	id = strconv.FormatUint(c.last, 10)
	c.waiting[id] = answers
	c.mu.Unlock()
	m.SetID(id)
	if err := conn.send(m); err != nil {
		c.finish(id)
		return nil, "", err
	}
	return answers, id, nil
}

func (c *Client) finish(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// call makes one request. Where again is set, a request whose connection broke
// is made once more on the next, until ctx is done.
func (c *Client) call(ctx context.Context, m request, again bool, each func(protocol.Message) (more bool)) error {
	for {
		err := c.once(ctx, m, each)
		if !again || !errors.Is(err, ErrIO) || c.isClosed() || pause(ctx, backoffMin) != nil {
			return err
		}
	}
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (c *Client) once(ctx context.Context, m request, each func(protocol.Message) bool) error {
	answers, id, err := c.begin(ctx, m)
	if err != nil {
		return err
	}
	defer c.finish(id)
	for {
		select {
		case answer, ok := <-answers:
			if !ok {
				return failed(ErrIO, fmt.Errorf("%s: the connection was lost", m.MessageType()))
			}
			if e, ok := answer.(*api.Error); ok {
				return &e.Error
			}
			if !each(answer) {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", m.MessageType(), ctx.Err())
		}
	}
}

// ask makes a request that is answered by one message of type T.
func ask[T protocol.Message](ctx context.Context, c *Client, m request, again bool) (T, error) {
	var answer T
	var wrong protocol.Message
	err := c.call(ctx, m, again, func(got protocol.Message) bool {
		if a, ok := got.(T); ok {
			answer = a
		} else {
			wrong = got
		}
		return false
	})
	if err == nil && wrong != nil {
		err = failed(ErrDecode, fmt.Errorf("%s answered by %s", m.MessageType(), wrong.MessageType()))
	}
	return answer, err
}

// ProxyPID is the pid of the proxy that the client is, or was last, connected
// to.
func (c *Client) ProxyPID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.welcome.PID
}
