package web

import (
	"context"
	"errors"
	"net"
	"os"

	"holdfast/proxy/internal/apiserver"
)

// Two packages move connections to another proxy: apiserver moves the connections that are
// WebSockets, because it serves them, and a Handler moves the connections that are still sending
// a request.

// A pendingConn is a connection with a request that is not answered yet.
type pendingConn struct {
	nc   net.Conn
	read []byte // bytes of its request so far: readRequest begins with them, and a freeze saves them

	away  context.Context // canceled by end
	leave context.CancelFunc
	ended chan struct{} // closed when the connection no longer counts against the limits
}

func (h *Handler) addPending(nc net.Conn, read []byte) *pendingConn {
	a := &pendingConn{nc: nc, read: read, ended: make(chan struct{})}
	a.away, a.leave = context.WithCancel(context.Background())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending[a] = struct{}{}
	if !h.cfg.Trusted {
		h.strangers = append(h.strangers, a)
	}
	return a
}

// end closes the connection, whichever part of its request is being served.
func (a *pendingConn) end() {
	a.leave()
	_ = a.nc.Close() // the goroutine that serves it may have closed it already
}

// markAnswered removes a connection from the pending ones, because its request is answered or
// another part of the proxy serves it.
func (h *Handler) markAnswered(a *pendingConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removePending(a)
}

// removePending does the work of markAnswered; h.mu must be held.
func (h *Handler) removePending(a *pendingConn) {
	delete(h.pending, a)
	h.signalQuiet()
}

// signalQuiet ends the wait of Freeze if no request is pending; h.mu must be held.
func (h *Handler) signalQuiet() {
	if h.quiet == nil || len(h.pending) > 0 {
		return
	}
	select {
	case <-h.quiet:
	default:
		close(h.quiet)
	}
}

// Asking returns the number of connections with a request that is not answered yet.
func (h *Handler) Asking() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.pending)
}

func (h *Handler) isMoving() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.quiet != nil
}

// freezeConn reports whether err ended the reading of a request because the connection is being
// moved. If so, the connection belongs to Freeze, and the caller must not close it.
func (h *Handler) freezeConn(a *pendingConn, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.quiet == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	h.frozen = append(h.frozen, a)
	h.removeStrangerLocked(a)
	h.removePending(a)
	return true
}

// An Asker is a frozen connection with a request that has not arrived completely.
type Asker struct {
	Client net.Conn
	Record apiserver.Record
}

// Freeze stops reading from all connections that are still sending a request, and returns those
// connections, which then belong to the caller. It must be called after the last connection was
// accepted. If Freeze returns no error, the Server serves all other connections. Reopen undoes a
// Freeze.
func (h *Handler) Freeze(ctx context.Context) ([]Asker, error) {
	h.mu.Lock()
	quiet := make(chan struct{})
	h.quiet = quiet
	for a := range h.pending {
		_ = a.nc.SetReadDeadline(longAgo)
	}
	h.signalQuiet()
	h.mu.Unlock()
	var err error
	select {
	case <-quiet:
	case <-ctx.Done():
		err = ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []Asker
	for _, a := range h.frozen {
		from := apiserver.Origin{Transport: apiserver.TransportHTTP, PID: peerPID(a.nc)}
		all = append(all, Asker{a.nc, apiserver.Record{Version: apiserver.RecordVersion, From: from, In: a.read}})
	}
	h.frozen = nil
	return all, err
}

// Reopen lets the Handler serve again after a Freeze.
func (h *Handler) Reopen() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quiet = nil
	for _, a := range h.frozen { // these were frozen after Freeze had returned
		_ = a.nc.Close()
	}
	h.frozen = nil
}

// Adopt serves a connection that another proxy has moved to this one; apiserver's Restore
// describes ready and committed. Adopt returns when the connection has ended, or when the move
// was not committed.
func (h *Handler) Adopt(ctx context.Context, nc net.Conn, r *apiserver.Record, ready func(), committed <-chan struct{}) {
	h.mu.Lock()
	h.count(r.From.PID)
	h.mu.Unlock()
	defer h.remove(r.From.PID)
	if r.From.Transport == apiserver.TransportHTTP {
		h.adoptAsker(ctx, nc, r, ready, committed)
		return
	}
	ctx, cancel := h.live(ctx)
	defer cancel()
	s := newSocket(nc, r.In)
	t := newTransport(ctx, s)
	var m apiserver.Movable = t
	if r.From.Transport == apiserver.TransportRaw {
		m = &rawTransport{transport: t}
	}
	switch accepted, moved := h.cfg.Server.Restore(ctx, m, r, ready, committed); {
	case !accepted:
		_ = nc.Close() // closes only the descriptor of this process; the other proxy keeps the connection
	case !moved:
		s.end()
	}
}

func (h *Handler) adoptAsker(ctx context.Context, nc net.Conn, r *apiserver.Record, ready func(), committed <-chan struct{}) {
	g, err := newGuard(&h.cfg, nc.LocalAddr())
	ready()
	select {
	case <-committed:
		if err == nil {
			a := h.addPending(nc, r.In)
			defer close(a.ended)
			h.serve(ctx, g, a)
			return
		}
		h.cfg.Log.Warn().Err(err).Msg("client not taken over")
	case <-ctx.Done():
	}
	_ = nc.Close()
}
