// Package client talks to a Holdfast proxy. A program can start sessions, read their screens,
// write their input, and learn how they ended.
//
// Each call survives the replacement of the proxy. If a connection breaks, a request is repeated if
// SPEC.md permits it. Attachments continue at their offsets, so that a reader receives every byte once, and
// every written byte arrives once.
//
// If no proxy can be reached, the error matches ErrConnect; if a connection breaks, ErrIO; if an
// answer is invalid, ErrDecode. An error that the proxy answers is a *protocol.Error and matches
// the sentinels of package protocol.
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

// Options select the proxy. The zero value selects the user's own proxy.
type Options struct {
	Dir   string // directory of Holdfast's files; default $HOLDFAST_DIR or the user's directories
	Proxy string // name of the proxy, if there are several; default "proxy"
	Name  string // name of the client, for people and logs; default the program's name
	// Start is called to start a proxy if none runs; nil means that no proxy is started.
	Start func(context.Context) error
	// Redial is how long a lost connection is tried again, and how long the first one may take; the
	// default is 30 s, and 10 min with SSH, which may ask the user for a password. With Gate, the first one takes
	// at most 30 s.
	Redial time.Duration

	// InputFull is called by Type, Paste and Keys, about 50 times a second, while they wait because the input queue of a
	// session is full. waited is how long the session has accepted none of the input. InputFull may be nil.
	InputFull func(id protocol.SessionID, waited time.Duration)

	// SSH selects the proxy of another host; if it is set, Dir and Proxy are ignored.
	SSH *SSHOptions
	// Gate selects a host that has joined a gate; if it is set, SSH, Dir and Proxy are ignored.
	Gate *GateOptions
	// Dial opens the connection; if it is set, Gate, SSH, Dir and Proxy are ignored.
	Dial          func(context.Context) (net.Conn, error)
	Token, Secret string
}

const (
	defaultRedial = 30 * time.Second
	sshRedial     = 10 * time.Minute
	backoffMin    = 2 * time.Millisecond
	backoffMax    = 200 * time.Millisecond
	// startAgain is how long a started proxy may take until it serves. If Start is called again
	// too early, the second proxy finds the lock held and ends.
	startAgain = 500 * time.Millisecond
	// answerTime is how long an answer may take after the timeout of a wait, which the supervisor measures. It suffices
	// for the replacement of both processes, and for the message of a command about a process that does not answer.
	answerTime = 4 * time.Second
)

