// Command supervisor holds terminals: it owns the shells, what they printed
// and how they ended, and outlives every proxy. It is started by the proxy
// where none runs, or by hand, and is hardly ever replaced.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/shared/config"
	mark "holdfast/shared/keep"
	pipe "holdfast/shared/link"
	"holdfast/shared/logging"
	"holdfast/shared/machine"
	"holdfast/shared/plain"
	"holdfast/shared/socket"
	"holdfast/shared/version"
	"holdfast/supervisor/internal/cage"
	"holdfast/supervisor/internal/linkserver"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/session"
)

// Exit codes, of sysexits(3) where there is one.
const (
	exitFailure     = 1
	exitUsage       = 64
	exitUnavailable = 69
	exitRefused     = 75 // try again when the sessions have ended
)

// socketCheck is how often the socket's path is looked after: temp cleaners
// remove what nobody has touched for days.
const socketCheck = 10 * time.Second

func main() {
	if runtime.GOOS == "windows" {
		fmt.Fprintln(os.Stderr, "supervisor: unsupported_os: there are no terminals to hold on Windows yet")
		os.Exit(exitUnavailable)
	}
	fault("main")
	machine.Share()
	if err := command().Execute(); err != nil {
		fmt.Fprintln(plain.NewWriter(os.Stderr), "supervisor:", err)
		os.Exit(exitCode(err))
	}
}

// managers are the beginnings of variables by which a service manager speaks to its
// service.
var managers = []string{"NOTIFY_SOCKET", "LISTEN_", "SYSTEMD_", "INVOCATION_ID", "JOURNAL_STREAM", "WATCHDOG_", "MANAGERPID"}

// dropEnvironment forgets of the environment what was meant for the command that
// started this process, so that the programs that it becomes and starts do not have
// it. /proc shows the environment of this one's own beginning until it becomes
// another: proxies start supervisors without (config.DaemonEnv).
func dropEnvironment() {
	keep := config.DaemonEnv(os.Environ())
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		ofManager := slices.ContainsFunc(managers, func(m string) bool { return strings.HasPrefix(name, m) })
		if !ofManager && !slices.Contains(keep, e) {
			_ = os.Unsetenv(name) // fails for no name that was there
		}
	}
}

func exitCode(err error) int {
	var inUse *socket.InUseError
	switch {
	case errors.As(err, &inUse), protocol.CodeOf(err) == protocol.CodeSupervisorUnreachable:
		return exitUnavailable
	case protocol.CodeOf(err) == protocol.CodeSessionRunning:
		return exitRefused
	case protocol.CodeOf(err) == protocol.CodeInvalidArgument:
		return exitUsage
	}
	return exitFailure
}

type options struct {
	dir        string
	background bool
	flags      map[string]string
}

func command() *cobra.Command {
	o := &options{}
	var upgradeTo, dryRun, alsoKeeper bool
	root := &cobra.Command{
		Use:   "supervisor",
		Short: "Hold terminals, in the foreground",
		Long: `Hold terminals, in the foreground. SIGTERM ends every session and then the supervisor;
an interrupt does so when it comes twice, if sessions are running.

It runs as two processes: a keeper, and the supervisor proper as its child. The keeper
holds the terminals and starts the supervisor again if that dies.`,
		Example: `  supervisor --background
  supervisor --upgrade --dry-run`,
		Args:          cobra.NoArgs,
		Version:       version.String(),
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if upgradeTo || dryRun || alsoKeeper {
				return askUpgrade(cmd.Context(), o, dryRun, alsoKeeper)
			}
			dropEnvironment()
			return keep(o)
		},
	}
	root.PersistentFlags().StringVar(&o.dir, "dir", "", "directory for everything (default $HOLDFAST_DIR, else the user's directories)")
	root.Flags().BoolVar(&upgradeTo, "upgrade", false, "have the running supervisor become this program, with all its sessions")
	root.Flags().BoolVar(&alsoKeeper, "keeper", false, "with --upgrade: have its keeper become this program as well")
	root.Flags().BoolVar(&dryRun, "dry-run", false, "only try whether it could")
	run := &cobra.Command{
		Use:    "run",
		Short:  "Hold terminals, without a keeper",
		Long:   "Hold terminals, without a keeper unless one has started this. If it dies, the sessions die with it.",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dropEnvironment()
			return run(cmd.Context(), o)
		},
	}
	settings := flag.NewFlagSet("", flag.ContinueOnError)
	o.flags = config.Flags(settings)
	for _, c := range []*cobra.Command{root, run} {
		c.Flags().BoolVar(&o.background, "background", false, "log to a file in the state directory")
		c.Flags().AddGoFlagSet(settings)
	}

	var sessions string
	stop := &cobra.Command{
		Use:     "stop",
		Short:   "Stop the running supervisor; refused while sessions run, unless told to end them",
		Example: "  supervisor stop --sessions=end",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return stop(cmd.Context(), o, sessions) },
	}
	stop.Flags().StringVar(&sessions, "sessions", "keep", "what to do with running sessions: keep (refuse to stop) or end")
	root.AddCommand(run, stop)
	root.InitDefaultCompletionCmd()
	if all, _, err := root.Find([]string{"completion"}); err == nil {
		all.Example = "  source <(supervisor completion bash)"
		for _, shell := range all.Commands() {
			shell.Example = "  supervisor completion " + shell.Name()
		}
	}
	addManual(root)
	return root
}

