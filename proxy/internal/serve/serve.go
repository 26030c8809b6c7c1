// Package serve is the process of the proxy. It opens the log and the listeners, starts the policy and
// the supervisor if they do not run, builds the servers of the clients from the packages below, and
// serves until the process ends or a successor has taken over.
//
// A proxy that replaces another one takes over its listeners and its clients' connections; takeover.go
// is the side of the successor, and move.go that of the old proxy. Package handoff has the conversation
// between both.
//
// Invariant: a proxy serves no client before it has a link to a supervisor and its policy has started.
// (Windows has no supervisor; pipe.go serves there.) Until a takeover is complete, the successor removes
// no socket that the old proxy still serves.
//
// Not here: the requests of clients (package apiserver), HTTP and WebSockets (package web), the messages
// of a handoff (package handoff), and the command that starts a proxy (package cli).
package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/proxy/internal/agent"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/archive"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/linkclient"
	"holdfast/proxy/internal/metrics"
	"holdfast/proxy/internal/policyhost"
	"holdfast/proxy/internal/shellint"
	"holdfast/proxy/internal/sweep"
	"holdfast/proxy/internal/web"
	"holdfast/proxy/internal/web/page"
	"holdfast/shared/config"
	"holdfast/shared/keeperstate"
	"holdfast/shared/logging"
	"holdfast/shared/machine"
	"holdfast/shared/pipe"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
	"holdfast/shared/version"
)

// Options are the directory and the name of a proxy, and how it begins.
type Options struct {
	Dir, Proxy string // the directory for all files, as in --dir, and the name of the proxy
	Background bool   // log to a file in the state directory

	TakeOver  bool          // take over from the running proxy
	DryRun    bool          // with TakeOver: prepare, but do not take over
	Timeout   time.Duration // with TakeOver: the time for preparing
	VerifyAll bool          // with TakeOver: compare the output of all sessions first, and not of a sample

	RecordingHost string // name of this host in the names of recordings

	Origins []string          // other origins whose pages may connect
	Flags   map[string]string // the settings that were given as flags, by name

	web string // the web address; for the default proxy also the setting, because two proxies cannot share a port
}

// Run serves until ctx is done or another proxy has taken over. It starts a supervisor if none runs.
// If it takes over from another proxy, it writes the report that handoff.ReportEnv names.
func Run(ctx context.Context, options Options) error {
	o := &options
	if o.Flags == nil {
		o.Flags = map[string]string{}
	}
	report := openReport()
	err := o.load(ctx, report)
	report.end(err)
	return err
}

// load loads the settings, opens the log and serves.
func (o *Options) load(ctx context.Context, report *report) error {
	dirs, err := config.Resolve(o.Dir, os.Getenv)
	if err != nil {
		return err
	}
	if err := dirs.Check(); err != nil {
		return err
	}
	cfg, err := config.Load(dirs, os.Getenv, o.Flags)
	if err != nil {
		return err
	}
	if err := dirs.CheckParents(); err != nil {
		return err
	}
	if err := dirs.Ensure(); err != nil {
		return err
	}
	if o.web = o.Flags["web"]; o.Proxy == config.DefaultProxy {
		o.web = cfg.Web
	}
	o.Origins = append(o.Origins, strings.FieldsFunc(cfg.WebOrigins, func(r rune) bool { return r == ',' || r == ' ' })...)
	log, closeLog, err := o.openLog(dirs, cfg)
	if err != nil {
		return err
	}
	defer closeLog()
	if err = o.check(dirs, cfg); err == nil {
		err = o.serve(ctx, dirs, cfg, log, report)
	}
	if err != nil && o.Background {
		log.Error().Err(err).Msg("proxy failed")
	}
	return err
}

// check reports mistakes in the settings before any process is started.
func (o *Options) check(dirs config.Dirs, cfg config.Config) error {
	if o.web != "" {
		if err := loopback(o.web); err != nil {
			return err
		}
	}
	if _, err := cfg.Secret(); err != nil {
		return err
	}
	if o.TakeOver { // the old proxy may have chosen the policy
		return nil
	}
	if err := checkPolicy(dirs, o.Proxy, cfg); err != nil {
		return exitcode.New(sysexits.Config, "policy: "+err.Error())
	}
	return nil
}

