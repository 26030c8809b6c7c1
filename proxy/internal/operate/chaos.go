package operate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/proxy/client"
	"holdfast/proxy/internal/chaos"
	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
	"holdfast/shared/socket"
)

// maxChaosSessions is the largest number of sessions of a run.
const maxChaosSessions = 100

// chaosOptions are the flags of chaos.
type chaosOptions struct {
	chaos.Options
	now       []string
	onDefault bool
	probe     string // of a probe
	code      int    // of a probe
}

func (a *app) chaosCommand() *cobra.Command {
	var o chaosOptions
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Disturb a daemon, and judge whether an app's client loses a byte; for the tests of apps",
		Long: "Disturb a daemon, and judge whether an app's client loses a byte; for the tests of apps. The daemon must be named\n" +
			"with --dir; it is started if it does not run. chaos hands the proxy over, kills proxy, supervisor and keeper, and cuts\n" +
			"and slows down the app's connections. No session ends by that, but all clients of the daemon notice it.\n\n" +
			"The app must connect to the directory of --relay. chaos starts sessions, whose output is known, and prints lines of\n" +
			"JSON: \"begin\" names the sessions, and \"stop\" one of them that is to end. The app attaches to each session, types into\n" +
			"it, and writes what it typed and received and how the session ended to the standard input of chaos, as lines of JSON.\n" +
			"When it closes that, the last line is the \"verdict\". Exit code: 0 if it is ok, 1 if not. The guide embed-electron.md\n" +
			"has the lines, and an app that uses them.\n\n" +
			"With --now, chaos makes these faults once, in this order, without an app.",
		Example: "  proxy chaos --dir /tmp/test/daemon --relay /tmp/test/relay --for 30s --seed 7\n" +
			"  proxy chaos --dir /tmp/test/daemon --now handoff,kill-supervisor",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.probe != "" {
				if err := chaos.Probe(o.probe, o.Seed); err != nil {
					return err
				}
				return exitcode.New(o.code, "")
			}
			if pipe.Here {
				return exitcode.Unsupported("chaos", "test on Linux or macOS")
			}
			if err := a.checkChaos(&o); err != nil {
				return err
			}
			if o.Seed == 0 {
				o.Seed = 1 + rand.Uint64N(1<<53-1) // a number that JavaScript can represent
			}
			return a.chaos(cmd, &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.RelayDir, "relay", "", "the `directory` to which the app connects; it must not be that of a daemon")
	cli.SpanVar(f, &o.Last, "for", 30*time.Second, "how long faults are made, and at least until each came once; 0: only those that the app asks for")
	f.Uint64Var(&o.Seed, "seed", 0, "makes the same faults as the run with this `number`; 0: other ones each time")
	f.StringSliceVar(&o.Faults, "faults", chaos.Kinds(), "the `kinds` of faults")
	f.IntVar(&o.Sessions, "sessions", 3, "`number` of sessions")
	f.StringSliceVar(&o.now, "now", nil, "make these `faults` once, and end")
	f.BoolVar(&o.onDefault, "on-default-directory", false, "also disturb the daemon of the directory that commands use by default")
	f.StringVar(&o.probe, "probe", "", "be the program of a session that stores its input in a `file`")
	f.IntVar(&o.code, "code", 0, "the exit code of --probe")
	for _, name := range []string{"probe", "code"} { // chaos starts sessions with these flags
		_ = f.MarkHidden(name)
	}
	return cmd
}

// checkChaos returns an error if the options are invalid, or if they do not name a directory for tests.
func (a *app) checkChaos(o *chaosOptions) error {
	if a.Dir == "" {
		return exitcode.WrongUsagef("directory_not_named: chaos kills the processes of a daemon, so --dir must name its directory")
	}
	isDefault, err := isDefaultDir(a.Dir)
	if err != nil {
		return err
	}
	if isDefault && !o.onDefault {
		return exitcode.WrongUsagef("default_directory: %s is the directory of your own sessions; if you want to disturb them, add --on-default-directory", a.Dir)
	}
	for _, kind := range slices.Concat(o.Faults, o.now) {
		if !slices.Contains(chaos.Kinds(), kind) {
			return exitcode.WrongUsagef("unknown_fault: %q; the faults are %s", kind, strings.Join(chaos.Kinds(), ", "))
		}
	}
	switch {
	case o.now != nil && slices.ContainsFunc(o.now, chaos.IsOfRelay):
		return exitcode.WrongUsagef("the faults cut and slow are those of an app's connections: use --relay instead of --now")
	case o.now == nil && o.RelayDir == "":
		return exitcode.WrongUsagef("--relay must name a directory to which the app connects, unless --now is set")
	case o.Last < 0, len(o.Faults) == 0, o.Sessions < 1, o.Sessions > maxChaosSessions:
		return exitcode.WrongUsagef("--for must not be negative, --faults must name a fault, and --sessions must be 1 to %d", maxChaosSessions)
	}
	return nil
}

