package apiserver

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
)

// A sender writes whole frames to the client of a connection. Any goroutine may call its methods,
// except writeFirst.
type sender struct {
	server *Server // counts the refusals that are sent
	t      Transport
	life   *life // a failed write does not close a connection that is being frozen
	logger *zerolog.Logger
	lost   func()     // called when a failed write has closed the connection
	mu     sync.Mutex // held while a frame is written
}

// send writes a message. If the write fails, send closes the connection, so that serve ends.
func (o *sender) send(m protocol.Message) { o.sendAfter(m, func() {}) }

// sendAfter writes a message. It calls before while it holds mu, so that no other message can be
// written between the call and the message.
func (o *sender) sendAfter(m protocol.Message, before func()) {
	o.server.countRefusal(m)
	b, err := protocol.Encode(m)
	if err == nil && len(b)+1 > frame.Max {
		err = protocol.Errorf(protocol.CodeFrameTooLarge, "%s is too large", m.MessageType())
	}
	if err != nil {
		o.logger.Error().Err(err).Msg("message not sent")
		before()
		return
	}
	o.writeAfter(frame.Append(make([]byte, 0, frame.HeaderLen+len(b)), frame.Control, b), before)
}

// write writes a whole frame. If the write fails, write closes the connection.
func (o *sender) write(raw []byte) { o.writeAfter(raw, func() {}) }

// writeAfter writes a whole frame, and calls before while it holds mu.
func (o *sender) writeAfter(raw []byte, before func()) {
	o.mu.Lock()
	before()
	err := o.t.Write(raw)
	o.mu.Unlock()
	if err != nil && !o.life.isStopping() {
		_ = o.t.Close()
		o.lost()
	}
}

// fail sends an error as the answer to a request, or as the end of an attachment if attachment is
// set.
func (o *sender) fail(requestID string, attachment *uint32, err error) {
	o.send(api.Error{
		Request: protocol.Request{RequestID: requestID}, Attachment: attachment, Error: *protocol.AsError(err),
	})
}

// closeWith sends m as the last message and closes the connection, even if the client does not read
// within goawayTimeout.
func (o *sender) closeWith(m protocol.Message) {
	_ = o.t.SetWriteDeadline(time.Now().Add(goawayTimeout))
	o.send(m)
	_ = o.t.Close()
}

// writeFirst starts a goroutine that writes the bytes that the previous proxy has not written, as
// soon as this proxy owns the connection. All other writes that begin after writeFirst has returned
// come later, because the goroutine holds mu until then. If this proxy never owns the connection,
// the bytes are not written. run must run its argument in a goroutine.
func (o *sender) writeFirst(run func(func()), t Movable, out []byte) {
	isHeld := make(chan struct{})
	run(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		close(isHeld)
		<-o.life.reached(phaseServing)
		if o.life.is(phaseEnded) {
			return
		}
		if err := t.WriteRest(out); err != nil && !o.life.isStopping() {
			_ = t.Close()
		}
	})
	<-isHeld
}