func (o Options) withDefaults() (Options, error) {
	o.Name = cmp.Or(o.Name, programName())
	if o.Dial == nil && o.Gate != nil {
		gate := *o.Gate
		gate.UserToken = cmp.Or(gate.UserToken, o.Token)
		d, err := newGateDialer(gate)
		if err != nil {
			return o, protocol.Errorf(protocol.CodeInvalidArgument, "%v", err)
		}
		o.Dial = d.dial
	}
	if o.Dial == nil && o.SSH != nil {
		o.Redial = cmp.Or(o.Redial, sshRedial)
		d, err := newSSHDialer(*o.SSH)
		if err != nil {
			return o, protocol.Errorf(protocol.CodeInvalidArgument, "%v", err)
		}
		o.Dial = d.dial
	}
	o.Redial = cmp.Or(o.Redial, defaultRedial)
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

// A Client talks to one proxy and its successors. Its methods may be called from any goroutine.
//
//	read   is one goroutine for the connection; when the connection breaks, it ends the waiting calls
type Client struct {
	o     Options
	spare *spare // or nil

	answerTime time.Duration // see the constant

	mu      sync.Mutex
	conn    *conn        // carries requests, or is nil; attachments and events have connections of their own
	welcome *api.Welcome // of the last connection; nil before the first
	dialing chan struct{}
	waiting map[string]waiter
	number  uint64 // of the last request
	closed  bool
}

// A waiter is a call that waits for the answers to a request.
type waiter struct {
	conn    *conn // that carries the request
	answers *answers
}

// answers are the answers to one request. If the connection ends, the channel is closed after err was set.
type answers struct {
	c   chan protocol.Message
	err error
}

// Dial connects to a proxy and sends hello.
func Dial(ctx context.Context, o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{o: o, answerTime: answerTime, waiting: make(map[string]waiter)}
	if o.Gate != nil && o.Gate.Attaches {
		c.spare = openSpare(&c.o)
	}
	if _, err := c.connection(ctx); err != nil {
		_ = c.Close() // it has no connection of its own
		return nil, err
	}
	return c, nil
}

// Close closes the client's connection, and lets later calls fail. Attachments and subscriptions continue, and must be
// closed separately.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.spare != nil {
		c.spare.end()
	}
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// dial opens a connection. It tries again for the time Options.Redial, and starts a proxy if none
// runs and Options.Start is set. If the last attempt was ended by that time, it returns the answer to an earlier one.
func (c *Client) dial(ctx context.Context) (*conn, error) {
	limit := c.o.Redial
	if c.o.Gate != nil && !c.wasConnected() {
		limit = min(limit, defaultRedial) // the proxy of the host may be stopped for ever
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var wait backoff
	started := time.Time{}
	var refused error // the last answer
	for {
		conn, err := dial(ctx, &c.o)
		if err == nil {
			return conn, nil
		}
		var answer *protocol.Error
		if errors.As(err, &answer) {
			refused = err
		} else if until, _ := ctx.Deadline(); refused != nil && !time.Now().Before(until) { // the timer of ctx may fire later
			return nil, refused
		}
		if errors.Is(err, ErrDecode) || errors.Is(err, ErrUnknownHost) || errors.As(err, &answer) && !answer.Retryable { // waiting would not help
			return nil, err
		}
		if errors.Is(err, ErrConnect) && ctx.Err() == nil {
			switch {
			case c.o.Start != nil && time.Since(started) > startAgain:
				started = time.Now()
				if err := c.o.Start(ctx); err != nil {
					return nil, failed(ErrConnect, err)
				}
			case c.o.Start == nil && !c.wasConnected():
				return nil, err // no proxy has run since this client began
			}
		}
		if wait.pause(ctx, err) != nil {
			return nil, err
		}
	}
}

// A backoff counts the waits before attempts that follow each other: each is twice the last, up to backoffMax. Its zero
// value begins with backoffMin.
type backoff struct{ last time.Duration }

// pause waits before the next attempt after err, also for the time that the proxy has asked for.
func (b *backoff) pause(ctx context.Context, err error) error {
	b.last = min(max(2*b.last, backoffMin), backoffMax)
	return pause(ctx, max(b.last, retryAfter(err)))
}

// retryAfter returns how long the proxy has asked to wait before the next attempt.
func retryAfter(err error) time.Duration {
	var answer *protocol.Error
	var goaway *goawayError
	switch {
	case errors.As(err, &answer) && answer.Retryable:
		return time.Duration(answer.RetryAfterMS) * time.Millisecond
	case errors.As(err, &goaway):
		return time.Duration(goaway.m.RetryAfterMS) * time.Millisecond
	}
	return 0
}

// wasConnected reports whether this client has been connected before.
func (c *Client) wasConnected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.welcome != nil
}

// connection returns the live connection for requests, or opens one.
func (c *Client) connection(ctx context.Context) (*conn, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, failed(ErrIO, net.ErrClosed)
		}
		if c.conn != nil && !c.conn.isBroken && !c.conn.isLeaving {
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
	c.use(conn)
	return conn, nil
}

// use makes conn the connection for requests. mu is held.
func (c *Client) use(conn *conn) {
	c.conn, c.welcome = conn, conn.welcome
	go c.read(conn)
}

// read passes the messages on conn to the calls, or to the attachment, that wait for them.
func (c *Client) read(conn *conn) {
	defer c.watch(conn, silentTime, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return conn.isGiven || c.isUsed(conn)
	}, func(ctx context.Context) { c.leave(ctx, conn) })()
	var end error
	for {
		var m protocol.Message
		if m, end = conn.receive(); end != nil {
			break
		}
		if !c.passOn(conn, m) {
			return
		}
	}
	_ = conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.isBroken = true
	if conn.isGiven {
		conn.answer <- received{err: end}
	}
	for id, w := range c.waiting {
		if w.conn == conn {
			delete(c.waiting, id)
			w.answers.err = end
			close(w.answers.c)
		}
	}
}

// passOn passes on a message. It reports false after the answer to an attach, because the attachment reads conn from then on.
func (c *Client) passOn(conn *conn, m protocol.Message) (more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := ""
	if r, ok := m.(interface{ ID() string }); ok {
		id = r.ID()
	}
	if id == "" && conn.isGiven { // an answer with an id belongs to a call that did not wait for it
		conn.answer <- received{m: m}
		return false
	}
	if _, ok := m.(*api.Goaway); ok { // later requests use another connection, and conn ends after the last answer on it
		conn.isLeaving = true
		c.closeUnused(conn)
	}
	if w := c.waiting[id]; w.conn == conn {
		select {
		case w.answers.c <- m:
		default: // the answer has more parts than the protocol allows
			_ = conn.Close()
		}
	}
	return true
}

