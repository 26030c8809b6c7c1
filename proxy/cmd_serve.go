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
	accepting, stopAccepting := context.WithCancel(ctx)
	defer stopAccepting()
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
		Leave: func(handed bool, pass func([]handoff.Conn) error) {
			defer stop()
			reason := "stopping"
			if handed {
				reason = "handoff"
				ls.release()
			}
			stopAccepting()
			if pass != nil {
				s.move(pass)
			}
			s.goaway(reason)
		},
	}
	serve(func() error { return s.server.ServeListener(accepting, connCtx, ls.api) })
	serve(func() error { return s.local.Serve(accepting, connCtx, netListener{ls.web}) })
	serve(func() error { return offer.Serve(accepting, ls.control) })
	if ls.tcp != nil {
		log.Info().Stringer("address", ls.tcp.Addr()).Msg("serving WebSockets on TCP; the token lies in the state directory")
		serve(func() error { return s.pages.Serve(accepting, connCtx, ls.tcp) })
	}
	for _, l := range []*socket.Listener{ls.api, ls.web, ls.control} {
		go l.Watch(accepting, socketCheck, func(rebound bool, err error) {
			log.Warn().Err(err).Bool("rebound", rebound).Str(logging.Path, l.Path()).Msg("socket's path was gone")
		})
	}
	log.Info().Int(logging.PID, os.Getpid()).Str("version", version.String()).Str(logging.Path, ls.api.Path()).Msg("proxy serves")
	if s.take != nil {
		if err := s.take.Serving(func(conns []handoff.Conn) { s.adopt(connCtx, conns) }); err != nil {
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
