// Package web serves clients that speak HTTP: the api in WebSocket messages,
// and the terminal of one session as a bare WebSocket.
//
//	GET /v1/api                 the api, subprotocol holdfast.v1
//	GET /v1/sessions/{id}/raw   nothing but the terminal's bytes
//	GET /metrics, /healthz      how we are, as text
//	GET /, /assets/..., /share  the page, on TCP; see page.go
//
// A connection carries one request. What has arrived behind its head is kept,
// so that a live WebSocket is nothing but a connection and some bytes, and can
// be given to another process.
//
// Invariant: on TCP nothing is done for a request whose Host or Origin is not
// in the lists, and nothing is told to a client that has shown neither ticket,
// token nor cookie, but for whether we serve, and the page's files, which are the
// same for all.
//
// Not here: what the api's messages mean (package apiserver), what the page does
// (package page).
package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/linkclient"
	"holdfast/proxy/internal/pass"
	"holdfast/proxy/policy"
	"holdfast/shared/logging"
	listening "holdfast/shared/socket"
)

// Limits on what clients can make the proxy hold.
const (
	maxTCPConns   = 512  // of a handler that trusts nobody: any page of any site can knock there
	maxLocalConns = 2048 // of one that serves a Unix socket; apiserver's own limits are the same
	maxConnsOfOne = 1536 // of one process there; those whose process is not known count as one's
)

// Waits between tries to accept when the system is short of something,
// doubling from the first to the last.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = 100 * time.Millisecond
)

// A Server serves the api; *apiserver.Server is one.
type Server interface {
	Accept(ctx context.Context, t apiserver.Transport, from apiserver.Origin) (serve func() (moved bool))
	AttachBare(ctx context.Context, from *apiserver.Origin, spec protocol.AttachSpec) (*linkclient.Attachment, *protocol.AttachInfo, error)
	AcceptBare(ctx context.Context, t apiserver.Transport, from apiserver.Origin, link *linkclient.Attachment, info *protocol.AttachInfo) (serve func() (moved bool))
	Restore(ctx context.Context, t apiserver.Movable, r *apiserver.Record, ready func(), ours <-chan struct{}) (taken, moved bool)
	Redeem(ticket string, session protocol.SessionID) (*policy.Principal, bool)
}

// Config is what a Handler needs.
type Config struct {
	Server Server
	// Hosts and Origins are let through besides those of the listener itself.
	// A host is written as in the header: with its port, unless that is 80.
	Hosts   []string
	Origins []string
	// Trusted says that the system vouches for every peer, as on a Unix socket:
	// neither Host, Origin, ticket nor token is asked for.
	Trusted bool
	// Tickets says that raw WebSockets need a ticket of trusted peers, too: set
	// it where hello must carry a secret, which a raw WebSocket cannot.
	Tickets bool
	// Metrics and Health answer GET /metrics and /healthz; without them there is
	// no such path. Token is what a peer that is not trusted shows for the former.
	Metrics func(context.Context) (text []byte, contentType string, err error)
	Health  func(context.Context) error
	Token   string
	// Page says that the page is served, to peers that are not trusted. Files are
	// what it consists of, nil where it was not built. Token signs its cookies.
	Page  bool
	Files fs.FS
	Now   func() time.Time // nil is time.Now
	// SignedOut returns when the user last signed out all browsers: cookies from
	// before are void. It may be nil.
	SignedOut func() time.Time
	// Used is told of each ticket that a browser has signed in with; may be nil.
	Used    func(ticket string)
	Refused func(protocol.Code) // is told of every refusal; may be nil
	Log     zerolog.Logger
}

