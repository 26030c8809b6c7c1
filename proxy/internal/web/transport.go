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

// api serves the api over a WebSocket until it ends.
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

// checkSocket says whether a request begins a WebSocket of the api's.
func checkSocket(h http.Header) error {
	if err := checkUpgrade(h); err != nil {
		return err
	}
	// A message means what the subprotocol says, so a client that offers none
	// is not guessed at.
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
	serve := h.cfg.Server.Accept(ctx, newTransport(ctx, s), from)
	r.answered()
	return s.endUnless(serve())
}

func newTransport(ctx context.Context, s *socket) *transport {
	return &transport{socket: s, limit: frame.Max, leaving: func() (ws.StatusCode, string) { return leaving(ctx) }}
}

// leaving is how to close when ctx is done.
func leaving(ctx context.Context) (ws.StatusCode, string) {
	if errors.Is(context.Cause(ctx), errGoaway) {
		return statusServiceRestart, errGoaway.Error()
	}
	return ws.StatusGoingAway, ""
}

// peerPID is the peer's process where the listener knows it.
func peerPID(nc net.Conn) int {
	if p, ok := nc.(interface{ PeerPID() int }); ok {
		return p.PeerPID()
	}
	return 0
}

// A transport is the api's frames on a WebSocket: a text message is the
// payload of a control frame, a binary message is kind and payload.
type transport struct {
	*socket
	limit   int                            // largest kind and payload
	leaving func() (ws.StatusCode, string) // how to close where nothing else says it

	// How to close, by the last message that was written; guarded by the
	// socket's mu.
	status ws.StatusCode
	reason string
}

// SetLimit implements apiserver.Transport.
func (t *transport) SetLimit(n int) { t.limit, t.in.max = n, n }

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
		return nil, protocol.Errorf(code, v.what)
	}
	return m, err
}

// frame makes a frame of a message, in the headroom before its payload.
func (t *transport) frame(op ws.OpCode, m []byte) ([]byte, error) {
	n := len(m) - headroom // of a binary message the kind is there already
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
	case n > t.limit: // a text by one byte, which the reader does not count
		v = &violation{ws.StatusMessageTooBig, fmt.Sprintf("a message exceeds %d bytes", t.limit)}
	default:
		binary.BigEndian.PutUint32(m, uint32(n))
		return m, nil
	}
	t.failed(v)
	return nil, v
}

// Write implements apiserver.Transport.
func (t *transport) Write(raw []byte) error {
	payload := raw[frame.HeaderLen:]
	if frame.Kind(raw[frame.HeaderLen-1]) != frame.Control {
		return t.write(ws.OpBinary, raw[frame.HeaderLen-1:])
	}
	status, reason := farewell(payload)
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
		status, reason = t.leaving()
	}
	t.close(status, reason)
	return nil
}

// farewell returns the status that tells the same as a message with which
// apiserver ends a connection, or 0 for any other message.
func farewell(payload []byte) (ws.StatusCode, string) {
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
