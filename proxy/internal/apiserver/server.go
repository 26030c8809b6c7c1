// Package apiserver answers clients: it turns the api's messages into the
// link's and back, and adds the policy that the supervisor does not have.
//
// Invariant: the proxy holds nothing that matters. A connection's state is its
// hello, its attachments' numbers and its subscription; losing it costs the
// client a reconnect, and never a session, a byte printed or a byte typed.
//
// Nothing here queues: a frame goes from the link to the client in the
// goroutine of its attachment, so a client that does not read holds up its own
// attachments alone, and the supervisor moves those to a snapshot.
//
// Not here: how a connection came to be (packages socket and web), the link
// (package linkclient).
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/internal/linkclient"
	"holdfast/proxy/internal/pass"
	"holdfast/proxy/policy"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// Limits on what clients can make the proxy hold.
const (
	maxConns       = 2048 // connections, those before their hello included
	maxConnsOfOne  = 1536 // of one process: others must find room beside it
	maxAttachments = 256  // of one connection
	maxRequests    = 64   // of one connection under way; further ones are read later
	maxWaits       = 1024 // of one connection under way; further ones are refused

	// Of a share link, so that its giver always finds room: TCP has 512 connections,
	// a session 1,024 attachments. Each viewer needs one attachment, and up to four
	// connections (requests, events, the attachment, and one that takes its place).
	maxLinkAttachments = 8
	maxLinkRequests    = 2 // under way; further ones are read later
	maxLinkConns       = 4 * maxLinkAttachments
	maxLinksConns      = 256 // of all links

	helloTimeout  = 2 * time.Second
	goawayTimeout = 200 * time.Millisecond // for a client that does not read
)

// DefaultEarlyExit is how long a new session is watched (DEMANDS K1).
const DefaultEarlyExit = 200 * time.Millisecond

// Config is what a Server needs.
type Config struct {
	Link   *linkclient.Client
	Policy policy.Policy // nil is policy.Allow
	Token  string        // of clients on TCP; it signs share links
	Secret string        // where not "", every hello must carry it
	Web    string        // where WebSockets are served over TCP, for who asks; "" is nowhere
	// PlaceKey hides the numbers of events from who does not see all: the same in
	// the proxies that follow each other.
	PlaceKey  string
	EarlyExit time.Duration // the default watch; 0 is DefaultEarlyExit, negative none
	// Limits are those of a session for which neither its client nor its labels name them.
	Limits protocol.Limits
	// Integrate returns how to start a shell so that it tells of its prompts and commands,
	// and other programs as they are; nil starts all as they are.
	Integrate func(argv, env []string) (newArgv, newEnv []string, err error)
	// Asked returns what Integrate was given, of an argv that it may have returned; nil
	// returns all as they are.
	Asked func(argv []string) []string
	// ProbeEvery is how often a bare client is asked whether it is there while
	// nothing is read of it; 0 is 5 s.
	ProbeEvery time.Duration
	Log        zerolog.Logger
	// Agent is told where the ssh agent is of who starts a session or attaches, and
	// returns where it is found by that from now on; nil tells nobody. See agent.go.
	Agent func(socket string) (path string, err error)
}

// A Server serves connections, however they came.
type Server struct {
	cfg      Config
	instance protocol.Instance
	started  time.Time
	tickets  tickets
	counts   counts
	places   places
	passes   *pass.Key

	refusals logging.Limiter // of lines about what was refused

	seating sync.Mutex    // held while the attachments of a share link are counted
	costly  chan struct{} // the place for what costs the supervisor much, of all share links

	mu    sync.Mutex
	links map[shareKey]*linkUse // of share links whose holders are connected
	conns map[*conn]struct{}
	byPID map[int]int // how many of them a process has; 0 are those whose is not known
	shut  bool
	given []*Frozen // to be forgotten
	wg    sync.WaitGroup
}