// serve builds the proxy from its leaves up, and closes its parts in reverse order.
func (o *Options) serve(ctx context.Context, dirs config.Dirs, cfg config.Config, log zerolog.Logger, report *report) error {
	if pipe.Here {
		return o.servePipe(ctx, dirs, cfg, log, report)
	}
	secret, err := cfg.Secret()
	if err != nil {
		return err
	}
	links := o.linkClient(dirs, secret, log)
	defer func() { _ = links.Close() }()
	// Nothing is taken over and no client is served before the supervisor answers.
	if _, err := links.Conn(ctx); err != nil {
		return err
	}
	report.say(handoff.Progress{Step: "linked", PID: links.Welcome().PID, Version: links.Welcome().Version})

	take, ls, err := o.listen(ctx, dirs, log)
	if err != nil {
		return err
	}
	defer ls.close()
	own := settings{WebOrigins: o.Origins, Flags: o.Flags}
	if err = own.inherit(take); err == nil { // flags of the old proxy hold, unless this process has them as well
		cfg, err = config.Load(dirs, os.Getenv, own.Flags)
	}
	var host *policyhost.Host
	var remember func() error
	if err == nil {
		host, remember, err = StartPolicy(ctx, dirs, rulesFile(dirs, o.Proxy), cfg, log)
	}
	if err != nil {
		take.GiveUp(err)
		return err
	}
	defer endPolicy(host)
	if take == nil {
		if err := remember(); err != nil {
			return err
		}
	}
	s := &serving{
		links: links, listeners: ls, take: take, settings: own,
		sweeper: &sweep.Sweeper{Link: links, Timeout: cfg.IdleTimeout, Log: log},
		policy:  host, remember: remember, report: report, page: pageFile(dirs, o.Proxy), runtime: dirs.Runtime, signedOut: readSignedOut(dirs, o.Proxy), dryRun: o.DryRun, timeout: o.Timeout, verifyAll: o.VerifyAll, log: log, failed: make(chan error, 1),
	}
	if cfg.Recordings != "" {
		s.recorder = &archive.Recorder{Link: links, Config: ArchiveConfig(cfg), Host: o.RecordingHost, Lock: filepath.Join(dirs.State, "recorder"), Clock: filepath.Join(dirs.State, "recorder.clock"), Log: log}
	}
	pages, err := o.build(s, dirs, cfg, secret)
	if err != nil {
		return err
	}
	local := pages
	local.Trusted, local.Tickets = true, secret != "" // a raw WebSocket has no hello that could carry the secret
	pages.Origins, pages.Page, pages.Files = own.WebOrigins, true, page.Files()
	pages.SignedOut, pages.Used = s.signedOut.at, func(ticket string) { _ = os.Remove(OpenFile(dirs, ticket)) } // the ticket may be used without the file
	s.local, s.pages = web.New(local), web.New(pages)
	return s.run(ctx)
}

// build sets s.server, and returns the configuration that the handlers of all web clients have in
// common.
func (o *Options) build(s *serving, dirs config.Dirs, cfg config.Config, secret string) (web.Config, error) {
	token, isNew, address := "", false, ""
	if s.listeners.tcp != nil {
		address = s.listeners.tcp.Addr().String()
	}
	if s.listeners.tcp != nil || s.policy != nil { // the token also identifies the clients of a policy
		var err error
		if token, isNew, err = webToken(dirs, o.Proxy); err != nil {
			return web.Config{}, err
		}
	}
	s.server = apiserver.New(apiserver.Config{
		Link: s.links, Policy: policyOf(s.policy), Token: token, IsTokenNew: isNew, PlaceKey: token, Web: address, NoPage: page.Files() == nil, Secret: secret, EarlyExit: cfg.EarlyExit, Limits: cfg.Limits,
		Integrate: shellint.Scripts{Runtime: dirs.Runtime}.Apply, Asked: shellint.Asked, Agent: followAgent(dirs, cfg), Log: s.log,
	})
	numbers := metrics.New(metrics.Config{Version: version.String(), Proxy: s.numbers, Supervisor: s.links.Stats,
		Sessions: func(ctx context.Context) ([]protocol.SessionInfo, error) { return s.links.List(ctx, "") }})
	return web.Config{
		Server: s.server, Metrics: numbers.Text, Health: s.links.Answers, Token: token, Refused: s.server.Refused, Log: s.log,
	}, nil
}

