package apiserver

import (
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/policy"
	"holdfast/shared/logging"
	"holdfast/shared/version"
)

// A conn is the connection of one client. These goroutines work for it:
//
//	serve    reads frames, and never waits for the supervisor
//	request  one for each request, because a request may wait
//	pump     one for each attachment, and one for the subscription
//
// Each of them writes by the sender.
type conn struct {
	caller
	sender
	life life

	requests     pendingRequests
	requestSlots chan struct{} // holds an element for each request in progress
	largeSlots   chan struct{} // holds an element for each request in progress that may have a large reply
	waitSlots    chan struct{} // holds an element for each wait in progress, because a wait may last for ever
	wg           sync.WaitGroup

	ctx    context.Context // ends with the connection, and with the server
	cancel context.CancelFunc

	attachments attachmentTable
	following   subscription
}

// serve reads the connection until it ends or has been frozen and released. All goroutines of the
// connection have ended when serve returns. It returns true if another proxy owns the connection.
func (c *conn) serve() (moved bool) {
	ctx := c.ctx
	stop := context.AfterFunc(ctx, func() { _ = c.t.Close() })
	defer stop()
	c.watchExpiry()
	var err error
	if c.hello == nil {
		err = c.readHello()
	} else { // a freeze of the requests may have set a deadline before this connection was accepted
		err = c.setReadDeadline(time.Time{})
	}
	if err == nil {
		err = c.read(ctx)
	}
	if (errors.Is(err, errMoving) || errors.Is(err, os.ErrDeadlineExceeded)) && c.life.enter(onHalt) {
		stop()
		<-c.life.reached(phaseReleased) // freeze handles the rest of the connection
		if c.life.is(phaseReleased) {
			return true
		}
	}
	c.life.enter(onEnd)
	if e := new(protocol.Error); errors.As(err, &e) {
		c.s.refusals.Of(c.log).Info().Str(logging.Code, string(e.Code)).Msg("client refused")
		_ = c.t.SetWriteDeadline(time.Now().Add(goawayTimeout))
		c.send(api.Error{Error: *e})
	} else if err != nil && !isExpected(err) {
		c.s.refusals.Of(c.log).Info().Err(err).Msg("connection to client lost")
	}
	if c.isBare() && ctx.Err() == nil {
		c.attachments.markDetached()
	}
	c.cancel()
	_ = c.t.Close()
	c.wg.Wait()
	return false
}

