// Package linkserver serves proxies: a hello that enumerates the sessions, a stream for each
// request, for each attachment, and for each subscription of events.
//
// Several proxies may be linked at once, for example during a handoff. If a proxy ends, its
// attachments end, and nothing else.
//
// Invariant: no stream waits for another one, except for costly reads (turns.go). A proxy,
// client or stream can therefore not delay another one, whatever it does or fails to do.
//
// Not here: the decision which processes may connect (package socket), and the sessions
// (package session).
package linkserver

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
	"holdfast/shared/version"
	"holdfast/supervisor/internal/session"
)

// Limits on the resources that proxies may use.
const (
	maxLinks   = 64   // proxies linked at once; usual is one, or two during a handoff
	maxStreams = 8192 // attachments and unfinished requests of one link
)

// Config configures a Server.
type Config struct {
	Sessions *session.Table
	Secret   string // if not "", each hello must contain it
	// ReadSecret reads the secret, if there is one that could not be read before; otherwise it is nil. Each hello
	// calls it until it succeeds, and is refused if it fails.
	ReadSecret func() (string, error)
	Stop       func() // called once, after a requested shutdown has ended all sessions
	Upgrader   Upgrader
	Instance   protocol.Instance             // of this supervisor, which stays through upgrades; if "", New makes one
	Started    time.Time                     // when its first program started; zero means now
	Status     func(*protocol.ProcessStatus) // adds the facts that only the process knows
	Reading    func(n int)                   // called with the number of costly reads in progress; may be nil
	NoReads    time.Time                     // costly reads are refused until then
	Log        zerolog.Logger
}

// Server serves any number of links.
type Server struct {
	cfg      Config
	instance protocol.Instance
	started  time.Time
	secret   atomic.Pointer[string] // nil: there is one, but it could not be read yet
	links    atomic.Int64
	viewers  atomic.Int64 // attachments
	resyncs  atomic.Uint64
	missed   atomic.Uint64 // bytes
	stopping sync.Once
	quiet    quiet
	refusals logging.Limiter // limits log messages about refused proxies
	reads    *turns          // turns of all links together

	readingMu  sync.Mutex
	readingNow int // costly reads in progress
}

// Upgrader replaces the program of this process.
type Upgrader interface {
	// Upgrade tries the program of m, and returns its version if m asks only for a trial.
	// Otherwise it returns only if the upgrade has failed; then it returns the cause, and
	// nothing has changed.
	Upgrade(ctx context.Context, m *wire.Upgrade) (version string, sessions int, err error)
}

// New returns a Server that serves no links yet.
func New(cfg Config) *Server {
	if cfg.Started.IsZero() {
		cfg.Started = time.Now()
	}
	s := &Server{cfg: cfg, instance: cmp.Or(cfg.Instance, protocol.NewInstance()), started: cfg.Started, reads: newTurns(maxReads)}
	if cfg.ReadSecret == nil {
		s.secret.Store(&cfg.Secret)
	}
	return s
}

// Serve accepts links until ctx is done or ln fails, and returns when all links have ended.
// Errors: those of ln.
func (s *Server) Serve(ctx context.Context, ln *socket.Listener) error {
	links, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer s.farewell()
	for {
		nc, peer, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accept proxy: %w", err)
		}
		if s.links.Load() >= maxLinks {
			s.refusals.Of(s.cfg.Log).Warn().Int(logging.PID, peer.PID).Msg("proxy refused; too many are linked")
			_ = nc.Close()
			continue
		}
		s.links.Add(1)
		wg.Go(func() {
			defer s.links.Add(-1)
			s.serveLink(links, nc, s.cfg.Log.With().Int(logging.PID, peer.PID).Logger())
		})
	}
}

// Linked returns how many proxies are connected.
func (s *Server) Linked() int { return int(s.links.Load()) }

// farewellTimeout is how long viewers that do not read may delay the end of the server.
const farewellTimeout = time.Second