// New returns a Server.
func New(cfg Config) *Server {
	if cfg.EarlyExit == 0 {
		cfg.EarlyExit = DefaultEarlyExit
	}
	if cfg.Policy == nil {
		cfg.Policy = policy.Allow{}
	}
	return &Server{
		cfg: cfg, instance: protocol.NewInstance(), started: time.Now(), counts: newCounts(), places: newPlaces(cfg.PlaceKey), passes: pass.NewKey(cfg.Token),
		conns: make(map[*conn]struct{}), byPID: make(map[int]int), links: make(map[shareKey]*linkUse), costly: make(chan struct{}, 1),
	}
}

// A Transport carries frames of one connection. One goroutine calls Next;
// calls of Write do not overlap.
type Transport interface {
	// Next returns the next whole frame, valid until the next call. An error
	// with a code is told to the client before the connection is closed.
	Next() ([]byte, error)
	// Write writes one whole frame.
	Write(raw []byte) error
	// SetLimit changes the largest frame that Next accepts.
	SetLimit(n int)
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	Close() error
}

// How connections come, as an Origin says it.
const (
	TransportUnix = "unix"
	TransportWeb  = "websocket"
	// TransportRaw shows one session: what is written to it is that session's
	// output, what comes from it is typed.
	TransportRaw = "raw"
	// TransportHTTP is none yet: its request has not been read.
	TransportHTTP = "http"
)

// Origin says where a connection came from.
type Origin struct {
	Transport string
	PID       int // the peer's, where known
	// Trusted peers have proved who they are: the system said their uid, or
	// they had a ticket. Others must show the token in their hello.
	Trusted bool
	// Principal is who a policy says that it is, once it has been asked; a ticket's
	// is known beforehand.
	Principal *policy.Principal `json:",omitempty"`
	// Cookie says that it is the page of a browser, which was let in by somebody who
	// knew the secret.
	Cookie bool `json:",omitempty"`
	// Share restricts it to one session; nil does not. See share.go.
	Share *Share `json:",omitempty"`
}

// Accept lets a connection in, or says to its client why not. What it returns
// serves the connection until it ends, and reports whether it has been moved to
// another proxy: else the transport was closed. The connection ends with ctx.
func (s *Server) Accept(ctx context.Context, t Transport, from Origin) (serve func() (moved bool)) {
	c := s.newConn(ctx, t, from)
	return s.accepted(c, s.add(c))
}

// accepted returns what serves a connection that was added, or says why not.
func (s *Server) accepted(c *conn, err error) (serve func() (moved bool)) {
	if err != nil {
		return func() bool { c.refuse(err); return false }
	}
	return func() bool {
		defer s.remove(c)
		return c.serve()
	}
}

// refuse says why a connection is not let in.
func (c *conn) refuse(err error) {
	c.cancel()
	_ = c.t.SetWriteDeadline(time.Now().Add(goawayTimeout))
	c.fail("", nil, err)
	_ = c.t.Close()
}

