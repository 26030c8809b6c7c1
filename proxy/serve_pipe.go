package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
	"holdfast/proxy/internal/web"
	"holdfast/proxy/internal/web/page"
	"holdfast/shared/config"
	"holdfast/shared/logging"
	"holdfast/shared/pipe"
	"holdfast/shared/version"
)

// servePipe serves where private connections are named pipes (pipe.Here): on
// Windows, which has no supervisor yet. Clients get all of the api but what a
// supervisor knows: that is answered by unsupported_os, so that they learn it
// from the first request and need not know the system.
//
// Nothing can be handed off, since a pipe cannot: there is no control socket, and
// no WebSocket but on TCP.
func (a *app) servePipe(ctx context.Context, o *serveOptions, dirs config.Dirs, cfg config.Config, log zerolog.Logger, report *report) error {
	if o.takeOver {
		return notHere("a handoff", "stop the proxy that runs, and start the new one")
	}
	secret, err := cfg.Secret()
	if err != nil {
		return err
	}
	name, err := pipe.Own(dirs.Runtime, config.APISocket(a.proxy))
	if err != nil {
		return err
	}
	refused := logging.Refuser(log)
	ln, err := pipe.Listen(name, pipe.Options{OnRefuse: func(p pipe.Peer, err error) { refused(-1, p.PID, err) }})
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }() // the process ends; the name goes with it
	ls := &listeners{}
	defer ls.closeTCP()
	if err := ls.listenTCP(o.web, nil); err != nil {
		return err
	}
	host, err := a.startPolicy(ctx, o, dirs, cfg, log)
	if err != nil {
		return err
	}
	defer endPolicy(host)
	links := linkclient.New(linkclient.Config{Dial: noSupervisor, Hello: func() link.Hello { return link.Hello{} }, Log: log})
	defer func() { _ = links.Close() }()
	s := &serving{policy: host, links: links, listeners: ls, report: report, log: log, failed: make(chan error, 1)}
	pages, err := a.build(s, dirs, cfg, secret)
	if err != nil {
		return err
	}
	pages.Origins, pages.Page, pages.Files = o.origins, true, page.Files()
	s.pages = web.New(pages)
	s.local = s.pages
	return s.runPipe(ctx, ln)
}

// runPipe serves until it is told to stop.
func (s *serving) runPipe(ctx context.Context, ln *pipe.Listener) error {
	ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	connCtx, closeConns := context.WithCancel(context.Background())
	defer closeConns()
	s.wg.Go(func() { s.fail(s.server.ServePipe(connCtx, ln)) })
	if tcp := s.listeners.tcp; tcp != nil {
		s.wg.Go(func() { s.fail(s.pages.Serve(ctx, connCtx, tcp)) })
		s.log.Info().Stringer("address", tcp.Addr()).Msg("serving the page and WebSockets on TCP; the token lies in the state directory")
	}
	s.log.Info().Int(logging.PID, os.Getpid()).Str("version", version.String()).Str(logging.Path, ln.Name()).Msg("proxy serves")
	s.greet(os.Stdout)
	s.report.say(progress{Step: "serving", PID: os.Getpid(), Version: version.String()})
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

// noSupervisor is how the link is dialled where nothing can be at its other end.
func noSupervisor(context.Context) (net.Conn, error) {
	return nil, protocol.Errorf(protocol.CodeUnsupportedOS, "there are no terminals on Windows yet")
}

// notHere says what a system without Unix sockets cannot do, and what to do then.
func notHere(what, instead string) error {
	return &exitError{exitUnavailable, fmt.Sprintf("%s: %s needs a Unix socket, which this system has not; %s", protocol.CodeUnsupportedOS, what, instead)}
}
