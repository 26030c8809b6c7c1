package web

import (
	"context"
	"errors"
	"net"
	"os"

	"holdfast/proxy/internal/apiserver"
)

// Connections that are WebSockets are moved to another proxy by apiserver, which
// knows of them; those that still ask for something, by the Handler.

// An asker is a connection whose request is not answered yet.
type asker struct {
	nc   net.Conn
	read []byte // of its request, so far; for readRequest, and when it rests
}

func (h *Handler) asks(nc net.Conn, read []byte) *asker {
	a := &asker{nc: nc, read: read}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asking[a] = struct{}{}
	return a
}

// answered is called when a connection asks no more.
func (h *Handler) answered(a *asker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone(a)
}

// gone is answered; mu is held.
func (h *Handler) gone(a *asker) {
	delete(h.asking, a)
	h.quieten()
}

// quieten ends Freeze's wait when nobody asks any more; mu is held.
func (h *Handler) quieten() {
	if h.quiet == nil || len(h.asking) > 0 {
		return
	}
	select {
	case <-h.quiet:
	default:
		close(h.quiet)
	}
}

// Asking is how many connections there are whose request is not answered yet.
func (h *Handler) Asking() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.asking)
}

func (h *Handler) isMoving() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.quiet != nil
}

// rests reports whether err ended the reading of a request because the
// connection is being moved; then it is no longer the caller's.
func (h *Handler) rests(a *asker, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.quiet == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	h.rested = append(h.rested, a)
	h.gone(a)
	return true
}

// An Asker is a connection at rest whose request is not read to its end.
type Asker struct {
	Client net.Conn
	Record apiserver.Record
}

// Freeze brings those connections to rest that are no WebSockets yet, once no
// more are accepted; they are the caller's. When it returns without an error all
// others are known to the Server. See Reopen.
func (h *Handler) Freeze(ctx context.Context) ([]Asker, error) {
	h.mu.Lock()
	quiet := make(chan struct{})
	h.quiet = quiet
	for a := range h.asking {
		_ = a.nc.SetReadDeadline(longAgo)
	}
	h.quieten()
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
	for _, a := range h.rested {
		from := apiserver.Origin{Transport: apiserver.TransportHTTP, PID: peerPID(a.nc)}
		all = append(all, Asker{a.nc, apiserver.Record{Version: 1, From: from, In: a.read}})
	}
	h.rested = nil
	return all, err
}

// Reopen takes a Freeze back.
func (h *Handler) Reopen() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quiet = nil
	for _, a := range h.rested { // too late for Freeze
		_ = a.nc.Close()
	}
	h.rested = nil
}

// Adopt goes on with a connection of another proxy; see apiserver's Restore. It
// returns when the connection has ended, or is not ours.
func (h *Handler) Adopt(ctx context.Context, nc net.Conn, r *apiserver.Record, ready func(), ours <-chan struct{}) {
	h.mu.Lock()
	h.count(r.From.PID)
	h.mu.Unlock()
	defer h.remove(r.From.PID)
	if r.From.Transport == apiserver.TransportHTTP {
		h.adoptAsker(ctx, nc, r, ready, ours)
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
	switch taken, moved := h.cfg.Server.Restore(ctx, m, r, ready, ours); {
	case !taken:
		_ = nc.Close() // our descriptor of it, and nothing else
	case !moved:
		s.end()
	}
}

func (h *Handler) adoptAsker(ctx context.Context, nc net.Conn, r *apiserver.Record, ready func(), ours <-chan struct{}) {
	g, err := newGuard(&h.cfg, nc.LocalAddr())
	ready()
	select {
	case <-ours:
		if err == nil {
			h.serve(ctx, g, h.asks(nc, r.In))
			return
		}
		h.cfg.Log.Warn().Err(err).Msg("client not taken over")
	case <-ctx.Done():
	}
	_ = nc.Close()
}
