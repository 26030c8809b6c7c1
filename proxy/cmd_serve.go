package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/proxy/internal/agent"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/daemon"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/linkclient"
	"holdfast/proxy/internal/metrics"
	"holdfast/proxy/internal/policyhost"
	"holdfast/proxy/internal/shellint"
	"holdfast/proxy/internal/sweep"
	"holdfast/proxy/internal/web"
	"holdfast/proxy/internal/web/page"
	"holdfast/shared/config"
	"holdfast/shared/keep"
	"holdfast/shared/logging"
	"holdfast/shared/pipe"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// socketCheck is how often the sockets' paths are looked after.
const socketCheck = 10 * time.Second

type serveOptions struct {
	background bool
	takeOver   bool
	dryRun     bool
	timeout    time.Duration // of a handoff
	web        string        // --web; of the first proxy the setting, too: two cannot have one port
	origins    []string      // those of --web-origin, and of the settings
	flags      map[string]string
}

func (a *app) serveCommand() *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve clients in the foreground; starts the supervisor where none runs",
		Example: "  proxy serve\n  proxy serve --web 127.0.0.1:0   # and the web page",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serve(cmd.Context(), o)
		},
	}
	cmd.Flags().StringSliceVar(&o.origins, "web-origin", nil, "another `origin` whose pages may connect")
	cmd.Flags().BoolVar(&o.background, "background", false, "log to a file in the state directory")
	cmd.Flags().BoolVar(&o.takeOver, "take-over", false, "take over from the running proxy")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "with --take-over: all but taking over")
	cmd.Flags().DurationVar(&o.timeout, "timeout", handoff.Timeout, "with --take-over: for preparing")
	for _, f := range []string{"take-over", "dry-run", "timeout"} {
		_ = cmd.Flags().MarkHidden(f) // what --handoff does, in the process that stays
	}
	settings := flag.NewFlagSet("", flag.ContinueOnError)
	o.flags = config.Flags(settings)
	cmd.Flags().AddGoFlagSet(settings)
	return cmd
}

// serve builds the proxy from its leaves up and takes it down in reverse.
func (a *app) serve(ctx context.Context, o *serveOptions) error {
	if o.flags == nil {
		o.flags = map[string]string{}
	}
	report := openReport()
	err := a.serveReported(ctx, o, report)
	report.end(err)
	return err
}

func (a *app) serveReported(ctx context.Context, o *serveOptions, report *report) error {
	dirs, err := a.dirs()
	if err != nil {
		return err
	}
	cfg, err := config.Load(dirs, os.Getenv, o.flags)
	if err != nil {
		return err
	}
	if dirs, err = a.makeDirs(); err != nil {
		return err
	}
	if o.web = o.flags["web"]; a.proxy == config.DefaultProxy {
		o.web = cfg.Web
	}
	o.origins = append(o.origins, strings.FieldsFunc(cfg.WebOrigins, func(r rune) bool { return r == ',' || r == ' ' })...)
	log, closeLog, err := a.openLog(o, dirs, cfg)
	if err != nil {
		return err
	}
	defer closeLog()
	if err = a.checkServe(o, dirs, cfg); err == nil {
		err = a.serveLogged(ctx, o, dirs, cfg, log, report)
	}
	if err != nil && o.background {
		log.Error().Err(err).Msg("proxy failed")
	}
	return err
}

// checkServe finds mistakes in the settings before anything is started.
func (a *app) checkServe(o *serveOptions, dirs config.Dirs, cfg config.Config) error {
	if o.web != "" {
		if err := loopback(o.web); err != nil {
			return err
		}
	}
	if _, err := cfg.Secret(); err != nil {
		return err
	}
	if o.takeOver { // the proxy before may have said which policy decides
		return nil
	}
	if err := a.checkPolicy(dirs, cfg); err != nil {
		return &exitError{exitConfig, "policy: " + err.Error()}
	}
	return nil
}