// followAgent returns the function that maintains the link to the ssh agent, or nil if the setting
// disables it.
func followAgent(dirs config.Dirs, cfg config.Config) func(string) (string, error) {
	if cfg.NoAgentLink {
		return nil
	}
	return agent.New(dirs.Runtime).Follow
}

// ArchiveConfig returns where the settings store recordings.
func ArchiveConfig(cfg config.Config) archive.Config {
	c := archive.Config{Dir: cfg.Recordings, Bucket: cfg.RecordingsBucket(), All: cfg.RecordingsSessions == "all", Age: cfg.RecordingsAge, Bytes: int64(cfg.RecordingsBytes)}
	if cfg.DurableKey != "" {
		c.ReadKey = cfg.ReadDurableKey
	}
	return c
}

// serving is a proxy that is ready to serve.
type serving struct {
	server       *apiserver.Server
	links        *linkclient.Client
	local, pages *web.Handler // for the Unix socket, and for TCP
	listeners    *listeners
	take         *handoff.Take // not nil if this proxy replaces another one
	settings     settings
	sweeper      *sweep.Sweeper
	recorder     *archive.Recorder // nil: nothing is recorded
	policy       *policyhost.Host  // nil stands for policy.Allow
	remember     func() error      // saves which policy decides
	// observed is the position of the events up to which the old proxy has notified its policy; zero if there is none. The
	// old proxy continues until it ends, so that the policy may learn of an end of these moments twice, but of each once.
	observed  link.Events
	report    *report
	page      string // the file with the address of the web page
	runtime   string // the directory of the sockets, and of the keeper's files
	signedOut *signedOut
	dryRun    bool
	timeout   time.Duration // for the preparation of a handoff
	verifyAll bool          // compare all sessions in a handoff
	log       zerolog.Logger

	connCtx context.Context // ends with the clients' connections
	stop    context.CancelFunc
	failed  chan error // the reason why the proxy must end
	wg      sync.WaitGroup
	stalls  stalls
	took    atomic.Pointer[metrics.Takeover]

	mu        sync.Mutex
	accepting func() // stops accepting and waits until that is done; nil while no connection is accepted
}

// goaway asks every client to reconnect, and returns when all connections have ended.
func (s *serving) goaway(reason string) {
	s.server.Goaway(reason, 0)
	var wg sync.WaitGroup
	wg.Go(s.local.Goaway)
	wg.Go(s.pages.Goaway)
	wg.Wait()
}

