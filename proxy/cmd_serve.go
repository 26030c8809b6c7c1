package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/daemon"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/linkclient"
	"holdfast/proxy/internal/web"
	"holdfast/shared/config"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// socketCheck is how often the sockets' paths are looked after.
const socketCheck = 10 * time.Second

type serveOptions struct {
	background bool
	takeOver   bool
	web        string
	origins    []string
	flags      map[string]string
}

func (a *app) serveCommand() *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve clients in the foreground; starts the supervisor where none runs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serve(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.web, "web", "", "serve WebSockets on a loopback `address`, 127.0.0.1:0 for any port")
	cmd.Flags().StringSliceVar(&o.origins, "web-origin", nil, "another `origin` whose pages may connect")
	cmd.Flags().BoolVar(&o.background, "background", false, "log to a file in the state directory")
	cmd.Flags().BoolVar(&o.takeOver, "take-over", false, "take over from the running proxy")
	_ = cmd.Flags().MarkHidden("take-over") // what --handoff does, in the process that stays
	settings := flag.NewFlagSet("", flag.ContinueOnError)
	o.flags = config.Flags(settings)
	cmd.Flags().AddGoFlagSet(settings)
	return cmd
}

// listeners are what a proxy holds, and hands to its successor.
type listeners struct {
	api, web, control *socket.Listener
	tcp               *net.TCPListener // nil unless asked for
}

// serve builds the proxy from its leaves up and takes it down in reverse.
func (a *app) serve(ctx context.Context, o *serveOptions) error {
	dirs, err := a.dirs()
	if err != nil {
		return err
	}
	cfg, err := config.Load(dirs, os.Getenv, o.flags)
	if err != nil {
		return err
	}
	log, closeLog, err := a.openLog(o, dirs, cfg)
	if err != nil {
		return err
	}
	defer closeLog()
	err = a.serveLogged(ctx, o, dirs, cfg, log)
	if err != nil && o.background {
		log.Error().Err(err).Msg("proxy failed")
	}
	return err
}

func (a *app) serveLogged(ctx context.Context, o *serveOptions, dirs config.Dirs, cfg config.Config, log zerolog.Logger) error {
	secret, err := cfg.Secret()
	if err != nil {
		return err
	}
	links := a.linkClient(dirs, secret, log)
	defer func() { _ = links.Close() }()
	// Nothing is taken over, and nothing served, before the supervisor answers.
	if _, err := links.Conn(ctx); err != nil {
		return err
	}

	take, ls, err := a.listen(ctx, o, dirs, log)
	if err != nil {
		return err
	}
	defer ls.close()
	token := ""
	if ls.tcp != nil {
		if token, err = webToken(dirs, a.proxy); err != nil {
			return err
		}
	}
	server := apiserver.New(apiserver.Config{
		Link: links, Token: token, Secret: secret, EarlyExit: cfg.EarlyExit, Log: log,
	})
	common := web.Config{Server: server, Link: links, Log: log}
	local, pages := common, common
	local.Trusted, local.Tickets = true, secret != "" // a raw WebSocket has no hello to say the secret in
	pages.Origins = o.origins
	s := &serving{server: server, local: web.New(local), pages: web.New(pages), listeners: ls, take: take, log: log}
	return s.run(ctx)
}

// serving is a proxy that is ready to serve.
type serving struct {
	server       *apiserver.Server
	local, pages *web.Handler // on the Unix socket, and on TCP
	listeners    *listeners
	take         *handoff.Take // not nil where another proxy is being replaced
	log          zerolog.Logger
}

// goaway tells every client to come back, and returns when all have gone.
func (s *serving) goaway(reason string) {
	s.server.Goaway(reason, 0)
	var wg sync.WaitGroup
	wg.Go(s.local.Goaway)
	wg.Go(s.pages.Goaway)
	wg.Wait()
}

// run serves until it is told to stop or a successor has taken over.
func (s *serving) run(ctx context.Context) error {
	ls, log := s.listeners, s.log
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	connCtx, closeConns := context.WithCancel(context.Background())
	defer closeConns()
	failed := make(chan error, 4)
	var wg sync.WaitGroup
	serve := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				failed <- err
				stop()
			}
		})
	}
	offer := &handoff.Offer{
		Files: ls.files, Build: version.String(), Log: log,
		Leave: func(handed bool) {
			reason := "stopping"
			if handed {
				reason = "handoff"
				ls.release()
			}
			stop()
			s.goaway(reason)
		},
	}
	serve(func() error { return s.server.ServeListener(ctx, connCtx, ls.api) })
	serve(func() error { return s.local.Serve(ctx, connCtx, netListener{ls.web}) })
	serve(func() error { return offer.Serve(ctx, ls.control) })
	if ls.tcp != nil {
		log.Info().Stringer("address", ls.tcp.Addr()).Msg("serving WebSockets on TCP; the token lies in the state directory")
		serve(func() error { return s.pages.Serve(ctx, connCtx, ls.tcp) })
	}
	for _, l := range []*socket.Listener{ls.api, ls.web, ls.control} {
		go l.Watch(ctx, socketCheck, func(rebound bool, err error) {
			log.Warn().Err(err).Bool("rebound", rebound).Str(logging.Path, l.Path()).Msg("socket's path was gone")
		})
	}
	log.Info().Int(logging.PID, os.Getpid()).Str("version", version.String()).Str(logging.Path, ls.api.Path()).Msg("proxy serves")
	if s.take != nil {
		if err := s.take.Serving(); err != nil {
			log.Warn().Err(err).Msg("the old proxy did not say good-bye; serving all the same")
		}
		log.Info().Int("old_pid", s.take.PID).Msg("took over")
	}
	<-ctx.Done()
	ls.close()
	s.goaway("stopping") // twice does no harm: the second finds nobody
	wg.Wait()
	log.Info().Msg("proxy stops")
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// netListener gives a private socket's connections to who knows nothing of
// peers.
type netListener struct{ *socket.Listener }