func (a *app) serveLogged(ctx context.Context, o *serveOptions, dirs config.Dirs, cfg config.Config, log zerolog.Logger, report *report) error {
	if pipe.Here {
		return a.servePipe(ctx, o, dirs, cfg, log, report)
	}
	secret, err := cfg.Secret()
	if err != nil {
		return err
	}
	links := a.linkClient(dirs, secret, o.flags, log)
	defer func() { _ = links.Close() }()
	// Nothing is taken over, and nothing served, before the supervisor answers.
	if _, err := links.Conn(ctx); err != nil {
		return err
	}
	report.say(progress{Step: "linked", PID: links.Welcome().PID, Version: links.Welcome().Version})

	take, ls, err := a.listen(ctx, o, dirs, log)
	if err != nil {
		return err
	}
	defer ls.close()
	own := settings{WebOrigins: o.origins, Flags: o.flags}
	if err = own.inherit(take); err == nil { // flags of the proxy before count like ours, but not against ours
		cfg, err = config.Load(dirs, os.Getenv, own.Flags)
	}
	var host *policyhost.Host
	if err == nil {
		host, err = a.startPolicy(ctx, o, dirs, cfg, log)
	}
	if err != nil {
		take.GiveUp(err)
		return err
	}
	defer endPolicy(host)
	s := &serving{
		links: links, listeners: ls, take: take, settings: own,
		sweeper: &sweep.Sweeper{Link: links, Timeout: cfg.IdleTimeout, Log: log},
		policy:  host, report: report, page: pageFile(dirs, a.proxy), signedOut: readSignedOut(dirs, a.proxy), dryRun: o.dryRun, timeout: o.timeout, log: log, failed: make(chan error, 1),
	}
	pages, err := a.build(s, dirs, cfg, secret)
	if err != nil {
		return err
	}
	local := pages
	local.Trusted, local.Tickets = true, secret != "" // a raw WebSocket has no hello to say the secret in
	pages.Origins, pages.Page, pages.Files = own.WebOrigins, true, page.Files()
	pages.SignedOut, pages.Used = s.signedOut.at, func(ticket string) { _ = os.Remove(openFile(dirs, ticket)) } // it may have been opened otherwise
	s.local, s.pages = web.New(local), web.New(pages)
	return s.run(ctx)
}

// build gives s its server, and returns what its handlers of web clients have in
// common.
func (a *app) build(s *serving, dirs config.Dirs, cfg config.Config, secret string) (web.Config, error) {
	token, address := "", ""
	if s.listeners.tcp != nil {
		address = s.listeners.tcp.Addr().String()
	}
	if s.listeners.tcp != nil || s.policy != nil { // a policy's clients are kept apart by it, too
		var err error
		if token, err = webToken(dirs, a.proxy); err != nil {
			return web.Config{}, err
		}
	}
	s.server = apiserver.New(apiserver.Config{
		Link: s.links, Policy: decides(s.policy), Token: token, PlaceKey: token, Web: address, Secret: secret, EarlyExit: cfg.EarlyExit, Limits: cfg.Limits,
		Integrate: shellint.Scripts{Runtime: dirs.Runtime}.Apply, Asked: shellint.Asked, Agent: followAgent(dirs, cfg), Log: s.log,
	})
	numbers := metrics.New(metrics.Config{Version: version.String(), Proxy: s.numbers, Supervisor: s.links.Stats,
		Sessions: func(ctx context.Context) ([]protocol.SessionInfo, error) { return s.links.List(ctx, "") }})
	return web.Config{
		Server: s.server, Metrics: numbers.Text, Health: s.links.Answers, Token: token, Refused: s.server.Refused, Log: s.log,
	}, nil
}

// followAgent returns who keeps the link to an ssh agent, nil where nobody does.
func followAgent(dirs config.Dirs, cfg config.Config) func(string) (string, error) {
	if cfg.NoAgentLink {
		return nil
	}
	return agent.New(dirs.Runtime).Follow
}

// serving is a proxy that is ready to serve.
type serving struct {
	server       *apiserver.Server
	links        *linkclient.Client
	local, pages *web.Handler // on the Unix socket, and on TCP
	listeners    *listeners
	take         *handoff.Take // not nil where another proxy is being replaced
	settings     settings
	sweeper      *sweep.Sweeper
	policy       *policyhost.Host // nil is policy.Allow
	report       *report
	page         string // the file that says where that is served
	signedOut    *signedOut
	dryRun       bool
	timeout      time.Duration // for preparing
	log          zerolog.Logger

	connCtx context.Context // of the clients' connections
	stop    context.CancelFunc
	failed  chan error // why it cannot go on
	wg      sync.WaitGroup
	stalls  stalls
	took    atomic.Pointer[metrics.Takeover]

	mu        sync.Mutex
	accepting func() // ends it, and returns when it has ended; nil while nothing is accepted
}

// goaway tells every client to come back, and returns when all have gone.
func (s *serving) goaway(reason string) {
	s.server.Goaway(reason, 0)
	var wg sync.WaitGroup
	wg.Go(s.local.Goaway)
	wg.Go(s.pages.Goaway)
	wg.Wait()
}

// numbers are the proxy's own.
func (s *serving) numbers() metrics.Proxy {
	p := metrics.Proxy{
		Counts: s.server.Counts(), Asking: s.local.Asking() + s.pages.Asking(), Linked: s.links.Linked(), Takeover: s.took.Load(),
	}
	if s.policy != nil {
		stats := s.policy.Stats()
		p.Policy = &stats
	}
	if w := s.links.Welcome(); w != nil {
		p.SupervisorVersion = w.Version
	}
	return p
}

