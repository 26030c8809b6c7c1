// Package linkserver answers proxies: a hello that enumerates the sessions, a
// stream per request, a stream per attachment, a stream of events.
//
// Several proxies may be linked at once; that is what a handoff is. A proxy
// that goes away takes its attachments with it, and nothing else.
//
// Invariant: no stream waits for another, but for dear reads (turns.go). What one proxy, client or stream
// does, or fails to do, delays nobody else.
//
// Not here: who may connect (package socket), sessions (package session).
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

// Limits on what proxies can make the supervisor hold.
const (
	maxLinks   = 64   // proxies linked at once; one, or two during a handoff, is usual
	maxStreams = 8192 // of one link: its attachments and requests under way
)

// Config is what a Server needs.
type Config struct {
	Sessions *session.Table
	Secret   string // where not "", every hello must carry it
	Stop     func() // called once, after a shutdown that was asked for has ended every session
	Upgrader Upgrader
	Instance protocol.Instance             // of this supervisor, in all its programs; "" makes one
	Started  time.Time                     // of the first of them; zero is now
	Status   func(*protocol.ProcessStatus) // adds what only the process knows
	Reading  func(n int)                   // told how many dear reads are worked on; nil is nobody
	NoReads  time.Time                     // until then dear reads are refused
	Log      zerolog.Logger
}

// A Server serves any number of links.
type Server struct {
	cfg      Config
	instance protocol.Instance
	started  time.Time
	links    atomic.Int64
	viewers  atomic.Int64 // attachments
	resyncs  atomic.Uint64
	missed   atomic.Uint64 // bytes
	stopping sync.Once
	quiet    quiet
	refusals logging.Limiter // of lines about what was refused
	reads    *turns          // of all links

	readingMu  sync.Mutex
	readingNow int // dear reads
}

// An Upgrader has the process become another program.
type Upgrader interface {
	// Upgrade tries the program, and returns its version where it is only to be
	// tried. Else it returns only if nothing has changed, and why.
	Upgrade(ctx context.Context, m *wire.Upgrade) (version string, sessions int, err error)
}

// New returns a Server.
func New(cfg Config) *Server {
	if cfg.Started.IsZero() {
		cfg.Started = time.Now()
	}
	return &Server{cfg: cfg, instance: cmp.Or(cfg.Instance, protocol.NewInstance()), started: cfg.Started, reads: newTurns(maxReads)}
}

// Serve answers links until ctx is done or ln fails, and returns when all of
// them have ended.
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
			s.refusals.Of(s.cfg.Log).Warn().Int(logging.PID, peer.PID).Msg("too many proxies, refused")
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

// farewellTimeout is how long viewers that do not read may put off our end.
const farewellTimeout = time.Second

// farewell waits until the viewers of sessions that have ended know it: a link
// closed before that would have them ask again, and start a supervisor for it.
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
	log.Info().Str("proxy", hello.Name).Str("version", hello.Version).Stringer("protocol", hello.Protocol).Msg("proxy linked")
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
			_ = st.Fail(protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf("%d streams are open on this link", maxStreams)))
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
	if s.cfg.Secret != "" && subtle.ConstantTimeCompare([]byte(hello.Secret), []byte(s.cfg.Secret)) != 1 {
		return wire.Welcome{}, nil, protocol.Errorf(protocol.CodeUnauthorized, "the secret is missing or wrong")
	}
	return wire.Welcome{
		Capabilities: protocol.Capabilities{protocol.CapAutomation, protocol.CapCage},
		PID:          os.Getpid(), Version: version.String(), Instance: s.instance,
	}, s.cfg.Sessions.List(""), nil
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

// serveStream answers one stream and closes it. Its request may have to wait for one of the
// link's reads.
func (s *Server) serveStream(ctx context.Context, st *link.Stream, reads *turns, log zerolog.Logger) {
	defer st.Abort()
	request, err := st.Receive()
	if err == nil {
		err = s.answer(ctx, st, reads, request)
	} else if protocol.CodeOf(err) == protocol.CodeInternal { // the stream ended before it said anything
		return
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, io.EOF) {
		return
	}
	if protocol.CodeOf(err) == protocol.CodeInternal {
		log.Debug().Err(err).Msg("stream failed")
	}
	_ = st.Fail(err) // the peer may be gone
}
