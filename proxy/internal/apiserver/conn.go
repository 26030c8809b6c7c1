package apiserver

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/policy"
	"holdfast/shared/logging"
	"holdfast/shared/version"
)

// A conn is one client's connection.
//
//	serve   reads; owns nothing that others write
//	request one goroutine for each request that may wait
//	pump    one goroutine for each attachment and for the subscription
//
// All of them write under wmu, a whole frame at a time.
type conn struct {
	s       *Server
	t       Transport
	from    Origin
	log     zerolog.Logger
	moving  chan struct{} // closed when it is being frozen
	stopped chan struct{} // closed when nothing is read any more, because of
	readErr error

	room chan struct{} // a place for each request under way
	wait chan struct{} // the same for each wait, which may last for ever
	wg   sync.WaitGroup

	ctx    context.Context // of all that runs for it
	cancel context.CancelFunc
	rested chan struct{} // closed when a frozen one is nobody's here any more:
	moved  bool          // it is another proxy's

	held chan struct{} // closed when one that comes from another proxy is ours
	wmu  sync.Mutex

	mu          sync.Mutex
	hello       *api.Hello
	attachments map[uint32]*attachment
	terminals   map[protocol.SessionID]*attachment // those that terminal.* messages mean
	requests    map[*request]struct{}              // under way
	unread      []json.RawMessage                  // messages that were read and not begun
	paused      bool                               // its attachments are to rest
	subscribed  bool
	following   subscription
}

// bare reports whether the client sees one session, and no messages.
func (c *conn) bare() bool { return c.from.Transport == TransportRaw }

// serve returns when nothing runs for the connection any more, and whether it is
// another proxy's.
func (c *conn) serve() (moved bool) {
	ctx := c.ctx
	stop := context.AfterFunc(ctx, func() { _ = c.t.Close() })
	defer stop()
	c.expires()
	var err error
	if c.hello == nil {
		err = c.greet()
	}
	if err == nil {
		err = c.read(ctx)
	}
	if c.isMoving() && (errors.Is(err, errMoving) || errors.Is(err, os.ErrDeadlineExceeded)) {
		stop()
		close(c.stopped)
		<-c.rested // freeze takes what is left
		return c.moved
	}
	c.readErr = err
	close(c.stopped)
	if e := new(protocol.Error); errors.As(err, &e) {
		c.s.refusals.Of(c.log).Info().Str(logging.Code, string(e.Code)).Msg("client refused")
		_ = c.t.SetWriteDeadline(time.Now().Add(goawayTimeout))
		c.send(api.Error{Error: *e})
	} else if err != nil && !expected(err) {
		c.log.Info().Err(err).Msg("client lost")
	}
	if c.bare() && ctx.Err() == nil {
		c.leave()
	}
	c.cancel()
	_ = c.t.Close()
	c.wg.Wait()
	return false
}