// numbers returns the proxy's metrics.
func (s *serving) numbers() metrics.Proxy {
	p := metrics.Proxy{
		Counts: s.server.Counts(), Asking: s.local.Asking() + s.pages.Asking(), Linked: s.links.Linked(), Takeover: s.took.Load(),
	}
	if s.recorder != nil {
		stats := s.recorder.Stats()
		p.Recordings = &stats
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

// accept starts or resumes accepting connections.
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

// stopAccepting stops accepting connections. New connections wait in the backlogs of the listeners.
func (s *serving) stopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepting != nil {
		s.accepting()
	}
	s.accepting = nil
}

// reopen resumes serving after a handoff has failed.
func (s *serving) reopen() {
	s.server.Forget()
	s.server.Reopen()
	s.local.Reopen()
	s.pages.Reopen()
}

// fail ends the proxy if err is not nil.
func (s *serving) fail(err error) {
	if err == nil {
		return
	}
	select {
	case s.failed <- err:
	default: // the first error is enough
	}
	s.stop()
}

// run serves until ctx is done or a successor has taken over.
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
			s.goaway("handoff") // those that were already taken over
			return err
		}
		ls.borrowed = false
		if err := s.remember(); err != nil {
			log.Error().Err(err).Msg("policy not saved; after a crash the next proxy uses the one that was saved before")
		}
	}
	s.accept()
	if err := ls.note(s.page); err != nil {
		log.Warn().Err(err).Msg("address of the web page not saved; after a crash the next proxy will not serve it")
	}
	for _, l := range []*socket.Listener{ls.api, ls.web, ls.control} {
		go l.Watch(ctx, func(rebound bool, err error) {
			warnRemoved(log, l, rebound, err)
		})
	}
	offer := s.offer(version.String())
	s.wg.Go(func() { s.fail(offer.Serve(ctx, ls.control)) })
	s.wg.Go(func() { keeperstate.KeepRenewed(ctx, s.runtime) })
	s.wg.Go(func() { s.links.Reconnect(ctx) })
	s.wg.Go(func() { s.sweeper.Run(ctx) })
	s.wg.Go(func() { s.server.Observe(ctx, s.observed) })
	if s.recorder != nil {
		s.wg.Go(func() { s.recorder.Run(ctx) })
	}
	s.ready()
	<-ctx.Done()
	offer.Finish() // a successor may have the listeners already
	ls.close()
	s.stopAccepting()
	s.goaway("stopping") // a second call has no effect
	s.wg.Wait()
	log.Info().Msg("proxy stops")
	select {
	case err := <-s.failed:
		return err
	default:
		return nil
	}
}

// openLog opens the log: standard error, or files with --background. If a supervisor runs, a file that cannot be opened is no
// error, because its sessions cannot be reached without a proxy: the log is standard error then, and has a warning.
func (o *Options) openLog(dirs config.Dirs, cfg config.Config) (zerolog.Logger, func(), error) {
	lo := logging.Options{Level: cfg.LogLevel, Process: "proxy"}
	var crash error
	if o.Background {
		lo.Path = filepath.Join(dirs.State, o.Proxy+".log")
		crash = logging.CrashOutput(filepath.Join(dirs.State, o.Proxy+".crash"))
	}
	log, closer, failed := logging.New(lo)
	if missing := errors.Join(failed, crash); missing != nil {
		if held, err := socket.Locked(dirs.Socket(config.SupervisorSocket)); err != nil || !held || !o.Background {
			return log, nil, missing
		}
		machine.SurviveBrokenPipe()
		if failed != nil {
			lo.Path = ""
			if log, closer, failed = logging.New(lo); failed != nil {
				return log, nil, failed
			}
		}
		log.Warn().Err(missing).Msg("log file or crash file not opened; what would be written there goes to standard error until the next start")
	}
	return log, func() { _ = closer.Close() }, nil
}

func tokenFile(dirs config.Dirs, proxy string) string {
	return filepath.Join(dirs.State, proxy+".token")
}

// ReadToken returns the token of clients on TCP, or "" if there is none.
func ReadToken(dirs config.Dirs, proxy string) string {
	b, err := os.ReadFile(tokenFile(dirs, proxy))
	token := strings.TrimSpace(string(b))
	if err != nil || len(token) < 64 {
		return ""
	}
	return token
}

// webToken returns the token of clients on TCP, and creates it if necessary; isNew tells that it did. The token is
// kept in a file, so that pages can reconnect to the next proxy.
func webToken(dirs config.Dirs, proxy string) (token string, isNew bool, err error) {
	if token := ReadToken(dirs, proxy); token != "" {
		return token, false, nil
	}
	path := tokenFile(dirs, proxy)
	token = protocol.NewToken(32)
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		return "", false, fmt.Errorf("token: %w", err)
	}
	return token, true, os.Chmod(path, 0o600)
}

// notifyReady notifies a service manager that the service is ready, and that the process with the
// given pid is its main process now.
func notifyReady(pid int, log zerolog.Logger) {
	if _, err := daemon.SdNotify(false, fmt.Sprintf("%s\nMAINPID=%d", daemon.SdNotifyReady, pid)); err != nil {
		log.Warn().Err(err).Msg("service manager not notified")
	}
}