// accept lets clients in, for the first time or again.
func (s *serving) accept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reopen()
	if s.accepting != nil {
		return
	}
	ls := s.listeners
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	serve := func(f func() error) { wg.Go(func() { s.fail(f()) }) }
	serve(func() error { return s.server.ServeListener(ctx, s.connCtx, ls.api) })
	serve(func() error { return s.local.Serve(ctx, s.connCtx, netListener{ls.web}) })
	if ls.tcp != nil {
		serve(func() error { return s.pages.Serve(ctx, s.connCtx, ls.tcp) })
	}
	s.accepting = func() { cancel(); wg.Wait() }
}

// stopAccepting lets nobody in; who connects waits in the listeners' backlogs.
func (s *serving) stopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepting != nil {
		s.accepting()
	}
	s.accepting = nil
}

// reopen takes back that everybody is being moved.
func (s *serving) reopen() {
	s.server.Forget()
	s.server.Reopen()
	s.local.Reopen()
	s.pages.Reopen()
}

// fail ends the proxy because of an error, if there is one.
func (s *serving) fail(err error) {
	if err == nil {
		return
	}
	select {
	case s.failed <- err:
	default: // one is enough
	}
	s.stop()
}

// run serves until it is told to stop or a successor has taken over.
func (s *serving) run(ctx context.Context) error {
	ls, log := s.listeners, s.log
	ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	connCtx, closeConns := context.WithCancel(context.Background())
	defer closeConns()
	s.connCtx = connCtx
	if s.take != nil {
		if done, err := s.takeOver(ctx); done || err != nil {
			ls.close()
			s.goaway("handoff") // those that were taken over already
			return err
		}
		ls.borrowed = false
	}
	s.accept()
	if err := ls.note(s.page); err != nil {
		log.Warn().Err(err).Msg("should this proxy die, the next one does not know where the web page is")
	}
	for _, l := range []*socket.Listener{ls.api, ls.web, ls.control} {
		go l.Watch(ctx, socketCheck, func(rebound bool, err error) {
			log.Warn().Err(err).Bool("rebound", rebound).Str(logging.Path, l.Path()).Msg("socket's path was gone")
		})
	}
	offer := s.offer(version.String())
	s.wg.Go(func() { s.fail(offer.Serve(ctx, ls.control)) })
	s.wg.Go(func() { s.links.Keep(ctx) })
	s.wg.Go(func() { s.sweeper.Run(ctx) })
	s.wg.Go(func() { s.server.Observe(ctx) })
	s.ready()
	<-ctx.Done()
	ls.close()
	s.stopAccepting()
	s.goaway("stopping") // twice does no harm: the second finds nobody
	s.wg.Wait()
	log.Info().Msg("proxy stops")
	select {
	case err := <-s.failed:
		return err
	default:
		return nil
	}
}

func (a *app) linkClient(dirs config.Dirs, secret string, flags map[string]string, log zerolog.Logger) *linkclient.Client {
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
		Start: func(ctx context.Context) error { return a.startSupervisor(ctx, dirs, flags, log) },
		Held:  func() error { return heldIn(dirs) },
		Hello: func() link.Hello {
			return link.Hello{
				Protocol: protocol.Supported(), PID: os.Getpid(), Version: version.String(),
				Instance: instance, Name: a.proxy, Secret: secret,
			}
		},
		Log: log,
	})
}

// heldIn returns why no supervisor comes, where a keeper only holds what it has.
func heldIn(dirs config.Dirs) error {
	if h := keep.Look(dirs.Runtime); h != nil {
		return h
	}
	return nil
}

// managerTime is how long a service manager may take to start a supervisor again
// that it had started before. It may hold the sessions, which ours would not have.
const managerTime = 5 * time.Second

// managerStarts waits for that, and reports whether it came to be.
func managerStarts(ctx context.Context, dirs config.Dirs) bool {
	if !keep.Managed(dirs.Runtime) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, managerTime)
	defer cancel()
	for {
		if held, err := socket.Locked(dirs.Socket(config.SupervisorSocket)); held || err != nil {
			return held
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
}

func (a *app) startSupervisor(ctx context.Context, dirs config.Dirs, flags map[string]string, log zerolog.Logger) error {
	if managerStarts(ctx, dirs) {
		return nil
	}
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
	args = append(args, config.Args(flags)...)
	p, err := daemon.Start(ctx, daemon.Spec{Path: path, Args: args, Env: config.DaemonEnv(os.Environ())}) // without the manager's socket, which is ours to tell
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