func (l netListener) Accept() (net.Conn, error) {
	nc, _, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return nc, nil
}

func (l netListener) Addr() net.Addr {
	return &net.UnixAddr{Name: l.Path(), Net: "unix"}
}

func (a *app) linkClient(dirs config.Dirs, secret string, log zerolog.Logger) *linkclient.Client {
	path := dirs.Socket(config.SupervisorSocket)
	instance := protocol.NewInstance()
	return linkclient.New(linkclient.Config{
		Dial: func(ctx context.Context) (net.Conn, error) {
			nc, _, err := socket.Dial(ctx, path)
			if err != nil {
				return nil, err
			}
			return nc, nil
		},
		Start: func(ctx context.Context) error { return a.startSupervisor(ctx, log) },
		Hello: func() link.Hello {
			return link.Hello{
				Protocol: protocol.Supported(), PID: os.Getpid(), Version: version.String(),
				Instance: instance, Name: a.proxy, Secret: secret,
			}
		},
		Log: log,
	})
}

func (a *app) startSupervisor(ctx context.Context, log zerolog.Logger) error {
	path, err := supervisorPath()
	if err != nil {
		return err
	}
	args := []string{"--background"}
	if a.dir != "" {
		abs, err := filepath.Abs(a.dir)
		if err != nil {
			return err
		}
		args = append(args, "--dir", abs)
	}
	p, err := daemon.Start(ctx, daemon.Spec{Path: path, Args: args, Env: os.Environ()})
	if err == nil {
		log.Info().Int("supervisor_pid", p.PID).Msg("started the supervisor")
	}
	return err
}

func (a *app) openLog(o *serveOptions, dirs config.Dirs, cfg config.Config) (zerolog.Logger, func(), error) {
	lo := logging.Options{Level: cfg.LogLevel, Process: "proxy"}
	if o.background {
		lo.Path = filepath.Join(dirs.State, a.proxy+".log")
		if err := logging.CrashOutput(filepath.Join(dirs.State, a.proxy+".crash")); err != nil {
			return zerolog.Nop(), nil, err
		}
	}
	log, closer, err := logging.New(lo)
	if err != nil {
		return log, nil, err
	}
	return log, func() { _ = closer.Close() }, nil
}

// listen takes over the listeners of the running proxy, or makes them.
func (a *app) listen(ctx context.Context, o *serveOptions, dirs config.Dirs, log zerolog.Logger) (*handoff.Take, *listeners, error) {
	opts := socket.Options{OnRefuse: func(p socket.Peer, err error) { logging.Refused(log, p.UID, p.PID, err) }}
	var take *handoff.Take
	if o.takeOver {
		var err error
		take, err = handoff.Begin(ctx, dirs.Socket(config.ControlSocket(a.proxy)), version.String())
		if err != nil && !nobodyListens(err) {
			return nil, nil, err
		}
		if err != nil {
			log.Info().Msg("no proxy runs here to take over from")
		}
	}
	ls := &listeners{}
	for _, l := range []struct {
		to   **socket.Listener
		name string
		file string
	}{
		{&ls.api, groupAPI, config.APISocket(a.proxy)},
		{&ls.web, groupWeb, config.WebSocket(a.proxy)},
		{&ls.control, groupControl, config.ControlSocket(a.proxy)},
	} {
		var err error
		path := dirs.Socket(l.file)
		if files := takeFiles(take, l.name); files != nil {
			*l.to, err = socket.Adopt(path, files, opts)
		} else {
			*l.to, err = socket.Listen(path, opts)
		}
		if err != nil {
			ls.giveUp(take)
			return nil, nil, err
		}
	}
	if err := ls.listenTCP(o.web, takeFiles(take, groupTCP)); err != nil {
		ls.giveUp(take)
		return nil, nil, err
	}
	return take, ls, nil
}

// The groups of files that a handoff passes on.
const (
	groupAPI     = "api"
	groupWeb     = "web"
	groupControl = "control"
	groupTCP     = "tcp"
)

func takeFiles(t *handoff.Take, name string) []*os.File {
	if t == nil {
		return nil
	}
	return t.Files(name)
}

