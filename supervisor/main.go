// Command supervisor holds terminals. It owns the shells, their output and their exit statuses,
// and outlives every proxy. A proxy starts it if none runs, or a user does, and it is rarely
// replaced.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
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
)

func main() {
	if runtime.GOOS == "windows" {
		fmt.Fprintln(os.Stderr, "supervisor: unsupported_os: there are no terminals to hold on Windows yet")
		os.Exit(sysexits.Unavailable)
	}
	fault("main")
	machine.UseOwnFiles()
	machine.Share()
	err := command().Execute()
	if failed := plain.StdoutError(); failed != nil && (err == nil || errors.Is(err, failed)) {
		fmt.Fprintln(plain.Stderr, "supervisor: standard output cannot be written:", failed) // cobra ignores the error of a help text
		os.Exit(sysexits.IOErr)
	}
	if err != nil {
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
	case protocol.CodeOf(err) == protocol.CodeInvalidArgument, errors.As(err, new(usageError)):
		return sysexits.Usage
	case errors.Is(err, config.ErrInvalid), errors.Is(err, socket.ErrUnsafeDir):
		return sysexits.Config
	}
	return 1
}

// A usageError is a mistake in the command line.
type usageError struct{ error }

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
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
holds the terminals and starts the supervisor again if that dies.

The flags are the settings that the supervisor uses. Those that only the proxy uses, such as
recordings and web, belong into holdfast.json, or into the environment where the proxy starts.`,
		Example: `  supervisor --background
  supervisor --upgrade --dry-run`,
		Args:          noArgs,
		Version:       version.String(),
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if o.dir == "" && cmd.Flags().Changed("dir") { // of a script whose variable is not set
				return usageError{errors.New("--dir needs a directory, but it is empty")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if upgradeTo || dryRun || alsoKeeper {
				return askUpgrade(cmd.Context(), o, dryRun, alsoKeeper)
			}
			warnUnused(plain.Stderr, o.flags)
			dropEnvironment()
			return runKeeper(o)
		},
	}
	root.SetOut(plain.Stdout)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentFlags().StringVar(&o.dir, "dir", "", "directory for everything (default $HOLDFAST_DIR, else the user's directories)")
	root.Flags().BoolVar(&upgradeTo, "upgrade", false, "have the running supervisor become this program, with all its sessions")
	root.Flags().BoolVar(&alsoKeeper, "keeper", false, "with --upgrade: have its keeper become this program as well")
	root.Flags().BoolVar(&dryRun, "dry-run", false, "only try whether it could")
	run := &cobra.Command{
		Use:    "run",
		Short:  "Hold terminals, without a keeper",
		Long:   "Hold terminals, without a keeper unless one has started this. If it dies, the sessions die with it.",
		Args:   noArgs,
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
		settings.VisitAll(func(f *flag.Flag) {
			if !config.IsOfSupervisor(strings.ReplaceAll(f.Name, "-", "_")) {
				_ = c.Flags().MarkHidden(f.Name) // it exists, because AddGoFlagSet has added it
			}
		})
	}
	root.AddCommand(run, stopCommand(o))
	addCompletion(root)
	addManual(root)
	return root
}

func stopCommand(o *options) *cobra.Command {
	var sessions string
	c := &cobra.Command{
		Use:     "stop",
		Short:   "Stop the running supervisor; refused while sessions run, unless told to end them",
		Example: "  supervisor stop --sessions=end",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return stop(cmd.Context(), o, sessions) },
	}
	c.Flags().StringVar(&sessions, "sessions", "keep", "what to do with running sessions: keep (refuse to stop) or end")
	return c
}

// addCompletion adds the command that prints scripts for shells, with examples. The command prints to the output that root has
// now.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	if all, _, err := root.Find([]string{"completion"}); err == nil {
		all.Example = "  source <(supervisor completion bash)"
		for _, shell := range all.Commands() {
			shell.Example = "  supervisor completion " + shell.Name()
		}
	}
}

// warnUnused prints a warning for each flag of a setting that only the proxy uses. Such a flag is no error, because an
// earlier proxy passes all of its own flags to the supervisor that it starts.
func warnUnused(w io.Writer, given map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if flag, variable := config.Names(name); !config.IsOfSupervisor(name) {
			fmt.Fprintf(w, "supervisor: warning: --%s has no effect, because only the proxy uses this setting: write it into %s, or set %s where the proxy starts\n",
				flag, config.FileName, variable)
		}
	}
}

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

// logPath returns the path of the log that the keeper and its supervisors share.
func logPath(state string) string { return filepath.Join(state, "supervisor.log") }

// openLog opens the log: standard error, or files in the state directory with --background. If
// sessions depend on this process, a file that cannot be opened is no error, because the
// sessions would end with this process: the log is standard error then, and has a warning.
func openLog(o *options, s settings, process string, isDependedOn bool) (zerolog.Logger, func(), error) {
	lo := logging.Options{Level: s.LogLevel, Process: process}
	var crash error
	if o.background {
		lo.Path = logPath(s.dirs.State)
		crash = logging.CrashOutput(filepath.Join(s.dirs.State, process+".crash"))
	}
	if crash != nil && !isDependedOn {
		return zerolog.Nop(), nil, crash
	}
	log, closer, failed := logging.New(lo)
	if failed != nil {
		if !isDependedOn {
			return log, nil, failed
		}
		machine.SurviveBrokenPipe()
		var err error
		if log, closer, err = logging.New(logging.Options{Process: process}); err != nil {
			return log, nil, err
		}
		log.Warn().Err(failed).Msg("log file not opened; this process logs to standard error until its next start")
	}
	if crash != nil {
		log.Warn().Err(crash).Msg("crash file not opened; if this process crashes, its stacks are written to standard error only")
	}
	return log, func() { _ = closer.Close() }, nil
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
		return nil, protocol.Errorf(protocol.CodeSupervisorUnreachable, "%v", held)
	}
	for range dialTries {
		nc, _, dialErr := socket.Dial(ctx, dirs.Socket(config.SupervisorSocket))
		if dialErr != nil {
			return nil, protocol.Errorf(protocol.CodeSupervisorUnreachable, "no supervisor runs here: %v", dialErr)
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