// expected errors are how connections end every day.
func expected(err error) bool {
	for _, e := range []error{io.EOF, net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// greet takes the client's hello. Nothing else is read before it was accepted.
func (c *conn) greet() error {
	c.t.SetLimit(frame.MaxHello)
	if err := c.t.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	raw, err := c.t.Next()
	if err != nil {
		return err
	}
	if frame.Kind(raw[4]) != frame.Control {
		return protocol.Errorf(protocol.CodeHelloRequired, "the first message is hello")
	}
	m, _, err := api.Messages.Decode(raw[frame.HeaderLen:])
	if err != nil && protocol.CodeOf(err) != protocol.CodeUnsupported {
		return err
	}
	hello, ok := m.(*api.Hello)
	if !ok {
		return protocol.Errorf(protocol.CodeHelloRequired, "the first message is hello")
	}
	if err := c.authenticate(c.ctx, hello); err != nil {
		return err
	}
	agreed, err := protocol.Agree(protocol.Supported(), hello.Protocol)
	if err != nil {
		return err
	}
	if hello.Client == "" || len(hello.Client) > 4*protocol.MaxIDLen {
		return protocol.Errorf(protocol.CodeInvalidArgument, "hello needs a client name of 1 to 256 bytes")
	}
	c.mu.Lock()
	c.hello = hello
	c.mu.Unlock()
	c.t.SetLimit(frame.Max)
	if err := c.t.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	c.send(api.Welcome{
		Protocol: protocol.Supported(), Agreed: agreed,
		Capabilities: c.s.capabilities(),
		PID:          os.Getpid(), Version: version.String(), Instance: c.s.instance,
	})
	c.log.Debug().Str(logging.Client, hello.Client).Msg("client connected")
	c.observe(policy.Event{Kind: policy.EventHello})
	return nil
}

// capabilities are what clients can count on. Automation is the supervisor's.
func (s *Server) capabilities() protocol.Capabilities {
	all := protocol.Capabilities{protocol.CapTerminalExit, protocol.CapWebTicket, protocol.CapCage}
	if w := s.cfg.Link.Welcome(); w != nil && w.Capabilities.Has(protocol.CapAutomation) {
		all = append(all, protocol.CapAutomation)
	}
	return all
}

// same compares in constant time; an empty secret is never the same.
func same(got, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// read takes frames until the connection ends. It never waits for a request.
func (c *conn) read(ctx context.Context) error {
	for {
		raw, err := c.t.Next()
		if err != nil {
			return err
		}
		switch frame.Kind(raw[4]) {
		case frame.Input:
			err = c.input(raw)
		case frame.Control:
			err = c.control(ctx, raw[frame.HeaderLen:])
		}
		if err != nil {
			return err
		}
	}
}

// input passes a frame on to its attachment's stream as it is: the number in
// it means the same on both wires.
func (c *conn) input(raw []byte) error {
	number, _, data, err := frame.ParseData(raw[frame.HeaderLen:])
	if err != nil {
		return err
	}
	a := c.attachment(number)
	switch {
	case a == nil:
		c.fail("", &number, notAttached())
	case c.from.Share != nil: // the supervisor would say the same
		c.fail("", &number, protocol.Errorf(protocol.CodePermissionDenied, "a share link is to look, not to type"))
	case c.bare():
		return c.typed(a, data)
	default:
		a.link.SendRaw(raw)
	}
	return nil
}

func notAttached() error {
	return protocol.Errorf(protocol.CodeNotAttached, "no such attachment on this connection")
}

// control acts on a message. Those that belong to an attachment act at once,
// in the order in which they came; all others get a goroutine.
func (c *conn) control(ctx context.Context, payload []byte) error {
	m, env, err := api.Messages.Decode(payload)
	if err != nil {
		if protocol.CodeOf(err) != protocol.CodeUnsupported {
			return err
		}
		count(c.s.counts.requests, other)
		if env.RequestID != "" { // somebody waits for the answer
			c.fail(env.RequestID, nil, err)
		}
		return nil
	}
	count(c.s.counts.requests, m.MessageType())
	if err := c.permits(m); err != nil {
		c.fail(env.RequestID, nil, err)
		return nil
	}
	if c.ordered(m) {
		return nil
	}
	room := c.room
	switch m.(type) {
	case *api.Wait, *api.Await:
		room = c.wait
		if len(room) == cap(room) { // only this goroutine adds to it
			c.fail(env.RequestID, nil, protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf("%d waits on this connection", maxWaits)))
			return nil
		}
	}
	select {
	case room <- struct{}{}:
	case <-c.moving:
		c.unread = append(c.unread, bytes.Clone(payload))
		return errMoving
	case <-ctx.Done():
		return ctx.Err()
	}
	q := c.begins(m, payload)
	if m, ok := m.(*api.Attach); ok { // now: what is read next may be for it
		q.attachment, q.refused = c.seat(m)
	}
	ctx, q.cancel = context.WithCancel(ctx)
	c.wg.Go(func() {
		defer func() { <-room }()
		defer c.ends(q)
		c.request(ctx, q, m, env.RequestID)
	})
	return nil
}

// ordered acts on the messages of attachments and reports whether m was one.
func (c *conn) ordered(m protocol.Message) bool {
	switch m := m.(type) {
	case *api.Resize:
		if m.Attachment == nil {
			return false
		}
		c.forward(m.RequestID, *m.Attachment, wire.Resize{Cols: m.Cols, Rows: m.Rows})
	case *api.Interrupt:
		if m.Attachment == nil {
			return false
		}
		c.forward(m.RequestID, *m.Attachment, wire.Interrupt{})
	case *api.Appearance:
		if err := m.Validate(); err != nil {
			c.fail(m.RequestID, nil, err) // without the number: it ends nothing
			break
		}
		c.forward(m.RequestID, m.Attachment, wire.Appearance{Appearance: m.Appearance})
	case *api.TerminalData:
		c.terminalData(m)
	case *api.TerminalResize:
		c.terminalResize(m)
	default:
		return false
	}
	return true
}

// forward passes a message on to an attachment's stream.
func (c *conn) forward(requestID string, number uint32, m protocol.Message) {
	a := c.attachment(number)
	if a == nil {
		c.fail(requestID, &number, notAttached())
		return
	}
	a.link.Send(m)
	if requestID != "" {
		c.send(api.OK{Request: protocol.Request{RequestID: requestID}})
	}
}

// sendLast writes the last message of an attachment. Its number is free by the
// time that the client reads this; what others have to say of the number, such
// as that there is none, comes behind it.
func (c *conn) sendLast(a *attachment, m protocol.Message) {
	c.sendAfter(m, func() { c.drop(a) })
}

// send writes a message; write, a whole frame. A failure closes the
// connection, and serve sees that.
func (c *conn) send(m protocol.Message) { c.sendAfter(m, func() {}) }

// sendAfter is send; before is called when nothing else can be written any
// more until m is.
func (c *conn) sendAfter(m protocol.Message, before func()) {
	c.s.refused(m)
	b, err := protocol.Encode(m)
	if err == nil && len(b)+1 > frame.Max {
		err = protocol.Errorf(protocol.CodeFrameTooLarge, m.MessageType()+" is too large")
	}
	if err != nil {
		c.log.Error().Err(err).Msg("message not sent")
		before()
		return
	}
	c.writeAfter(frame.Append(make([]byte, 0, frame.HeaderLen+len(b)), frame.Control, b), before)
}

func (c *conn) write(raw []byte) { c.writeAfter(raw, func() {}) }

func (c *conn) writeAfter(raw []byte, before func()) {
	c.wmu.Lock()
	before()
	err := c.t.Write(raw)
	c.wmu.Unlock()
	if err != nil && !c.isMoving() {
		_ = c.t.Close()
	}
}

// fail answers a request, or tells an attachment, that something went wrong.
func (c *conn) fail(requestID string, attachment *uint32, err error) {
	c.send(api.Error{
		Request: protocol.Request{RequestID: requestID}, Attachment: attachment, Error: *protocol.AsError(err),
	})
}

// goaway says good-bye and closes. A client that does not read is closed all
// the same.
func (c *conn) goaway(m api.Goaway) {
	_ = c.t.SetWriteDeadline(time.Now().Add(goawayTimeout))
	c.send(m)
	_ = c.t.Close()
}