// give returns the connection for requests to an attachment, or nil if a call uses it. Later requests use another connection.
func (c *Client) give() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.conn
	if c.closed || conn == nil || conn.isBroken || conn.isLeaving || c.isUsed(conn) {
		return nil
	}
	c.conn = nil
	conn.isGiven, conn.answer = true, make(chan received, 1)
	return conn
}

// closeUnused closes a connection that is being left if no call waits for an answer on it. mu is held.
func (c *Client) closeUnused(conn *conn) {
	if conn.isLeaving && !c.isUsed(conn) {
		_ = conn.Close()
	}
}

// isUsed reports whether a call waits for an answer on conn. mu is held.
func (c *Client) isUsed(conn *conn) bool {
	for _, w := range c.waiting {
		if w.conn == conn {
			return true
		}
	}
	return false
}

// A request is a message with a request id.
type request interface {
	protocol.Message
	SetID(string)
}

// maxParts is how many unread messages may answer one request.
const maxParts = 64

// begin sends a request, and returns its id and its answers. If the request cannot be sent completely, no proxy has carried it out,
// so begin sends it on the next connection.
func (c *Client) begin(ctx context.Context, m request) (a *answers, id string, err error) {
	for wait := (backoff{}); ; {
		conn, err := c.connection(ctx)
		if errors.Is(err, ErrIO) && ctx.Err() == nil && !c.isClosed() {
			err = failed(ErrConnect, errors.New(err.Error())) // dial has given up; an ErrIO would let the caller try again
		}
		if err != nil {
			return nil, "", err
		}
		a, id, err = c.sendOn(ctx, conn, m)
		if err == nil || !errors.Is(err, ErrIO) || c.isClosed() || wait.pause(ctx, nil) != nil {
			return a, id, err
		}
	}
}

// sendOn sends a request on conn.
func (c *Client) sendOn(ctx context.Context, conn *conn, m request) (a *answers, id string, err error) {
	a = &answers{c: make(chan protocol.Message, maxParts)}
	c.mu.Lock()
	if conn.isBroken || conn.isGiven {
		c.mu.Unlock()
		return nil, "", failed(ErrIO, net.ErrClosed)
	}
	c.number++
	id = strconv.FormatUint(c.number, 10)
	c.waiting[id] = waiter{conn, a}
	c.mu.Unlock()
	m.SetID(id)
	if err := conn.sendFor(ctx, m); err != nil {
		c.finish(id)
		return nil, "", err
	}
	return a, id, nil
}

func (c *Client) finish(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, isWaiting := c.waiting[id]
	delete(c.waiting, id)
	if isWaiting {
		c.closeUnused(w.conn)
	}
}

// call makes one request. If the connection breaks and the table of requests permits a repetition,
// call repeats the request on the next connection until ctx is done. waitFor repeats a long request,
// because its timeout must be shorter then.
func (c *Client) call(ctx context.Context, m request, each func(protocol.Message) (more bool)) error {
	kind, _ := api.Messages.Request(m.MessageType())
	mayRepeat := kind.MayRepeat(m) && !kind.IsLong
	for wait := (backoff{}); ; {
		err := c.once(ctx, m, each)
		if !mayRepeat || !errors.Is(err, ErrIO) || c.isClosed() || wait.pause(ctx, nil) != nil {
			return err
		}
	}
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// checkOpen returns an ErrIO after Close.
func (c *Client) checkOpen() error {
	if c.isClosed() {
		return failed(ErrIO, net.ErrClosed)
	}
	return nil
}

func (c *Client) once(ctx context.Context, m request, each func(protocol.Message) bool) error {
	answers, id, err := c.begin(ctx, m)
	if err != nil {
		return err
	}
	defer c.finish(id)
	for {
		select {
		case answer, ok := <-answers.c:
			if !ok && errors.Is(answers.err, ErrDecode) {
				return fmt.Errorf("%s: %w", m.MessageType(), answers.err) // no ErrIO: the next answer would be invalid, too
			}
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

// ask makes a request that one message of type T answers.
func ask[T protocol.Message](ctx context.Context, c *Client, m request) (T, error) {
	var answer T
	var wrong error
	err := c.call(ctx, m, func(got protocol.Message) bool {
		answer, wrong = answerTo[T](m.MessageType(), got)
		return false
	})
	return answer, cmp.Or(err, wrong)
}

// askFor makes a request that one message of type T answers, and returns the part of the answer that of selects.
func askFor[T protocol.Message, R any](ctx context.Context, c *Client, m request, of func(T) R) (part R, err error) {
	answer, err := ask[T](ctx, c, m)
	if err != nil {
		return part, err
	}
	return of(answer), nil
}

// ProxyPID returns the process id of the proxy to which the client is connected, or was connected
// last.
func (c *Client) ProxyPID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.welcome.PID
}
