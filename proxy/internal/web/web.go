// Package web serves clients that speak HTTP: the api in WebSocket messages, the terminal of one
// session as a raw WebSocket, and the page.
//
//	GET /v1/api                 the api, subprotocol holdfast.v1
//	GET /v1/sessions/{id}/raw   the terminal's bytes alone
//	GET /metrics, /healthz      the state of proxy and supervisor, as text
//	GET /, /assets/..., /share  the page, on TCP; see page.go
//
// A connection carries one request. Bytes that arrive after the request's head are kept for the
// WebSocket's reader, so that a live WebSocket is fully described by its connection and some
// unread bytes, and can be moved to another process.
//
// A Handler of a gate serves the page and WebSockets with the messages of the gate instead; see gate.go.
//
// Invariant: on TCP a request is handled only if its Host and Origin are in the lists, and at a gate only if
// its Origin, if there is one, is that of the gate's own page. A client
// that has shown neither ticket, token nor cookie learns only whether the proxy serves, and
// receives only the page's files, which are the same for all.
//
// Not here: the meaning of the api's messages (package apiserver), the page itself (package
// page).
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

// maxTCPConns limits the connections of a handler on TCP, which trusts no peer: a page of any site
// can connect. A handler on a Unix socket has the limits of apiserver.
const maxTCPConns = 512

// Waits before the next accept if the system is short of descriptors or memory; each wait is
// twice as long as the one before, from firstWait to lastWait.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = 100 * time.Millisecond
)

// A Server serves the api; *apiserver.Server implements it.
type Server interface {
	Accept(ctx context.Context, t apiserver.Transport, from apiserver.Origin) (serve func() (moved bool))
	AttachBare(ctx context.Context, from *apiserver.Origin, spec protocol.AttachSpec) (*linkclient.Attachment, *protocol.AttachInfo, error)
	AcceptBare(ctx context.Context, t apiserver.Transport, from apiserver.Origin, link *linkclient.Attachment, info *protocol.AttachInfo) (serve func() (moved bool))
	Restore(ctx context.Context, t apiserver.Movable, r *apiserver.Record, ready func(), committed <-chan struct{}) (accepted, moved bool)
	Redeem(ticket string, session protocol.SessionID) (*policy.Principal, bool)
}

// Config holds the settings and the dependencies of a Handler.
type Config struct {
	Server Server
	// Hosts and Origins are allowed in addition to those of the listener itself. A host is
	// written as in the header: with its port, unless the port is 80.
	Hosts   []string
	Origins []string
	// Trusted means that the system identifies every peer, as on a Unix socket. The handler then
	// demands neither Host, Origin, ticket nor token.
	Trusted bool
	// Tickets means that a raw WebSocket needs a ticket even if the peer is trusted. It must be
	// set if hello must carry a secret, because a raw WebSocket has no hello.
	Tickets bool
	// Metrics and Health answer GET /metrics and /healthz; if one is nil, its path does not
	// exist. A peer that is not trusted must send Token to read the metrics.
	Metrics func(context.Context) (text []byte, contentType string, err error)
	Health  func(context.Context) error
	Token   string
	// Page means that the handler serves the page to peers that are not trusted. Files holds the
	// page's files; it is nil if the program was built without the page. Token signs the page's
	// cookies.
	Page  bool
	Files fs.FS
	Now   func() time.Time // nil means time.Now
	// Gate makes this the handler of a gate; see gate.go. Server, Hosts, Origins and Token are not used then.
	Gate *Gate
	// SignedOut returns the time at which the user last signed out all browsers; cookies issued
	// before it are void. It may be nil.
	SignedOut func() time.Time
	// Used is called with each ticket that has signed a browser in; it may be nil.
	Used    func(ticket string)
	Refused func(protocol.Code) // called for every refusal; may be nil
	Log     zerolog.Logger
}

// A Handler serves the clients of any number of listeners.
type Handler struct {
	cfg    Config
	passes *pass.Key
	// tickets are those of a gate. On one machine the Server has the tickets.
	tickets apiserver.TicketBox

	refusals logging.Limiter // limits the log lines about refusals

	away  context.Context // canceled when all clients must reconnect
	leave context.CancelFunc

	mu     sync.Mutex
	quota  apiserver.Quota
	isFull bool // the last connection was refused for want of room
	isShut bool
	wg     sync.WaitGroup

	strangers   []*pendingConn // oldest first; see strangers.go
	maxStranger int
	isCrowded   bool // a stranger was closed to make room for another one

	pending map[*pendingConn]struct{} // connections with a request that is not answered yet
	quiet   chan struct{}             // not nil while connections are being moved; closed when no request is pending
	frozen  []*pendingConn
}

// New returns a Handler that serves no listener yet.
func New(cfg Config) *Handler {
	h := &Handler{
		cfg: cfg, passes: pass.NewKey(cfg.Token), quota: apiserver.Quota{Max: maxTCPConns, MaxOfOne: maxTCPConns}, pending: make(map[*pendingConn]struct{}),
		maxStranger: maxStrangers,
	}
	if cfg.Trusted {
		h.quota = apiserver.Quota{Max: apiserver.MaxConns, MaxOfOne: apiserver.MaxConnsOfOne}
	}
	h.away, h.leave = context.WithCancel(context.Background())
	return h
}

// Serve accepts connections from ln until ctx is done or ln fails. The caller must close ln. The
// connections continue when Serve returns; they end with connCtx, with Goaway, or by themselves.
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

// longAgo is a deadline that interrupts reads and writes at once.
var longAgo = time.Unix(1, 0)

// isShortage reports whether an error of accept is temporary.
func isShortage(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// begin serves a connection in a goroutine, or refuses it if a limit is reached.
func (h *Handler) begin(ctx context.Context, g *guard, nc net.Conn) {
	pid := peerPID(nc)
	h.makeRoom()
	if no := h.add(pid); no != nil {
		h.refused(no)
		_ = nc.SetWriteDeadline(time.Now().Add(closeTimeout))
		_ = no.write(nc, nil)
		_ = nc.Close()
		return
	}
	a := h.addPending(nc, nil)
	go func() {
		defer close(a.ended)
		defer h.remove(pid)
		h.serve(ctx, g, a)
	}()
}

func (h *Handler) add(pid int) *refusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isShut {
		return refuse(statusUnavailable, protocol.CodeClosed, errGoaway.Error())
	}
	if err := h.quota.Check(pid); err != nil {
		if !h.isFull { // one log line each time that the limit is reached
			h.isFull = true
			h.cfg.Log.Warn().Err(err).Int(logging.PID, pid).Msg("too many web clients, refused")
		}
		return refuse(statusUnavailable, protocol.CodeLimitExceeded, protocol.AsError(err).Message)
	}
	h.isFull = false
	h.count(pid)
	return nil
}

func (h *Handler) count(pid int) {
	h.quota.Add(pid)
	h.wg.Add(1)
}

func (h *Handler) remove(pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quota.Remove(pid)
	h.wg.Done()
}

// errGoaway ends connections so that their clients reconnect.
var errGoaway = errors.New("the proxy is ending: connect again")

// Goaway closes all connections with the status 1012, which tells a client to reconnect, and
// accepts no more. It returns when all connections have ended. The caller should call apiserver's
// Goaway first, which tells clients of the api when to reconnect.
func (h *Handler) Goaway() {
	h.mu.Lock()
	h.isShut = true
	h.mu.Unlock()
	h.leave()
	h.wg.Wait()
}