// run builds the process from its leaves up and takes it down in reverse.
func run(ctx context.Context, o *options) error {
	if done, err := tryOut(); done {
		return err
	}
	fault("run")
	calm := machine.Hurry()
	before, err := inherit()
	if err != nil {
		return err
	}
	if err := pty.Seal(); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	if err := os.Chdir("/"); err != nil { // keep no directory busy
		return err
	}
	dirs, cfg, err := load(o)
	if err != nil {
		return err
	}
	log, closeLog, err := openLog(o, dirs, cfg, "supervisor")
	if err != nil {
		return err
	}
	defer closeLog()
	secret, err := cfg.Secret()
	if err != nil {
		return err
	}
	before.findClaim(dirs.Runtime, log)
	self, ln, err := before.self(dirs.Socket(config.SupervisorSocket), log)
	if err != nil {
		return err
	}

	if err := pty.Protect(); err != nil {
		log.Warn().Err(err).Msg("the kernel may end this process before sessions when memory runs out")
	}
	cages := cage.Open(cage.Options{Setting: cfg.Cage, Keeper: before.keeperPID(), Managed: os.Getenv("NOTIFY_SOCKET") != "", Log: log})

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Only a stop that was asked for removes the socket and gives up its lock, as it
	// cancels ctx. After a panic or a failure both stay with the keeper for the next supervisor.
	defer func() { _ = ln.Release() }()
	_, files, err := machine.Files()
	if err != nil {
		log.Warn().Err(err).Msg("the limit of open files is not known")
	}
	sessions := session.NewTable(session.Config{
		Files:     int(min(files, math.MaxInt32)),
		Program:   version.String(),
		RingBytes: cfg.RingBytes, ScrollbackLines: cfg.ScrollbackLines,
		ExitKeep: cfg.ExitKeep, ExitRecords: cfg.ExitRecords, Grace: cfg.Grace,
		MaxSessions: cfg.MaxSessions, OriginatorSessions: cfg.OriginatorMax, SpawnBurst: 8 * cfg.SpawnRate, SpawnRate: cfg.SpawnRate,
		Env: inherited(o, dirs), Cages: cages, Vault: before.sessionVault(log), ReportDir: dirs.State, Published: self.published, Log: log,
	})
	r := &replacer{before: before, self: self, sessions: sessions, cages: cages, log: log}
	server := linkserver.New(linkserver.Config{
		Sessions: sessions, Secret: secret, Stop: stop, Upgrader: r,
		Instance: self.Instance, Started: self.Started, Status: r.status, Log: log,
		Reading: self.reading, NoReads: self.noReads(before.crashed),
	})
	r.server = server
	_ = machine.Name("supervisor") // for people
	adopted := sessions.Adopt(before.heritage(self))
	fault("adopted")
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if before.own {
		self.Upgrades++ // written down when this program is ready: one that dies before is no upgrade
	}
	go sessions.Restore(calm)
	go obey(ctx, signals, sessions, stop, log)
	go r.watchKeeper(ctx)
	go endIfEmpty(ctx, cfg.EmptyTimeout, func() bool {
		return server.Linked() == 0 && !mark.Managed(dirs.Runtime) // a service manager would start it again
	}, func() bool {
		closed := sessions.CloseIfIdle(true)
		if closed {
			log.Info().Dur("after", cfg.EmptyTimeout).Msg("supervisor ends: it had no session, no exit record and no proxy")
			stop()
		}
		return closed
	})
	go ln.Watch(ctx, socketCheck, func(rebound bool, err error) {
		log.Warn().Err(err).Bool("rebound", rebound).Str(logging.Path, ln.Path()).Msg("socket's path was gone")
		if rebound {
			self.keep(log)
		}
	})
	context.AfterFunc(ctx, func() { _ = ln.Close() }) // so that Serve returns

	serves := log.Info().Int(logging.PID, os.Getpid()).Str("version", version.String()).Str(logging.Path, ln.Path()).
		Int("sessions", adopted).Int("upgrades", self.Upgrades)
	if before.own {
		serves = serves.Dur(logging.Took, time.Since(before.at))
	}
	serves.Msg("supervisor serves")
	fault("serves")
	before.ready(log) // last: the keeper ends a program that has not said so. From here on it passes signals on
	if before.own {
		self.keep(log)
	}
	mark.Serves(dirs.Runtime)
	fault("ready")
	err = server.Serve(ctx, ln)
	if err == nil {
		before.quit(log)
	}
	log.Info().Msg("supervisor stops")
	return err
}

