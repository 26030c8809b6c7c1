package serve

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/linkclient"
	"holdfast/proxy/internal/web"
	"holdfast/proxy/internal/web/page"
	"holdfast/shared/config"
	"holdfast/shared/logging"
	"holdfast/shared/pipe"
	"holdfast/shared/version"
)

// servePipe serves on systems where private connections are named pipes (pipe.Here), which is
// Windows. There is no supervisor on Windows yet. Clients can use all of the api that needs no
// supervisor; other requests are answered with unsupported_os, so that a client learns this from
// its first request.
//
// A pipe cannot be handed off, so there is no control socket. WebSockets are served on TCP only.
func (o *Options) servePipe(ctx context.Context, dirs config.Dirs, cfg config.Config, log zerolog.Logger, report *report) error {
	if o.TakeOver {
		return exitcode.Unsupported("a handoff", "stop the proxy that runs, and start the new one")
	}
	secret, err := cfg.Secret()
	if err != nil {
		return err
	}
	name, err := pipe.Own(dirs.Runtime, config.APISocket(o.Proxy))
	if err != nil {
		return err
	}
	refused := logging.Refuser(log)
	ln, err := pipe.Listen(name, pipe.Options{OnRefuse: func(p pipe.Peer, err error) { refused(-1, p.PID, err) }})
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }() // the process ends, and the pipe's name with it
	ls := &listeners{}
	defer ls.closeTCP()
	if err := ls.listenTCP(o.web, nil); err != nil {
		return err
	}
	host, remember, err := StartPolicy(ctx, dirs, rulesFile(dirs, o.Proxy), cfg, log)
	if err != nil {
		return err
	}
	defer endPolicy(host)
	if err := remember(); err != nil {
		return err
	}
	links := linkclient.New(linkclient.Config{Dial: noSupervisor, Hello: func() link.Hello { return link.Hello{} }, Log: log})
	defer func() { _ = links.Close() }()
	s := &serving{policy: host, links: links, listeners: ls, report: report, log: log, failed: make(chan error, 1)}
	pages, err := o.build(s, dirs, cfg, secret)
	if err != nil {
		return err
	}
	pages.Origins, pages.Page, pages.Files = o.Origins, true, page.Files()
	s.pages = web.New(pages)
	s.local = s.pages
	return s.runPipe(ctx, ln)
}

// runPipe serves until ctx is done.
func (s *serving) runPipe(ctx context.Context, ln *pipe.Listener) error {
	ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	connCtx, closeConns := context.WithCancel(context.Background())
	defer closeConns()
	s.wg.Go(func() { s.fail(s.server.ServePipe(connCtx, ln)) })
	if tcp := s.listeners.tcp; tcp != nil {
		s.wg.Go(func() { s.fail(s.pages.Serve(ctx, connCtx, tcp)) })
		s.log.Info().Stringer("address", tcp.Addr()).Msg("serving the page and WebSockets on TCP; the token is in the state directory")
	}
	s.log.Info().Int(logging.PID, os.Getpid()).Str(logging.Version, version.String()).Str(logging.Path, ln.Name()).Msg("proxy serves")
	s.greet(os.Stdout)
	s.report.say(handoff.Progress{Step: "serving", PID: os.Getpid(), Version: version.String()})
	s.report.end(nil)
	<-ctx.Done()
	err := ln.Close()
	s.goaway("stopping")
	s.wg.Wait()
	s.log.Info().Msg("proxy stops")
	select {
	case failed := <-s.failed:
		return errors.Join(failed, err)
	default:
		return err
	}
}

// noSupervisor is the dial function of the link on systems without a supervisor.
func noSupervisor(context.Context) (net.Conn, error) {
	return nil, protocol.Errorf(protocol.CodeUnsupportedOS, "there are no terminals on Windows yet")
}