// isExpected reports whether err is an ordinary end of a connection, which is not logged.
func isExpected(err error) bool {
	for _, e := range []error{io.EOF, net.ErrClosed, context.Canceled, os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.EPIPE, errMoving} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// readHello reads and checks the client's hello. No other frame is read before the hello has been
// accepted.
func (c *conn) readHello() error {
	c.t.SetLimit(frame.MaxHello)
	if err := c.setReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	m, err := c.readFirst()
	if vouch, ok := m.(*api.Vouch); ok && err == nil {
		if err = c.vouch(vouch); err == nil {
			m, err = c.readFirst()
		}
	}
	if err != nil {
		return err
	}
	hello, ok := m.(*api.Hello)
	if !ok {
		return protocol.Errorf(protocol.CodeHelloRequired, "the first message must be hello")
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
	c.hello = hello
	c.t.SetLimit(frame.Max)
	if err := c.setReadDeadline(time.Time{}); err != nil {
		return err
	}
	if t, ok := c.t.(Accepter); ok {
		t.Accepted()
	}
	c.send(api.Welcome{
		Protocol: protocol.Supported(), Agreed: agreed,
		Capabilities: capabilities,
		PID:          os.Getpid(), Version: version.String(), Instance: c.s.instance,
	})
	c.log.Debug().Str(logging.Client, hello.Client).Msg("client connected")
	c.observe(policy.Event{Kind: policy.EventHello})
	return nil
}

// readFirst reads a message that precedes the client's requests. It returns nil for an unknown one.
func (c *conn) readFirst() (protocol.Message, error) {
	raw, err := c.t.Next()
	if err != nil {
		return nil, err
	}
	if frame.Kind(raw[4]) != frame.Control {
		return nil, protocol.Errorf(protocol.CodeHelloRequired, "the first message must be hello")
	}
	m, _, err := api.Messages.Decode(raw[frame.HeaderLen:])
	if protocol.CodeOf(err) == protocol.CodeUnsupported {
		return nil, nil
	}
	return m, err
}

// setReadDeadline sets the deadline of the reader, which calls it. It keeps the deadline of freeze,
// which stops the reader, if freeze has set its deadline before.
func (c *conn) setReadDeadline(at time.Time) error {
	err := c.t.SetReadDeadline(at)
	if err == nil && c.life.isStopping() {
		err = c.t.SetReadDeadline(longAgo)
	}
	return err
}

// capabilities lists the features that clients can use.
var capabilities = protocol.Capabilities{protocol.CapTerminalExit, protocol.CapWebTicket, protocol.CapCage, protocol.CapAutomation, protocol.CapDurable}

// isSameSecret compares two secrets in constant time. An empty want never matches.
func isSameSecret(got, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// read handles frames until the connection ends. It never waits for the answer to a request.
func (c *conn) read(ctx context.Context) error {
	for {
		raw, err := c.t.Next()
		if err != nil {
			return err
		}
		switch frame.Kind(raw[4]) {
		case frame.Input:
			err = c.handleInput(raw)
		case frame.Control:
			err = c.handleControl(ctx, raw[frame.HeaderLen:])
		}
		if err != nil {
			return err
		}
	}
}

// handleInput forwards an input frame to the stream of its attachment. It does not change the
// frame, because the attachment has the same number on both wires.
func (c *conn) handleInput(raw []byte) error {
	number, _, data, err := frame.ParseData(raw[frame.HeaderLen:])
	if err != nil {
		return err
	}
	a := c.attachments.await(c.ctx, number)
	switch {
	case a == nil:
		c.fail("", &number, notAttached())
	case c.from.Share != nil: // the supervisor would refuse the input as well
		c.fail("", &number, protocol.Errorf(protocol.CodePermissionDenied, "a share link is read-only: it cannot send input"))
	case c.isBare():
		return c.writeInput(a, data)
	default:
		a.link.SendRaw(raw)
	}
	return nil
}

func notAttached() error {
	return protocol.Errorf(protocol.CodeNotAttached, "no such attachment on this connection")
}

// handleControl handles a message. Messages that belong to an attachment take effect at once, in
// the order in which they arrived. Each other message gets a goroutine.
func (c *conn) handleControl(ctx context.Context, payload []byte) error {
	m, env, err := api.Messages.Decode(payload)
	if err != nil {
		if protocol.CodeOf(err) != protocol.CodeUnsupported {
			return err
		}
		increment(c.s.counts.requests, otherName)
		if env.RequestID != "" { // the client waits for an answer
			c.fail(env.RequestID, nil, err)
		}
		return nil
	}
	increment(c.s.counts.requests, m.MessageType())
	if err := c.permits(m); err != nil {
		c.fail(env.RequestID, nil, err)
		return nil
	}
	if handle, ok := orderedHandlers[m.MessageType()]; ok && handle(c, m) {
		return nil
	}
	room, release := c.requestSlots, func() {}
	if kind, _ := api.Messages.Request(m.MessageType()); kind.IsLong {
		room = c.waitSlots
		if err := c.reserveWait(len(payload)); err != nil {
			c.fail(env.RequestID, nil, err)
			return nil
		}
		release = func() { <-c.s.waitSlots }
	}
	select {
	case room <- struct{}{}:
	case <-c.life.reached(phaseStopping):
		release()
		c.requests.postpone(payload)
		return errMoving
	case <-ctx.Done():
		release()
		return ctx.Err()
	}
	q := c.requests.add(m, payload)
	if m, ok := m.(*api.Attach); ok { // reserve at once, because the next frame may belong to it
		q.attachment, q.refused = c.reserveFor(m)
	}
	ctx, q.cancel = context.WithCancel(ctx)
	c.wg.Go(func() {
		defer release()
		defer func() { <-room }()
		defer c.requests.remove(q)
		if hasLargeReply(m) {
			select {
			case c.largeSlots <- struct{}{}:
				defer func() { <-c.largeSlots }()
			case <-ctx.Done():
				return
			}
		}
		c.request(ctx, q, m, env.RequestID)
	})
	return nil
}

// hasLargeReply reports whether the reply to a request may have about as many bytes as a frame, or be a list of any length.
// A client with many of these requests takes memory, and the time of the link, from others only as it reads the replies.
func hasLargeReply(m protocol.Message) bool {
	switch m.(type) {
	case *api.List, *api.Scrollback, *api.Screen, *api.History, *api.Changes:
		return true
	}
	return false
}

// cancelRequests ends the work for a client to which nothing can be written any more. The reader notices its end late,
// or never if it waits for a request to end. A bare connection has no requests, and its reader always reads.
func (c *conn) cancelRequests() {
	if !c.isBare() {
		c.cancel()
	}
}

// reserveWait reserves a place for a wait whose message has the given length, for the whole server. Only the goroutine that reads the
// connection may call it, because no other one adds to waitSlots.
func (c *conn) reserveWait(length int) error {
	if length > maxWaitBytes {
		return protocol.TooLarge("the message of a wait must have at most %d bytes, but it has %d", maxWaitBytes, length)
	}
	if len(c.waitSlots) == cap(c.waitSlots) {
		return protocol.Errorf(protocol.CodeLimitExceeded, "this connection already has %d waits, which is the limit", maxWaits)
	}
	select {
	case c.s.waitSlots <- struct{}{}:
		return nil
	default:
		return protocol.Errorf(protocol.CodeLimitExceeded, "the clients of this proxy already have %d waits, which is the limit", maxAllWaits)
	}
}

// forward sends a message to the stream of an attachment, and acknowledges it if it has a request
// id.
func (c *conn) forward(requestID string, number uint32, m protocol.Message) {
	a := c.attachments.await(c.ctx, number)
	if a == nil {
		c.fail(requestID, &number, notAttached())
		return
	}
	a.link.Send(m)
	if requestID != "" {
		c.send(api.OK{Request: protocol.Request{RequestID: requestID}})
	}
}

// sendLast writes the last message of an attachment. The number of the attachment is free when the
// client reads this message. Messages of other goroutines about that number follow it.
func (c *conn) sendLast(a *attachment, m protocol.Message) {
	c.sendAfter(m, func() { c.attachments.remove(a) })
}
