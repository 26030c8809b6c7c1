// Package apiserver answers clients. It translates the messages of the api into messages of
// the link and back, and it asks the policy, which the supervisor does not know.
//
// Invariant: the proxy holds no state that must survive. The state of a connection is its
// hello, the numbers of its attachments and its subscription. If that state is lost, the
// client must reconnect, but no session, no output and no input is lost.
//
// Package apiserver has no queues. The goroutine of an attachment carries each frame from the
// link to the client. A client that does not read therefore delays only its own attachments,
// and the supervisor will send a snapshot to each of them.
//
// Not here: how a connection is accepted (packages socket and web), and the link (package
// linkclient).
package apiserver

import (
	"context"
	"errors"
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

// Limits bound the resources that clients can make the proxy hold.
const (
	maxAttachments = 256 // of one connection
	maxRequests    = 64  // requests of one connection in progress; the connection is not read while it has so many
	// maxLargeReplies are the requests of one connection in progress that may have a large reply. Such a reply takes up to
	// 2 MiB until the client has read it. Further requests wait without a reply.
	maxLargeReplies = 4
	maxWaits        = 1024 // waits of one connection in progress; another wait is refused
	// maxAllWaits are the waits of all connections in progress. Each has a stream of the link, which has room for 8,192.
	maxAllWaits  = 4096
	maxWaitBytes = 128 << 10 // of the message of a wait, which is kept until the wait ends; a mark has at most 64 KiB

	// The limits of one share link leave room for the creator of the link, because there are
	// 512 TCP connections, and 1,024 attachments of a session. A viewer needs one attachment and at
	// most four connections: for requests, for events, for the attachment, and one that replaces
	// it.
	maxLinkAttachments = 8
	maxLinkRequests    = 2 // requests on which the supervisor works; a connection is not read while it has so many in progress
	maxLinkConns       = 4 * maxLinkAttachments
	maxLinksConns      = 256 // connections of all share links together

	helloTimeout  = 2 * time.Second
	goawayTimeout = 200 * time.Millisecond // for a last message to a client that does not read
)

// defaultEarlyExit is the time for which a new session is watched, so that a command that fails
// at once is reported in the answer to its spawn.
const defaultEarlyExit = 200 * time.Millisecond

// Config configures a Server. Link must be set.
type Config struct {
	Link   *linkclient.Client
	Policy policy.Policy // nil is policy.Allow
	Token  string        // the token that clients on TCP must show; it also signs share links
	// IsTokenNew is set if the token was made for this proxy, so that no earlier proxy has had it.
	IsTokenNew bool
	Secret     string // if not empty, each hello must carry it
	Web        string // the TCP address of the web server; empty if there is none
	NoPage     bool   // the program was built without the web page, so no browser could show a share link
	// PlaceKey is the secret that enciphers event numbers for clients that do not see all sessions.
	// A proxy must have the same key as its predecessor, so that clients can resume their events.
	PlaceKey string
	// EarlyExit is how long a new session is watched; 0 means 200 ms, and a negative time
	// means not at all.
	EarlyExit time.Duration
	// Limits apply to a new session unless its client or its labels set a limit.
	Limits protocol.Limits
	// Integrate returns the command and environment that start a shell with shell integration, so
	// that the shell marks its prompts and commands in its output. It returns the command of
	// another program unchanged. If Integrate is nil, no shell is integrated.
	Integrate func(argv, env []string) (newArgv, newEnv []string, err error)
	// Asked returns the command that the client requested, if argv is a result of Integrate, and
	// argv itself otherwise. If Asked is nil, every command is shown unchanged.
	Asked func(argv []string) []string
	// ProbeEvery is the interval at which the server checks that a bare client is still connected
	// while it does not read the client's input; 0 means 5 s.
	ProbeEvery time.Duration
	Log        zerolog.Logger
	// Agent receives the socket of the ssh agent of a client that spawns or attaches, and returns
	// the path by which a session reaches that agent. If Agent is nil, agents are ignored. See
	// agent.go.
	Agent func(socket string) (path string, err error)
}

// A Server serves the connections of clients on all transports.
type Server struct {
	cfg      Config
	instance protocol.Instance
	started  time.Time
	tickets  tickets
	counts   counts
	places   places
	passes   *pass.Key

	refusals logging.Limiter // limits how often refusals and lost connections are logged

	shareMu    sync.Mutex    // held while the attachments of a share link are counted and one is added
	waitSlots  chan struct{} // holds an element for each wait in progress
	costlySlot chan struct{} // has one slot for costly requests, which all share links have in common

	mu         sync.Mutex
	links      map[shareKey]*linkUse // the share links that have connections
	conns      map[*conn]struct{}
	quota      Quota
	isShut     bool
	movedConns []*Frozen // connections that Forget must release
	wg         sync.WaitGroup
}

// New returns a Server with the given configuration, which serves no connection yet.
func New(cfg Config) *Server {
	if cfg.EarlyExit == 0 {
		cfg.EarlyExit = defaultEarlyExit
	}
	if cfg.Policy == nil {
		cfg.Policy = policy.Allow{}
	}
	return &Server{
		cfg: cfg, instance: protocol.NewInstance(), started: time.Now(), counts: newCounts(), places: newPlaces(cfg.PlaceKey), passes: pass.NewKey(cfg.Token),
		conns: make(map[*conn]struct{}), quota: Quota{Max: MaxConns, MaxOfOne: MaxConnsOfOne}, links: make(map[shareKey]*linkUse), waitSlots: make(chan struct{}, maxAllWaits), costlySlot: make(chan struct{}, 1),
	}
}

// A Transport carries the frames of one connection. One goroutine must call Next, and calls of
// Write must not overlap.
type Transport interface {
	// Next returns the next whole frame, which is valid until the next call. If the error has a
	// code, the server sends the error to the client before it closes the connection.
	Next() ([]byte, error)
	// Write writes one whole frame.
	Write(raw []byte) error
	// SetLimit changes the largest frame that Next accepts.
	SetLimit(n int)
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	Close() error
}

// An Accepter is a Transport that must be notified when the client's hello has been accepted.
type Accepter interface {
	Accepted()
}

// The transports of an Origin.
const (
	TransportUnix = "unix"
	TransportWeb  = "websocket"
	// TransportRaw is a connection without messages that shows one session: the client receives the
	// output of that session and sends input to it.
	TransportRaw = "raw"
	// TransportHTTP is a connection before its HTTP request has been read.
	TransportHTTP = "http"
)

// Origin describes the peer of a connection and how it was authenticated.
type Origin struct {
	Transport string
	PID       int // the process id of the peer; 0 if it is unknown
	// Trusted is set if the operating system reported the peer's uid, or if the peer presented a
	// ticket. Another peer must show the token in its hello.
	Trusted bool
	// Principal is the policy's answer to the question which user the client is. It is nil until
	// the policy has been asked. A ticket or a cookie may contain it.
	Principal *policy.Principal `json:",omitempty"`
	// Cookie is set if the client is a page in a browser that presented a valid cookie. The browser
	// received the cookie because its user knew the secret.
	Cookie bool `json:",omitempty"`
	// Share restricts the client to one session; nil means no restriction. See share.go.
	Share *Share `json:",omitempty"`
}

// Accept adds a connection, or refuses it. The caller must call serve, which serves the connection
// until it ends or ctx is done, or tells the client why it was refused. serve returns true if the
// connection has been moved to another proxy; otherwise the transport is closed.
func (s *Server) Accept(ctx context.Context, t Transport, from Origin) (serve func() (moved bool)) {
	c := s.newConn(ctx, t, from, phaseServing)
	return s.serveFunc(c, s.addConn(c))
}

// serveFunc returns the function that serves a connection that was added, or the function that
// refuses it with err if it was not added.
func (s *Server) serveFunc(c *conn, err error) (serve func() (moved bool)) {
	if err != nil {
		return func() bool { c.refuse(err); return false }
	}
	return func() bool {
		defer s.removeConn(c)
		return c.serve()
	}
}

// refuse sends err to the client and closes the connection.
func (c *conn) refuse(err error) {
	c.cancel()
	c.closeWith(api.Error{Error: *protocol.AsError(err)})
	c.life.enter(onEnd)
}

// newConn returns a connection whose life begins with the phase begin.
func (s *Server) newConn(ctx context.Context, t Transport, from Origin, begin phase) *conn {
	c := &conn{
		caller: s.newCaller(from), life: life{phase: begin},
		attachments:  newAttachmentTable(),
		requestSlots: make(chan struct{}, maxRequests),
		largeSlots:   make(chan struct{}, maxLargeReplies),
		waitSlots:    make(chan struct{}, maxWaits),
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.sender = sender{server: s, t: t, life: &c.life, logger: &c.log, lost: c.cancelRequests}
	return c
}

func (s *Server) addConn(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isShut {
		return &protocol.Error{Code: protocol.CodeClosed, Message: "the proxy is ending: connect again", Retryable: true}
	}
	if err := s.quota.Check(c.from.PID); err != nil {
		s.refusals.Of(s.cfg.Log).Warn().Err(err).Int("connections", len(s.conns)).Int(logging.PID, c.from.PID).Msg("client refused: too many clients")
		return err
	}
	if err := s.addLink(c); err != nil {
		return err
	}
	s.conns[c] = struct{}{}
	s.quota.Add(c.from.PID)
	s.wg.Add(1)
	return nil
}

func (s *Server) removeConn(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.removeLink(c)
	s.quota.Remove(c.from.PID)
	s.wg.Done()
}

// Goaway asks every client to reconnect after retryAfter, closes all connections and refuses new
// ones. It returns when all connections have ended.
func (s *Server) Goaway(reason string, retryAfter time.Duration) {
	s.Shut()
	for _, c := range s.allConns() {
		go func() {
			c.closeWith(api.Goaway{Reason: reason, RetryAfterMS: retryAfter.Milliseconds()})
			c.cancel() // the reader may wait for a request to end instead of for the client
		}()
	}
	s.wg.Wait()
}

// Shut makes the server refuse new connections until Reopen is called.
func (s *Server) Shut() { s.setShut(true) }

// Reopen makes the server accept connections again after Shut.
func (s *Server) Reopen() { s.setShut(false) }

func (s *Server) setShut(shut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isShut = shut
}

// allConns returns the connections that are being served.
func (s *Server) allConns() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// SignOut closes the connections of all browsers that were authenticated by a cookie. It closes all at once, because
// closeWith waits for a browser that does not read.
func (s *Server) SignOut() {
	var wg sync.WaitGroup
	for _, c := range s.allConns() {
		if c.from.Cookie && c.from.Share == nil {
			wg.Go(func() {
				c.closeWith(api.Error{Error: *protocol.Errorf(protocol.CodeUnauthorized, "all browsers were signed out")})
			})
		}
	}
	wg.Wait()
}

// ServeListener accepts connections of the framed Unix socket until ctx is done or ln fails. The
// connections continue when ServeListener returns; they end when connCtx is done.
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

// Clients returns the number of connections.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// statusTime is how long a status request waits for the supervisor. The report describes the proxy
// even if the supervisor does not answer.
const statusTime = 2 * time.Second

// status answers a status request.
func (c *caller) status(ctx context.Context, m *api.Status) (protocol.Message, error) {
	s := c.s
	report := api.StatusReport{Request: m.Request, Web: s.cfg.Web, Proxy: protocol.ProcessStatus{
		PID: os.Getpid(), Version: version.String(), Protocol: protocol.Supported(), Instance: s.instance,
		Uptime: time.Since(s.started).Seconds(), Clients: s.Clients(), // includes this client
	}}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	sup, err := s.cfg.Link.Status(ctx)
	if err == nil && !c.from.Principal.All { // a client of one workspace must not learn how many clients there are
		report.Proxy.Clients = 0
		sup.Sessions, err = c.runningCount(ctx)
	}
	if err != nil {
		s.cfg.Log.Warn().Err(err).Msg("supervisor status unavailable")
		return report, nil
	}
	report.Supervisor, report.Proxy.Sessions = &sup, sup.Sessions
	return report, nil
}

// runningCount returns the number of sessions that the client can see and that have not ended.
func (c *caller) runningCount(ctx context.Context) (n int, err error) {
	all, err := c.s.cfg.Link.List(ctx, "")
	for _, info := range c.visible(all) {
		if info.State != protocol.StateExited {
			n++
		}
	}
	return n, err
}
