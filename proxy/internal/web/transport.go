package web

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/gobwas/ws"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/internal/apiserver"
)

// api serves the api over a WebSocket until the connection ends.
func (h *Handler) api(ctx context.Context, r *request) error {
	if err := checkSocket(r.Header); err != nil {
		return err
	}
	from, err := h.origin(r, "")
	if err != nil {
		return err
	}
	return h.serveAPI(ctx, r, from)
}

// checkSocket returns a refusal unless the headers begin a WebSocket of the api.
func checkSocket(h http.Header) error {
	if err := checkUpgrade(h); err != nil {
		return err
	}
	// The subprotocol defines the meaning of the messages, so a client must offer it.
	if !hasToken(h, "Sec-Websocket-Protocol", api.Subprotocol) {
		return refuse(http.StatusBadRequest, protocol.CodeInvalidArgument, "the client must offer the subprotocol "+api.Subprotocol)
	}
	return nil
}

func (h *Handler) serveAPI(ctx context.Context, r *request, from apiserver.Origin) error {
	s, err := upgrade(r, api.Subprotocol)
	if err != nil {
		return err
	}
	t := newTransport(ctx, s)
	t.accepted = r.markKnown
	serve := h.cfg.Server.Accept(ctx, t, from)
	r.markAnswered()
	if from.Cookie && from.Share == nil && h.pagePass(r) == nil { // all browsers were signed out since the cookie was checked
		t.close(ws.StatusPolicyViolation, string(protocol.CodeUnauthorized))
	}
	return s.endUnless(serve())
}

func newTransport(ctx context.Context, s *socket) *transport {
	return &transport{socket: s, limit: frame.Max, closeStatusOf: func() (ws.StatusCode, string) { return closeStatusOf(ctx) }}
}

// closeStatusOf returns the close status if ctx is done: 1012 if the proxy wants its clients to
// reconnect.
func closeStatusOf(ctx context.Context) (ws.StatusCode, string) {
	if errors.Is(context.Cause(ctx), errGoaway) {
		return statusServiceRestart, errGoaway.Error()
	}
	return ws.StatusGoingAway, ""
}

// peerPID returns the process id of the peer, or 0 if the listener does not know it.
func peerPID(nc net.Conn) int {
	if p, ok := nc.(interface{ PeerPID() int }); ok {
		return p.PeerPID()
	}
	return 0
}

// A transport carries the api's frames on a WebSocket. A text message is the payload of a control
// frame; a binary message is the kind and the payload of any other frame.
type transport struct {
	*socket
	limit         int                            // of kind and payload, in bytes
	closeStatusOf func() (ws.StatusCode, string) // the close status if no message has chosen one

	accepted func() // called when the client's hello is accepted; nil if a moved connection had said hello before

	// The close status that the last written message has chosen; guarded by the socket's mu.
	status ws.StatusCode
	reason string
}

// SetLimit implements apiserver.Transport.
func (t *transport) SetLimit(n int) { t.limit, t.in.max = n, n }

// Accepted implements apiserver.Accepter.
func (t *transport) Accepted() {
	if t.accepted != nil {
		t.accepted()
	}
}

// Next implements apiserver.Transport.
func (t *transport) Next() ([]byte, error) {
	op, m, err := t.next()
	if err == nil {
		m, err = t.frame(op, m)
	}
	var v *violation
	if errors.As(err, &v) {
		code := protocol.CodeBadFrame
		if v.status == ws.StatusMessageTooBig {
			code = protocol.CodeFrameTooLarge
		}
		return nil, protocol.Errorf(code, "%s", v.reason)
	}
	return m, err
}

// frame turns a message into a frame in place: the header goes into the headroom before the
// payload.
func (t *transport) frame(op ws.OpCode, m []byte) ([]byte, error) {
	n := len(m) - headroom // a binary message already contains the kind
	if op == ws.OpText {
		n++
		m[frame.HeaderLen-1] = byte(frame.Control)
	} else {
		m = m[1:]
	}
	var v *violation
	switch {
	case n == 0:
		v = &violation{ws.StatusProtocolError, "a binary message without a kind"}
	case n > t.limit: // a text message may exceed the limit by the kind's byte, which the reader does not count
		v = &violation{ws.StatusMessageTooBig, fmt.Sprintf("a message exceeds %d bytes", t.limit)}
	default:
		binary.BigEndian.PutUint32(m, uint32(n))
		return m, nil
	}
	t.noteFailure(v)
	return nil, v
}

// Write implements apiserver.Transport.
func (t *transport) Write(raw []byte) error {
	payload := raw[frame.HeaderLen:]
	if frame.Kind(raw[frame.HeaderLen-1]) != frame.Control {
		return t.write(ws.OpBinary, raw[frame.HeaderLen-1:])
	}
	status, reason := closeStatusFor(payload)
	t.mu.Lock()
	t.status, t.reason = status, reason
	t.mu.Unlock()
	return t.write(ws.OpText, payload)
}

// Close implements apiserver.Transport.
func (t *transport) Close() error {
	t.mu.Lock()
	status, reason := t.status, t.reason
	t.mu.Unlock()
	if status == 0 {
		status, reason = t.closeStatusOf()
	}
	t.close(status, reason)
	return nil
}

// closeStatusFor returns the close status that corresponds to a message with which apiserver ends
// a connection, or 0 if the connection continues after the message.
func closeStatusFor(payload []byte) (ws.StatusCode, string) {
	if bytes.HasPrefix(payload, []byte(`{"type":"goaway"`)) {
		return statusServiceRestart, errGoaway.Error()
	}
	if !bytes.HasPrefix(payload, []byte(`{"type":"error"`)) {
		return 0, ""
	}
	m, _, err := api.Messages.Decode(payload)
	e, ok := m.(*api.Error)
	if err != nil || !ok || e.RequestID != "" || e.Attachment != nil {
		return 0, ""
	}
	switch e.Code {
	case protocol.CodeBadFrame:
		return ws.StatusProtocolError, string(e.Code)
	case protocol.CodeFrameTooLarge:
		return ws.StatusMessageTooBig, string(e.Code)
	case protocol.CodeInternal:
		return ws.StatusInternalServerError, string(e.Code)
	}
	return ws.StatusPolicyViolation, string(e.Code)
}