// A Handler serves any number of listeners.
type Handler struct {
	cfg     Config
	passes  *pass.Key
	maxConn int // of all
	maxOne  int // of one process

	refusals logging.Limiter // of lines about what was refused

	away  context.Context // done when every connection is to end, its clients to come again
	leave context.CancelFunc

	mu    sync.Mutex
	conns int
	byPID map[int]int // how many of them a process has
	full  bool        // the last connection was refused
	shut  bool
	wg    sync.WaitGroup

	asking map[*asker]struct{} // those whose request is not answered yet
	quiet  chan struct{}       // not nil while connections are being moved; closed when nobody asks any more
	rested []*asker
}

// New returns a Handler.
func New(cfg Config) *Handler {
	h := &Handler{
		cfg: cfg, passes: pass.NewKey(cfg.Token), maxConn: maxTCPConns, maxOne: maxTCPConns, byPID: make(map[int]int), asking: make(map[*asker]struct{}),
	}
	if cfg.Trusted {
		h.maxConn, h.maxOne = maxLocalConns, maxConnsOfOne
	}
	h.away, h.leave = context.WithCancel(context.Background())
	return h
}

// Serve serves a listener, which stays the caller's, until ctx is done or it
// fails. Connections go on when it returns; they end with connCtx, with
// Goaway, or by themselves.
func (h *Handler) Serve(ctx, connCtx context.Context, ln net.Listener) error {
	g, err := newGuard(&h.cfg, ln.Addr())
	if err != nil {
		return fmt.Errorf("serve web clients: %w", err)
	}
	if l, ok := ln.(interface{ SetDeadline(time.Time) error }); ok {
		defer listening.Until(ctx, l)()
	}
	wait := firstWait
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			wait = firstWait
			h.begin(connCtx, g, nc)
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case isShortage(err):
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			wait = min(2*wait, lastWait)
		default:
			return fmt.Errorf("accept web client: %w", err)
		}
	}
}

// longAgo is the deadline that ends what is under way.
var longAgo = time.Unix(1, 0)

// isShortage tells errors that pass by themselves.
func isShortage(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// begin serves a connection in a goroutine, if there is room for it.
func (h *Handler) begin(ctx context.Context, g *guard, nc net.Conn) {
	pid := peerPID(nc)
	if no := h.add(pid); no != nil {
		h.refused(no)
		_ = nc.SetWriteDeadline(time.Now().Add(closeTimeout))
		_ = no.write(nc, nil)
		_ = nc.Close()
		return
	}
	a := h.asks(nc, nil)
	go func() {
		defer h.remove(pid)
		h.serve(ctx, g, a)
	}()
}

func (h *Handler) add(pid int) *refusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shut {
		return refuse(statusUnavailable, protocol.CodeClosed, errGoaway.Error())
	}
	why := ""
	if h.conns >= h.maxConn {
		why = fmt.Sprintf("%d connections, which is all there can be", h.conns)
	} else if n := h.byPID[pid]; n >= h.maxOne {
		why = fmt.Sprintf("one process has %d connections already", n)
	}
	if why != "" {
		if !h.full { // once for each time that the room is used up
			h.full = true
			h.cfg.Log.Warn().Int("connections", h.conns).Int(logging.PID, pid).Msg("too many web clients, refused")
		}
		return refuse(statusUnavailable, protocol.CodeLimitExceeded, why)
	}
	h.full = false
	h.count(pid)
	return nil
}

func (h *Handler) count(pid int) {
	h.conns++
	h.byPID[pid]++
	h.wg.Add(1)
}

func (h *Handler) remove(pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns--
	if h.byPID[pid]--; h.byPID[pid] == 0 {
		delete(h.byPID, pid)
	}
	h.wg.Done()
}

// errGoaway ends connections whose clients shall come again.
var errGoaway = errors.New("the proxy is going away")

// Goaway closes all connections with the code 1012, which tells a client to
// come again, and accepts no more. It returns when all have ended. Clients of
// the api are told more by apiserver's Goaway: call that first.
func (h *Handler) Goaway() {
	h.mu.Lock()
	h.shut = true
	h.mu.Unlock()
	h.leave()
	h.wg.Wait()
}
