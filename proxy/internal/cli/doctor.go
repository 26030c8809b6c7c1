package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/doctor"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/serve"
	"holdfast/shared/config"
	"holdfast/shared/keep"
	"holdfast/shared/machine"
	"holdfast/shared/pipe"
	"holdfast/shared/plain"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
	"holdfast/shared/version"
)

func (a *app) doctorCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:     "doctor",
		Short:   "Find causes of failure of terminals, and say how to remove them",
		Example: "  proxy doctor\n  proxy doctor --json",
		Long: "Find causes of failure of terminals, and say how to remove them: directories, sockets and their locks,\n" +
			"settings, limits on PTYs and files, logouts, whether both processes run, answer and fit together, and whether the\n" +
			"gate of the settings and the agent of a host that has joined a gate are connected.\n" +
			"doctor changes nothing and starts nothing, except the policy's program, which it ends again.\n\n" +
			"Each finding is ok, a note, a warning or an error. Exit code: 0 if all findings are ok or notes,\n" +
			"1 if the worst one is a warning, 2 if it is an error.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pipe.Here {
				return exitcode.New(sysexits.Unavailable, "unsupported_os: there are no terminals on this system yet, so there is nothing to check")
			}
			found := a.diagnose(cmd.Context())
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			var err error
			if a.json {
				err = printJSON(cmd, found)
			} else {
				err = printFindings(cmd.OutOrStdout(), found)
			}
			if err != nil {
				return err
			}
			if code := doctor.Worst(found).ExitCode(); code != 0 {
				return exitcode.New(code, "")
			}
			return nil
		},
	})
}

// printFindings prints each finding on one line, and its fix on a second one.
func printFindings(out io.Writer, all []doctor.Finding) error {
	for _, f := range all {
		// A finding may have several lines, for example a mistake in the settings.
		fmt.Fprintf(out, "%-8s %-12s %s\n", f.Severity, f.Check, plain.Text(strings.ReplaceAll(f.Finding, "\n", "; ")))
		if f.Fix == "" {
			continue
		}
		if _, err := fmt.Fprintf(out, "%-8s %-12s fix: %s\n", "", "", plain.Text(f.Fix)); err != nil {
			return err
		}
	}
	return nil
}

// diagnose collects the facts and evaluates them. In contrast to other commands, it creates no
// directory.
func (a *app) diagnose(ctx context.Context) []doctor.Finding {
	dirs, err := config.Resolve(a.dir, os.Getenv)
	if err != nil {
		return []doctor.Finding{{Check: "directories", Severity: doctor.Error, Finding: err.Error(), Fix: "set HOME, --dir or HOLDFAST_DIR"}}
	}
	f, cfg := a.facts(dirs)
	f.Policy = serve.TryPolicy(ctx, dirs, a.proxy, cfg)
	return doctor.Run(ctx, f)
}

// facts returns all facts except those about the policy, and the settings if they can be read.
func (a *app) facts(dirs config.Dirs) (doctor.Facts, config.Config) {
	f := doctor.Facts{
		Dirs: dirs, Proxy: a.proxy, Version: version.String(), Env: os.Getenv,
		Ptmx: "/dev/ptmx", Files: machine.Files, Locked: socket.Locked,
		Listens: func(ctx context.Context, path string) error {
			nc, _, err := socket.Dial(ctx, path)
			if err != nil {
				return notRunning(err)
			}
			return nc.Close()
		},
		Output: func(ctx context.Context, name string, args ...string) (string, error) {
			out, err := exec.CommandContext(ctx, name, args...).Output()
			if err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			return string(out), nil
		},
	}
	if _, err := os.Stat("/proc/self/fd"); err == nil && runtime.GOOS == "linux" {
		f.Proc = "/proc"
	}
	cfg, err := config.Load(dirs, os.Getenv, nil)
	secret := ""
	if err == nil {
		secret, err = cfg.Secret()
	}
	f.Settings, f.Variables = err, config.UnknownVariables(os.Environ())
	_, f.Program = serve.SupervisorPath()
	if cfg.Gate != "" {
		f.Gate = func(ctx context.Context) ([]doctor.Host, error) { return askGate(ctx, cfg) }
	}
	f.Agent = func(ctx context.Context) (*doctor.Agent, error) { return askAgent(ctx, dirs) }
	f.Elsewhere = func(ctx context.Context) []doctor.Place { return a.elsewhere(ctx, dirs, secret) }
	f.Held = func() *keep.Held { return keep.ReadHeld(dirs.Runtime) }
	f.Supervisor = func(ctx context.Context) (*protocol.ProcessStatus, error) {
		s, err := askSupervisor(ctx, dirs, secret)
		return s, notRunning(err)
	}
	f.Serving = func(ctx context.Context, supervisor bool) (*doctor.ProxyStatus, error) {
		s, err := a.askProxy(ctx, f, supervisor)
		return s, notRunning(err)
	}
	return f, cfg
}

// notRunning converts the errors that prove that no process listens into doctor.ErrNotRunning. It
// returns every other error unchanged, because a process may run nevertheless.
func notRunning(err error) error {
	if socket.IsAbsent(err) {
		return doctor.ErrNotRunning
	}
	return err
}

// askGate asks the gate of the settings for its hosts.
func askGate(ctx context.Context, cfg config.Config) (hosts []doctor.Host, err error) {
	o, err := gateOptions(cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", doctor.ErrNotAsked, err)
	}
	list, err := client.Hosts(ctx, o)
	for _, h := range list {
		hosts = append(hosts, doctor.Host{Name: h.Name, IsReachable: h.IsReachable, Release: h.Release})
	}
	return hosts, late(ctx, err)
}

// askSupervisor asks the supervisor for its status.
func askSupervisor(ctx context.Context, dirs config.Dirs, secret string) (*protocol.ProcessStatus, error) {
	conn, err := dialSupervisor(ctx, dirs, secret, "proxy doctor")
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return conn.Status(ctx)
}

// askProxy asks the proxy for its status, if dialing it would create no directory. If no supervisor
// answers, it asks only for the pid, because a request for the status would make the proxy start a
// supervisor.
func (a *app) askProxy(ctx context.Context, f doctor.Facts, supervisor bool) (*doctor.ProxyStatus, error) {
	if _, err := os.Lstat(f.Dirs.Socket(config.APISocket(a.proxy))); errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if f.Settings != nil {
		return nil, fmt.Errorf("%w: the settings cannot be used", doctor.ErrNotAsked)
	}
	for _, dir := range []string{f.Dirs.Runtime, f.Dirs.State, f.Dirs.Config} {
		if err := socket.CheckDir(dir); err != nil {
			return nil, fmt.Errorf("%w: %v", doctor.ErrNotAsked, err)
		}
	}
	c, err := a.dial(ctx, nil)
	if err != nil {
		return nil, late(ctx, err)
	}
	defer func() { _ = c.Close() }()
	if !supervisor {
		return &doctor.ProxyStatus{ProcessStatus: protocol.ProcessStatus{PID: c.ProxyPID()}}, nil
	}
	s, err := c.Status(ctx)
	if err != nil {
		return nil, late(ctx, err)
	}
	return &doctor.ProxyStatus{ProcessStatus: s.Proxy, Linked: s.Supervisor != nil}, nil
}