func (s *Server) newConn(ctx context.Context, t Transport, from Origin) *conn {
	c := &conn{
		s: s, t: t, from: from,
		attachments: make(map[uint32]*attachment),
		terminals:   make(map[protocol.SessionID]*attachment),
		requests:    make(map[*request]struct{}),
		room:        make(chan struct{}, maxRequests),
		wait:        make(chan struct{}, maxWaits),
		moving:      make(chan struct{}),
		stopped:     make(chan struct{}),
		rested:      make(chan struct{}),
		log:         s.cfg.Log.With().Str("transport", from.Transport).Int(logging.PID, from.PID).Logger(),
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c
}

func (s *Server) add(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return &protocol.Error{Code: protocol.CodeClosed, Message: "the proxy is going away", Retryable: true}
	}
	if len(s.conns) >= maxConns {
		s.refusals.Of(s.cfg.Log).Warn().Int("connections", len(s.conns)).Msg("too many clients, refused")
		return &protocol.Error{Code: protocol.CodeLimitExceeded, Message: "too many clients", Retryable: true, RetryAfterMS: 1000}
	}
	if n := s.byPID[c.from.PID]; n >= maxConnsOfOne {
		s.refusals.Of(s.cfg.Log).Warn().Int("connections", n).Int(logging.PID, c.from.PID).Msg("too many connections of one client, refused")
		return &protocol.Error{
			Code: protocol.CodeLimitExceeded, Retryable: true, RetryAfterMS: 1000,
			Message: fmt.Sprintf("one process has %d connections already", n),
		}
	}
	if err := s.addLink(c); err != nil {
		return err
	}
	s.conns[c] = struct{}{}
	s.byPID[c.from.PID]++
	s.wg.Add(1)
	return nil
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.removeLink(c)
	if s.byPID[c.from.PID]--; s.byPID[c.from.PID] == 0 {
		delete(s.byPID, c.from.PID)
	}
	s.wg.Done()
}

// Goaway tells every client to come back after the given time, closes all
// connections and accepts no more. It returns when all have ended.
func (s *Server) Goaway(reason string, retryAfter time.Duration) {
	s.Shut()
	for _, c := range s.all() {
		go c.goaway(api.Goaway{Reason: reason, RetryAfterMS: retryAfter.Milliseconds()})
	}
	s.wg.Wait()
}

// Shut lets no client in any more, and Reopen takes that back.
func (s *Server) Shut() { s.setShut(true) }

// Reopen lets clients in again.
func (s *Server) Reopen() { s.setShut(false) }

func (s *Server) setShut(shut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = shut
}

// all are those that are there.
func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// SignOut ends the connections of all browsers that were let in by a cookie.
func (s *Server) SignOut() {
	for _, c := range s.all() {
		if c.from.Cookie && c.from.Share == nil {
			_ = c.t.SetWriteDeadline(time.Now().Add(goawayTimeout))
			c.send(api.Error{Error: *protocol.Errorf(protocol.CodeUnauthorized, "all browsers were signed out")})
			_ = c.t.Close()
		}
	}
}

// ServeListener serves the framed Unix socket until ctx is done or ln fails.
// Connections go on when it returns.
func (s *Server) ServeListener(ctx, connCtx context.Context, ln *socket.Listener) error {
	defer socket.Until(ctx, ln)()
	for {
		nc, peer, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		go s.Accept(connCtx, NewStream(nc, nil), Origin{Transport: TransportUnix, PID: peer.PID, Trusted: true})()
	}
}

// Clients is how many connections there are.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// statusTime is how long a status waits for the supervisor. What is known of the proxy is told
// in any case.
const statusTime = 2 * time.Second

func (c *conn) status(ctx context.Context) api.StatusReport {
	s := c.s
	report := api.StatusReport{Web: s.cfg.Web, Proxy: protocol.ProcessStatus{
		PID: os.Getpid(), Version: version.String(), Protocol: protocol.Supported(), Instance: s.instance,
		Uptime: time.Since(s.started).Seconds(), Clients: s.Clients(), // itself included
	}}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	sup, err := s.cfg.Link.Status(ctx)
	if err == nil && !c.from.Principal.All { // how many others there are is not its business
		report.Proxy.Clients = 0
		sup.Sessions, err = c.running(ctx)
	}
	if err != nil {
		s.cfg.Log.Warn().Err(err).Msg("supervisor's status not had")
		return report
	}
	report.Supervisor, report.Proxy.Sessions = &sup, sup.Sessions
	return report
}

// running is how many sessions there are for the client that have not ended.
func (c *conn) running(ctx context.Context) (n int, err error) {
	all, err := c.s.cfg.Link.List(ctx, "")
	for _, info := range c.visible(all) {
		if info.State != protocol.StateExited {
			n++
		}
	}
	return n, err
}