// isDefaultDir reports whether a directory is one that commands use without --dir and HOLDFAST_DIR.
func isDefaultDir(dir string) (bool, error) {
	named, err := config.Resolve(dir, os.Getenv)
	if err != nil {
		return false, err
	}
	usual, err := config.Resolve("", withoutDir)
	if err != nil {
		return false, nil // without a home directory there is no default
	}
	return slices.ContainsFunc([]string{usual.Runtime, usual.State, usual.Config}, func(path string) bool {
		return isSameDir(path, named.Runtime) || isSameDir(path, named.State)
	}), nil
}

// withoutDir is os.Getenv without HOLDFAST_DIR.
func withoutDir(name string) string {
	if name == "HOLDFAST_DIR" {
		return ""
	}
	return os.Getenv(name)
}

func isSameDir(a, b string) bool {
	one, err := os.Stat(a)
	two, err2 := os.Stat(b)
	return filepath.Clean(a) == filepath.Clean(b) || err == nil && err2 == nil && os.SameFile(one, two)
}

// chaos makes the faults, and prints the verdict.
func (a *app) chaos(cmd *cobra.Command, o *chaosOptions) error {
	a.EndsSlowly()
	ctx := cmd.Context()
	dir, err := filepath.Abs(a.Dir)
	if err != nil {
		return err
	}
	if o.Proxy, err = os.Executable(); err != nil {
		return err
	}
	o.Args = []string{"--dir", dir, "--proxy", a.Proxy}
	if o.Client, err = a.Connect(ctx, true); err != nil {
		return err
	}
	defer func() { _ = o.Client.Close() }()
	if o.now != nil {
		return makeFaults(ctx, o)
	}
	end, err := a.relay(o)
	if err != nil {
		return err
	}
	defer end()
	o.In, o.Out = cmd.InOrStdin(), cmd.OutOrStdout()
	v, err := chaos.Run(ctx, o.Options)
	switch {
	case err != nil:
		return exitcode.With(1, err)
	case !v.OK:
		return exitcode.New(1, "")
	}
	return nil
}

// makeFaults makes faults without an app.
func makeFaults(ctx context.Context, o *chaosOptions) error {
	for _, kind := range o.now {
		err := error(nil)
		if kind == "handoff" {
			err = chaos.Handoff(ctx, o.Proxy, o.Args)
		} else {
			err = chaos.Kill(ctx, o.Client, kind)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// relay makes the relay in its directory, which has the same socket as that of a daemon.
func (a *app) relay(o *chaosOptions) (end func(), err error) {
	dirs, err := a.Dirs()
	if err != nil {
		return nil, err
	}
	if o.RelayDir, err = filepath.Abs(o.RelayDir); err != nil {
		return nil, err
	}
	there, err := config.Resolve(o.RelayDir, os.Getenv)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(there.CheckParents(), there.Ensure()); err != nil {
		return nil, err
	}
	ln, err := socket.Listen(there.Socket(config.APISocket(a.Proxy)), socket.Options{})
	if err != nil {
		return nil, fmt.Errorf("--relay: %w", err)
	}
	accept := func() (net.Conn, error) {
		conn, _, err := ln.Accept()
		if err != nil {
			return nil, err // must not return a nil *net.UnixConn in a net.Conn
		}
		return conn, nil
	}
	o.Relay = chaos.NewRelay(accept, func(ctx context.Context) (net.Conn, error) { return client.DialAPI(ctx, dirs, a.Proxy) })
	return func() {
		_ = ln.Close()
		o.Relay.Close()
	}, nil
}