func load(o *options) (config.Dirs, config.Config, error) {
	dirs, err := config.Resolve(o.dir, os.Getenv)
	if err != nil {
		return dirs, config.Config{}, err
	}
	if err := dirs.Ensure(); err != nil {
		return dirs, config.Config{}, err
	}
	cfg, err := config.Load(dirs, os.Getenv, o.flags)
	return dirs, cfg, err
}

// inherited is the environment that sessions begin with. Where everything lies
// in a directory of its own, proxy commands in a session find it there.
func inherited(o *options, dirs config.Dirs) []string {
	env := config.CleanEnv(os.Environ())
	if o.dir != "" || os.Getenv("HOLDFAST_DIR") != "" {
		env = append(env, "HOLDFAST_DIR="+dirs.State)
	}
	return env
}

func openLog(o *options, dirs config.Dirs, cfg config.Config, process string) (zerolog.Logger, func(), error) {
	lo := logging.Options{Level: cfg.LogLevel, Process: process}
	if o.background {
		lo.Path = filepath.Join(dirs.State, "supervisor.log")
		if err := logging.CrashOutput(filepath.Join(dirs.State, process+".crash")); err != nil {
			return zerolog.Nop(), nil, err
		}
	}
	log, closer, err := logging.New(lo)
	if err != nil {
		return log, nil, err
	}
	return log, func() { _ = closer.Close() }, nil
}

// interruptAgain is how long a second interrupt counts as meant.
const interruptAgain = 5 * time.Second

// obey ends everything at SIGTERM, and at an interrupt that is meant. SIGHUP is for
// whoever started us, and says nothing about the sessions.
func obey(ctx context.Context, signals <-chan os.Signal, sessions *session.Table, stop func(), log zerolog.Logger) {
	var last time.Time
	for {
		var sig os.Signal
		select {
		case sig = <-signals:
		case <-ctx.Done():
			return
		}
		if sig == syscall.SIGHUP {
			continue
		}
		live := sessions.Live()
		if sig == syscall.SIGINT && live > 0 && time.Since(last) > interruptAgain {
			last = time.Now()
			log.Warn().Int("sessions", live).Msg("sessions are running; interrupt again to end them")
			continue
		}
		log.Info().Stringer("signal", sig.(syscall.Signal)).Int("sessions", live).Msg("ending every session")
		asker := protocol.Asker{By: "supervisor, by " + pty.SignalName(sig.(syscall.Signal))}
		_ = sessions.ShutdownFor(ctx, asker) // ends by ctx only if something else stopped us
		stop()
		return
	}
}

func stop(ctx context.Context, o *options, sessions string) error {
	if sessions != "keep" && sessions != "end" {
		return protocol.Errorf(protocol.CodeInvalidArgument, "--sessions must be keep or end")
	}
	dirs, cfg, err := load(o)
	if err != nil {
		return err
	}
	secret, err := cfg.Secret()
	if err != nil {
		return err
	}
	conn, err := dial(ctx, dirs, secret, "supervisor stop")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = conn.Call(ctx, link.Shutdown{EndSessions: sessions == "end"})
	if protocol.CodeOf(err) == protocol.CodeSessionRunning {
		return fmt.Errorf("%w (--sessions=end)", err)
	}
	return err
}

// dialTries is how often a link is asked for where a busy machine had no time for its
// hello.
const dialTries = 5

// dial makes a link to the running supervisor.
func dial(ctx context.Context, dirs config.Dirs, secret, name string) (conn *pipe.Conn, err error) {
	if held := mark.Look(dirs.Runtime); held != nil { // its socket takes us, and nobody would answer
		return nil, protocol.Errorf(protocol.CodeSupervisorUnreachable, held.Error())
	}
	for range dialTries {
		nc, _, dialErr := socket.Dial(ctx, dirs.Socket(config.SupervisorSocket))
		if dialErr != nil {
			return nil, protocol.Errorf(protocol.CodeSupervisorUnreachable, fmt.Sprintf("no supervisor runs here: %v", dialErr))
		}
		conn, _, _, err = pipe.Dial(nc, link.Hello{
			Protocol: protocol.Supported(), PID: os.Getpid(), Version: version.String(), Name: name, Secret: secret,
		}, zerolog.Nop())
		var late net.Error
		if !errors.As(err, &late) || !late.Timeout() {
			break
		}
	}
	return conn, err
}