// listenTCP goes on with the old proxy's listener, or makes the one asked for.
func (ls *listeners) listenTCP(addr string, files []*os.File) error {
	var l net.Listener
	var err error
	switch {
	case len(files) == 1:
		l, err = net.FileListener(files[0])
		err = errors.Join(err, files[0].Close())
	case addr != "":
		if err := loopback(addr); err != nil {
			return err
		}
		l, err = net.Listen("tcp", addr)
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen for WebSockets: %w", err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return errors.Join(errors.New("the file passed on is no TCP listener"), l.Close())
	}
	ls.tcp = tcp
	return nil
}

// loopback refuses an address that other machines could reach.
func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return usage(fmt.Errorf("--web: %w", err))
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return usage(fmt.Errorf("--web: %s is not a loopback address; to be reached from elsewhere, put a tunnel in front", host))
	}
	return nil
}

func (ls *listeners) each(f func(*socket.Listener) error) {
	for _, l := range []*socket.Listener{ls.api, ls.web, ls.control} {
		if l != nil {
			_ = f(l) // the process is on its way out, or has another listener
		}
	}
}

// files returns what a successor needs.
func (ls *listeners) files() ([]handoff.Group, []*os.File, error) {
	var groups []handoff.Group
	var all []*os.File
	add := func(name string, files []*os.File, err error) error {
		groups = append(groups, handoff.Group{Name: name, Files: len(files)})
		all = append(all, files...)
		return err
	}
	var errs []error
	for _, g := range []struct {
		name string
		l    *socket.Listener
	}{{groupAPI, ls.api}, {groupWeb, ls.web}, {groupControl, ls.control}} {
		files, err := g.l.Files()
		errs = append(errs, add(g.name, files, err))
	}
	if ls.tcp != nil {
		f, err := ls.tcp.File()
		errs = append(errs, err)
		if f != nil {
			errs = append(errs, add(groupTCP, []*os.File{f}, nil))
		}
	}
	if err := errors.Join(errs...); err != nil {
		for _, f := range all {
			_ = f.Close()
		}
		return nil, nil, err
	}
	return groups, all, nil
}

// release leaves the sockets to the successor: nothing is unlinked, and the
// locks stay held by it.
func (ls *listeners) release() {
	ls.each((*socket.Listener).Release)
	ls.closeTCP()
}

func (ls *listeners) close() {
	ls.each((*socket.Listener).Close)
	ls.closeTCP()
}

// giveUp undoes a start that failed. What was taken over is still the old
// proxy's: only our copies are closed.
func (ls *listeners) giveUp(take *handoff.Take) {
	if take == nil {
		ls.close()
		return
	}
	ls.release()
	_ = take.Close()
}

func (ls *listeners) closeTCP() {
	if ls.tcp != nil {
		_ = ls.tcp.Close()
	}
}

// nobodyListens reports whether err says for certain that no process has the
// socket.
func nobodyListens(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// webToken returns the token of clients on TCP, making it the first time. It
// outlives the proxy, so that pages can come back to the next one.
func webToken(dirs config.Dirs, proxy string) (string, error) {
	path := filepath.Join(dirs.State, proxy+".token")
	if b, err := os.ReadFile(path); err == nil && len(strings.TrimSpace(string(b))) >= 64 {
		return strings.TrimSpace(string(b)), nil
	}
	token := protocol.NewToken(32)
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	return token, os.Chmod(path, 0o600)
}

// handoff starts this program as the successor of the running proxy: in the
// background, reporting here how it went, or as this process.
func (a *app) handoff(ctx context.Context, foreground bool) error {
	if foreground {
		return a.serve(ctx, &serveOptions{takeOver: true})
	}
	old, err := a.proxyPID(ctx)
	if err != nil && !nobodyListens(err) {
		return err
	}
	start := time.Now()
	p, err := a.startDaemon(ctx, "serve", "--background", "--take-over")
	if err != nil {
		return err
	}
	if err := a.waitServing(ctx, p); err != nil {
		return err
	}
	from := "no proxy ran before"
	if old != 0 {
		from = fmt.Sprintf("took over from pid %d", old)
	}
	fmt.Printf("proxy %s serves as pid %d, %s, in %v\n", cmp.Or(version.String(), "dev"), p.PID, from, time.Since(start).Round(time.Millisecond))
	return nil
}

// proxyPID asks the proxy who it is.
func (a *app) proxyPID(ctx context.Context) (int, error) {
	c, err := a.dial(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	return c.ProxyPID(), nil
}

// waitServing returns when the process answers as the proxy.
func (a *app) waitServing(ctx context.Context, p *daemon.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if pid, err := a.proxyPID(ctx); err == nil && pid == p.PID {
			return nil
		}
		select {
		case <-p.Exited:
			return fmt.Errorf("the successor gave up, the old proxy serves on: %s", a.lastError())
		case <-ctx.Done():
			return fmt.Errorf("the successor (pid %d) does not serve yet: %w", p.PID, ctx.Err())
		case <-time.After(startPoll):
		}
	}
}
