package web

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/pass"
)

// A Handler with a Gate serves the page of a gate, and the WebSockets of its clients. The gate accepts the
// connections, and passes those that begin with a request to ServeConn.
//
//	GET /, GET /?ticket=T, GET /assets/..., GET /v1/page, POST /v1/sign-out    as on one machine; see page.go
//	POST /v1/sign-in    exchanges the token of clients, as Authorization: Bearer, for a cookie
//	GET /v1/gate        the messages of the gate in WebSocket messages, subprotocol holdfast.gate.v1
//	GET /metrics        the metrics of the gate, with the token of clients as Authorization: Bearer
//	GET /healthz        "ok"; see observe.go
//
// The reply to GET /v1/page has "gate": true. If the page's own WebSocket sends a message of the gate without
// a token, the cookie replaces the token.

// gatePath is the path of the WebSockets of a gate.
const gatePath = "/v1/gate"

// A Gate is the part of a gate that a Handler needs.
type Gate struct {
	// Token returns the token of clients. The key of the cookies is made of it, so that a new token makes all
	// cookies invalid, and so that all gates that share the token accept the same cookies.
	Token func() string
	// Serve serves a WebSocket until it ends. token is the token with which the cookie of the client was made,
	// or "" if the client has none. Token may have changed since.
	Serve func(conn *GateConn, token string)
}

// ServeConn serves a TLS connection of a gate until it has ended. read contains the bytes that have arrived.
// The caller must limit the number of calls at a time.
func (h *Handler) ServeConn(ctx context.Context, conn *tls.Conn, read []byte) {
	a := h.addPending(conn, read)
	defer close(a.ended)
	h.serve(ctx, &guard{ofGate: true}, a)
}

// Ticket returns a ticket that signs in one browser at the gate.
func (h *Handler) Ticket() (string, error) { return h.tickets.Issue() }

// TakeTickets returns the tickets of Ticket that have not been used, for AddTickets of another process. They are not valid
// here any more.
func (h *Handler) TakeTickets() []byte { return h.tickets.Take() }

// AddTickets makes tickets valid that TakeTickets has returned.
func (h *Handler) AddTickets(taken []byte) error { return h.tickets.Add(taken) }

// routeGate handles a request to a gate that is not one of the page's.
func (h *Handler) routeGate(ctx context.Context, r *request) error {
	switch {
	case r.URL.Path == "/v1/sign-in":
		return h.signIn(r)
	case r.URL.Path == gatePath && r.Method == http.MethodGet:
		return h.gateSocket(ctx, r)
	}
	if ok, err := h.observe(ctx, r); ok {
		return err
	}
	return refuse(http.StatusNotFound, protocol.CodeUnsupported, "there is only the page, GET "+gatePath+", /metrics and /healthz, and POST /v1/sign-in")
}

// signIn gives a cookie to the page after its user has typed the token.
func (h *Handler) signIn(r *request) error {
	switch {
	case r.Method != http.MethodPost:
		return refuseMethod(http.MethodPost)
	case !ownOrigin(r):
		return forbid(http.StatusForbidden, protocol.CodePermissionDenied, "the request must come from the page itself")
	case !h.hasBearer(r):
		return forbid(http.StatusUnauthorized, protocol.CodeUnauthorized, "the token of the client is wrong; proxy gate client-token prints the right one on the gate")
	}
	cookie, err := h.pageCookie(r, &pass.Pass{}, h.now())
	if err != nil {
		return refuseFor(err)
	}
	h.logSign(r, nil, "browser signed in")
	h.reply(r, http.StatusOK, "application/json", "Cache-Control: no-store\r\n"+cookie, []byte(`{"signed_in":true,"gate":true}`))
	return nil
}

// gateSocket serves a WebSocket with the messages of the gate.
func (h *Handler) gateSocket(ctx context.Context, r *request) error {
	if err := checkUpgrade(r.Header); err != nil {
		return err
	}
	if !hasToken(r.Header, "Sec-Websocket-Protocol", gate.Subprotocol) {
		return refuse(http.StatusBadRequest, protocol.CodeInvalidArgument, "the client must offer the subprotocol "+gate.Subprotocol)
	}
	token := h.cfg.Gate.Token() // before the cookie is read: the gate compares it with the token of that time
	if !ownOrigin(r) || h.passOf(r, pass.NewKey(token)) == nil {
		token = ""
	}
	s, err := upgrade(r, gate.Subprotocol)
	if err != nil {
		return err
	}
	r.markAnswered()
	t := newTransport(ctx, s)
	t.SetLimit(gate.MaxFirst)
	h.cfg.Gate.Serve(&GateConn{transport: t}, token)
	s.end()
	return nil
}

// A GateConn is a WebSocket as a connection that carries frames, as the TLS connection of another client of
// the gate does. A frame that is written in parts is sent when it is complete.
//
// Read and Write may be called at the same time, each by one goroutine. It holds at most one frame in each
// direction, besides the bytes of a call of Write. A message of the client may have gate.MaxFirst bytes until
// SetLimit permits more.
type GateConn struct {
	*transport
	in  []byte // the part of the last message that Read has not returned
	out []byte // the beginning of a frame
}

// errFrame means that the other end of the splice has sent no frame.
var errFrame = errors.New("the length of a frame is not valid")

// Read implements net.Conn.
func (c *GateConn) Read(p []byte) (int, error) {
	if len(c.in) == 0 {
		m, err := c.Next()
		if err != nil {
			return 0, err
		}
		c.in = m
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}

// Write implements net.Conn.
func (c *GateConn) Write(p []byte) (int, error) {
	c.out = append(c.out, p...)
	frames := c.out
	for len(frames) >= frame.HeaderLen {
		n := binary.BigEndian.Uint32(frames)
		if n == 0 || n > frame.Max {
			return 0, fmt.Errorf("%w: %d bytes", errFrame, n)
		}
		end := frame.HeaderLen - 1 + int(n)
		if len(frames) < end {
			break
		}
		if err := c.transport.Write(frames[:end]); err != nil {
			return 0, err
		}
		frames = frames[end:]
	}
	c.out = append(c.out[:0], frames...)
	return len(p), nil
}

// Close implements net.Conn.
func (c *GateConn) Close() error {
	err := c.transport.Close()
	c.end()
	return err
}

// Base returns the connection that carries the WebSocket.
func (c *GateConn) Base() net.Conn { return c.nc }

// LocalAddr implements net.Conn.
func (c *GateConn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *GateConn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// SetDeadline implements net.Conn.
func (c *GateConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

var _ net.Conn = (*GateConn)(nil)

// redeem invalidates a ticket of the page, and reports whether it was valid, and for whom.
func (h *Handler) redeem(ticket string) (p *pass.Pass, ok bool) {
	if h.cfg.Gate != nil {
		return &pass.Pass{}, h.tickets.Redeem(ticket)
	}
	principal, ok := h.cfg.Server.Redeem(ticket, "")
	return &pass.Pass{Principal: principal}, ok
}

// key returns the key of the passes.
func (h *Handler) key() *pass.Key {
	if h.cfg.Gate != nil {
		return pass.NewKey(h.cfg.Gate.Token())
	}
	return h.passes
}
