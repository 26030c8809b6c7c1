// Command supervisor holds terminals. It owns the shells, their output and their exit statuses,
// and outlives every proxy. A proxy starts it if none runs, or a user does, and it is rarely
// replaced.
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
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/shared/config"
	"holdfast/shared/keeperstate"
	linkconn "holdfast/shared/link"
	"holdfast/shared/logging"
	"holdfast/shared/machine"
	"holdfast/shared/plain"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
	"holdfast/shared/version"
	"holdfast/supervisor/internal/cage"
	"holdfast/supervisor/internal/linkserver"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/recorder"
	"holdfast/supervisor/internal/session"
)

// socketCheck is the pause between two checks of the socket's path, because cleaners of
// temporary directories remove files that were not used for days.
const socketCheck = 10 * time.Second

func main() {
	if runtime.GOOS == "windows" {
		fmt.Fprintln(os.Stderr, "supervisor: unsupported_os: there are no terminals to hold on Windows yet")
		os.Exit(sysexits.Unavailable)
	}
	fault("main")
	machine.Share()
	if err := command().Execute(); err != nil {
		fmt.Fprintln(plain.Stderr, "supervisor:", err)
		os.Exit(exitCode(err))
	}
}

// managers are the prefixes of the environment variables that a service manager sets for its
// service.
var managers = []string{"NOTIFY_SOCKET", "LISTEN_", "SYSTEMD_", "INVOCATION_ID", "JOURNAL_STREAM", "WATCHDOG_", "MANAGERPID"}

// dropEnvironment removes the variables that were meant for the command that started this
// process, so that programs that this process executes or starts do not inherit them. Until
// this process executes another program, /proc still shows them; a proxy therefore starts
// supervisors without them (config.DaemonEnv).
func dropEnvironment() {
	keep := config.DaemonEnv(os.Environ())
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		ofManager := slices.ContainsFunc(managers, func(m string) bool { return strings.HasPrefix(name, m) })
		if !ofManager && !slices.Contains(keep, e) {
			_ = os.Unsetenv(name) // cannot fail, because the name is from the environment
		}
	}
}