// farewell waits until the viewers of ended sessions have received the exit. If a link was
// closed before that, its proxy would ask again, and start another supervisor for the question.
func (s *Server) farewell() {
	for end := time.Now().Add(farewellTimeout); s.viewers.Load() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

func (s *Server) serveLink(ctx context.Context, nc net.Conn, log zerolog.Logger) {
	conn, hello, err := link.Accept(nc, s.welcome, log)
	if err != nil {
		limited := s.refusals.Of(log)
		event := limited.Info()
		if protocol.CodeOf(err) == protocol.CodeUnauthorized {
			event = limited.Warn().Bool(logging.Security, true)
		}
		event.Err(err).Msg("proxy refused")
		return
	}
	log.Info().Str("proxy", hello.Name).Str(logging.Version, hello.Version).Stringer(logging.Protocol, hello.Protocol).Msg("proxy linked")
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var wg sync.WaitGroup
	room := make(chan struct{}, maxStreams)
	reads := newTurns(maxLinkReads)
	for {
		st, err := conn.Accept()
		if err != nil {
			break
		}
		select {
		case room <- struct{}{}:
		default:
			_ = st.Fail(protocol.Errorf(protocol.CodeLimitExceeded, "%d streams are open on this link, which is the limit; close one", maxStreams))
			st.Abort()
			continue
		}
		wg.Go(func() {
			defer func() { <-room }()
			s.serveStream(ctx, st, reads, log)
		})
	}
	cancel()
	wg.Wait()
	_ = conn.Close()
	log.Info().Msg("proxy unlinked")
}

func (s *Server) welcome(hello *wire.Hello) (wire.Welcome, []protocol.SessionInfo, error) {
	secret, err := s.readSecret()
	if err != nil {
		return wire.Welcome{}, nil, protocol.Errorf(protocol.CodeUnauthorized, "the supervisor refuses everyone until it can read its secret: %v", err)
	}
	if secret != "" && subtle.ConstantTimeCompare([]byte(hello.Secret), []byte(secret)) != 1 {
		return wire.Welcome{}, nil, protocol.Errorf(protocol.CodeUnauthorized, "the secret is missing or wrong")
	}
	return wire.Welcome{
		Capabilities: protocol.Capabilities{protocol.CapAutomation, protocol.CapCage, protocol.CapDurable},
		PID:          os.Getpid(), Version: version.String(), Instance: s.instance,
	}, s.cfg.Sessions.List(""), nil
}

// readSecret returns the secret, or "" if there is none. If it could not be read before, readSecret reads it now. Several
// goroutines may do so at once, because one that waits for the file must not delay the others.
func (s *Server) readSecret() (string, error) {
	if known := s.secret.Load(); known != nil {
		return *known, nil
	}
	secret, err := s.cfg.ReadSecret()
	if err == nil && secret == "" { // it would admit everyone
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", err
	}
	if s.secret.CompareAndSwap(nil, &secret) {
		s.cfg.Log.Info().Msg("secret read; proxies that know it are linked from now on")
	}
	return *s.secret.Load(), nil
}

func (s *Server) status() protocol.ProcessStatus {
	st := protocol.ProcessStatus{
		PID: os.Getpid(), Version: version.String(), Protocol: protocol.Supported(), Instance: s.instance,
		Uptime: time.Since(s.started).Seconds(), Sessions: s.cfg.Sessions.Live(), Clients: int(s.links.Load()),
	}
	if s.cfg.Status != nil {
		s.cfg.Status(&st)
	}
	return st
}

// serveStream handles one stream and closes it. A costly request first waits for a turn of
// reads.
func (s *Server) serveStream(ctx context.Context, st *link.Stream, reads *turns, log zerolog.Logger) {
	defer st.Abort()
	request, err := st.Receive()
	if err == nil {
		err = s.answer(ctx, st, reads, request)
	} else if protocol.CodeOf(err) == protocol.CodeInternal { // the stream ended before its request was complete
		return
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, io.EOF) {
		return
	}
	if protocol.CodeOf(err) == protocol.CodeInternal {
		log.Debug().Err(err).Msg("stream failed")
	}
	_ = st.Fail(err) // fails only if the peer is gone
}