func exitCode(err error) int {
	var inUse *socket.InUseError
	switch {
	case errors.As(err, &inUse), protocol.CodeOf(err) == protocol.CodeSupervisorUnreachable:
		return sysexits.Unavailable
	case protocol.CodeOf(err) == protocol.CodeSessionRunning:
		return sysexits.TempFail // sessions still run
	case protocol.CodeOf(err) == protocol.CodeInvalidArgument:
		return sysexits.Usage
	}
	return 1
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
			return runKeeper(o)
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

// run builds the parts of the supervisor in the order of their dependencies, serves, and takes
// the parts down in reverse order.
func run(ctx context.Context, o *options) error {
	if done, err := tryOut(); done {
		return err
	}
	fault("run")
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	calm := machine.Hurry()
	before, err := inherit()
	if err != nil {
		return err
	}
	if err := pty.Seal(); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	if err := os.Chdir("/"); err != nil { // so that no directory stays in use
		return err
	}
	cfg, err := loadSettings(o, before.own || len(before.entries) > 0)
	if err != nil {
		return err
	}
	dirs := cfg.dirs
	log, closeLog, err := openLog(o, dirs, cfg.Config, "supervisor")
	if err != nil {
		return err
	}
	defer closeLog()
	cfg.begun(log)
	secret, err := cfg.Secret()
	if err != nil {
		return err
	}
	before.findClaim(dirs.Runtime, log)
	// From here on a signal is handled as soon as this program serves. If the socket came first, a
	// user who sees it could end this program without the end of its sessions and with exit code 143.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	self, ln, err := before.self(dirs.Socket(config.SupervisorSocket), log)
	if err != nil {
		return err
	}

	if err := pty.Protect(); err != nil {
		log.Warn().Err(err).Msg("OOM score not lowered; the kernel may end this process before sessions if memory runs out")
	}
	cages := cage.Open(cage.Options{Setting: cfg.Cage, Keeper: before.keeperPID(), Managed: os.Getenv("NOTIFY_SOCKET") != "", Log: log})

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Only a requested stop cancels ctx, which removes the socket and releases its lock. After a
	// panic or a failure, the keeper holds both for the next supervisor.
	defer func() { _ = ln.Release() }()
	_, files, err := machine.Files()
	if err != nil {
		log.Warn().Err(err).Msg("limit of open files not read")
	}
	store := past.NewSealed(dirs.Recordings(), durableKey(cfg.Config))
	recording := recorder.New(recorder.Config{
		Store: store, Sync: cfg.DurableSync, Log: log,
		Budgets: past.Policy{PerLife: int64(cfg.DurableSession), Total: int64(cfg.DurableTotal), Age: cfg.DurableAge},
	})
	sessions := session.NewTable(session.Config{
		Recorder: recording, Durable: cfg.Durable, Supervisor: self.Instance, SecretEnv: cfg.SecretEnv, Mask: cfg.Mask,
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
	_ = machine.Name("supervisor") // the name that ps shows
	heritage := before.heritage(self)
	adopted := sessions.Adopt(heritage)
	fault("adopted")
	if before.own {
		self.Upgrades++ // saved when this program is ready, because a program that dies earlier is no upgrade
	}
	go sessions.Restore(calm)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		sessions.AddLost(store, heritage.Instances())
	}()
	if before.isFresh() { // no session waits, and the first request should find the lost ones
		select {
		case <-lost:
		case <-time.After(min(lostTime, cfg.StartTimeout/4)):
			log.Warn().Msg("stored sessions are still being read; they are listed later")
		}
	}
	go obey(ctx, signals, sessions, stop, log)
	go r.watchKeeper(ctx)
	go endIfEmpty(ctx, cfg.EmptyTimeout, func() bool {
		return server.Linked() == 0 && !keeperstate.IsManaged(dirs.Runtime) // a service manager would start the supervisor again
	}, func() bool {
		closed := sessions.CloseIfIdle(true)
		if closed {
			log.Info().Dur("after", cfg.EmptyTimeout).Msg("supervisor ends: it had no session, no exit record and no proxy")
			stop()
		}
		return closed
	})
	go ln.Watch(ctx, socketCheck, func(rebound bool, err error) {
		log.Warn().Err(err).Bool("rebound", rebound).Str(logging.Path, ln.Path()).Msg("the path of the socket was gone")
		if rebound {
			self.save(log)
		}
	})
	context.AfterFunc(ctx, func() { _ = ln.Close() }) // makes Serve return

	serves := log.Info().Int(logging.PID, os.Getpid()).Str("version", version.String()).Str(logging.Path, ln.Path()).
		Int("sessions", adopted).Int("upgrades", self.Upgrades)
	if before.own {
		serves = serves.Dur(logging.Took, time.Since(before.at))
	}
	serves.Msg("supervisor serves")
	fault("serves")
	before.ready(log) // must be last, because from here on the keeper does not end this program any more, and forwards signals to it
	if before.own {
		self.save(log)
	}
	keeperstate.ClearHeld(dirs.Runtime)
	fault("ready")
	err = server.Serve(ctx, ln)
	if unfinished := recording.Close(recordingEnd); unfinished != nil {
		log.Warn().Err(unfinished).Msg("recordings not finished")
	}
	if err == nil {
		before.quit(log)
	}
	log.Info().Msg("supervisor stops")
	return err
}

// gcPercent lets the heap grow by a half until garbage is collected. Output makes almost no garbage; saved screens do, and each
// is a large part of the memory of its session.
const gcPercent = 50

// durableKey begins to read the key that encrypts the recordings. It returns nil if there is none.
func durableKey(cfg config.Config) *past.Key {
	if cfg.DurableKey == "" {
		return nil
	}
	return past.NewKey(cfg.ReadDurableKey)
}

// lostTime is how long the start of a supervisor may take longer because of stored sessions.
const lostTime = 2 * time.Second

// recordingEnd is how long a supervisor that stops waits until the last output is on disk.
const recordingEnd = 5 * time.Second

func load(o *options) (config.Dirs, config.Config, error) {
	return resolve(o, config.Dirs.Ensure)
}

// find returns the directories and the settings of a supervisor that runs already. It makes no
// directory, because a mistyped --dir must leave nothing behind.
func find(o *options) (config.Dirs, config.Config, error) {
	return resolve(o, config.Dirs.Check)
}

func resolve(o *options, prepare func(config.Dirs) error) (config.Dirs, config.Config, error) {
	dirs, err := config.Resolve(o.dir, os.Getenv)
	if err != nil {
		return dirs, config.Config{}, err
	}
	if err := prepare(dirs); err != nil {
		return dirs, config.Config{}, err
	}
	cfg, err := config.Load(dirs, os.Getenv, o.flags)
	return dirs, cfg, err
}

// inherited returns the environment of new sessions. If a directory was chosen, the environment
// names it, so that proxy commands in a session find the supervisor.
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

// interruptAgain is how long after a first interrupt a second one ends the sessions.
const interruptAgain = 5 * time.Second

// obey ends all sessions and then the supervisor at SIGTERM, and at the second SIGINT if
// sessions are running. It ignores SIGHUP, which concerns the process that started this one and
// not the sessions.
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
		log.Info().Stringer("signal", sig.(syscall.Signal)).Int("sessions", live).Msg("supervisor ends every session")
		asker := protocol.Asker{By: "supervisor, by " + pty.SignalName(sig.(syscall.Signal))}
		_ = sessions.ShutdownFor(ctx, asker) // fails only if ctx is done, because another goroutine has stopped the supervisor
		stop()
		return
	}
}

func stop(ctx context.Context, o *options, sessions string) error {
	if sessions != "keep" && sessions != "end" {
		return protocol.Errorf(protocol.CodeInvalidArgument, "--sessions must be keep or end")
	}
	dirs, cfg, err := find(o)
	if err != nil {
		return err
	}
	secret, err := cfg.Secret()
	if err != nil {
		return err
	}
	path := dirs.Socket(config.SupervisorSocket)
	was, absent := os.Lstat(path)
	conn, err := dial(ctx, dirs, secret, "supervisor stop")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = conn.Call(ctx, link.Shutdown{EndSessions: sessions == "end"})
	if protocol.CodeOf(err) == protocol.CodeSessionRunning {
		return fmt.Errorf("%w (--sessions=end)", err)
	}
	if err != nil || absent != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	return socket.AwaitGone(ctx, path, was) // otherwise a command that follows could still find the supervisor
}

// stopTime is how long a supervisor may take to remove its socket after its sessions have ended.
const stopTime = 10 * time.Second

// dialTries is how often dial tries to connect if the hello times out, because the machine may
// be busy.
const dialTries = 5

// dial connects a link to the running supervisor.
func dial(ctx context.Context, dirs config.Dirs, secret, name string) (conn *linkconn.Conn, err error) {
	if held := keeperstate.ReadHeld(dirs.Runtime); held != nil { // the socket would accept the connection, but no supervisor would answer
		return nil, protocol.Errorf(protocol.CodeSupervisorUnreachable, held.Error())
	}
	for range dialTries {
		nc, _, dialErr := socket.Dial(ctx, dirs.Socket(config.SupervisorSocket))
		if dialErr != nil {
			return nil, protocol.Errorf(protocol.CodeSupervisorUnreachable, fmt.Sprintf("no supervisor runs here: %v", dialErr))
		}
		conn, _, _, err = linkconn.Dial(nc, link.Hello{
			Protocol: protocol.Supported(), PID: os.Getpid(), Version: version.String(), Name: name, Secret: secret,
		}, zerolog.Nop())
		var late net.Error
		if !errors.As(err, &late) || !late.Timeout() {
			break
		}
	}
	return conn, err
}
