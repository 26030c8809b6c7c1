package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
)

func (a *App) stopCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the running proxy; the supervisor and all sessions continue",
		Long: "Stop the running proxy. The supervisor and all sessions continue, and a proxy that is started later finds them.\n\n" +
			"With --all, stop every proxy here and then, if no session runs, the supervisor and its keeper. The exit records of\n" +
			"ended sessions are lost. If sessions run, the supervisor and the sessions continue, and the exit code is 75.",
		Example: "  proxy stop\n  proxy stop --all   # stop all of Holdfast, unless a session runs",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pipe.Here {
				return exitcode.Unsupported("a stop", "proxy status says which process to end")
			}
			dirs, err := a.Dirs()
			if err != nil {
				return err
			}
			if all {
				return a.explainTimeout(cmd.Context(), stopAll(cmd.Context(), cmd.OutOrStdout(), dirs))
			}
			pid, err := handoff.Stop(cmd.Context(), dirs.Socket(config.ControlSocket(a.Proxy)))
			if socket.IsAbsent(err) {
				return exitcode.New(sysexits.Unavailable, "no proxy runs here")
			}
			if err != nil {
				return a.explainTimeout(cmd.Context(), err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "proxy %d stopped; the sessions continue\n", pid)
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "stop every proxy and, if no session runs, the supervisor and its keeper")
	return cmd
}

// stopAll stops every proxy of a directory, and then its supervisor unless a session runs. The
// proxies must end first, because each of them starts a supervisor if none runs.
func stopAll(ctx context.Context, out io.Writer, dirs config.Dirs) error {
	controls, err := filepath.Glob(filepath.Join(dirs.Runtime, "*"+config.ControlSocket("")))
	if err != nil {
		return err
	}
	ran := false
	for _, path := range controls {
		pid, err := handoff.Stop(ctx, path)
		if socket.IsAbsent(err) {
			continue
		}
		name := strings.TrimSuffix(filepath.Base(path), config.ControlSocket(""))
		if err != nil {
			return fmt.Errorf("proxy %s: %w", name, err)
		}
		ran = true
		fmt.Fprintf(out, "proxy %d (%s) stopped\n", pid, name)
	}
	pid, err := stopSupervisor(ctx, dirs)
	switch {
	case socket.IsAbsent(err) && !ran:
		return exitcode.New(sysexits.Unavailable, "nothing runs here")
	case socket.IsAbsent(err):
		return nil
	case protocol.CodeOf(err) == protocol.CodeSessionRunning:
		return exitcode.Newf(sysexits.TempFail, "supervisor %d continues: %s (supervisor stop --sessions=end)", pid, exitcode.Text(err))
	case err != nil:
		return fmt.Errorf("supervisor: %w", err)
	}
	_, err = fmt.Fprintf(out, "supervisor %d stopped\n", pid)
	return err
}

// stopSupervisor stops a supervisor that has no running session, and returns its pid, or 0 if the
// pid is unknown.
func stopSupervisor(ctx context.Context, dirs config.Dirs) (pid int, err error) {
	cfg, err := config.Load(dirs, os.Getenv, nil)
	if err != nil {
		return 0, err
	}
	secret, err := cfg.Secret()
	if err != nil {
		return 0, err
	}
	path := dirs.Socket(config.SupervisorSocket)
	was, absent := os.Lstat(path)
	conn, err := dialSupervisor(ctx, dirs, secret, "proxy stop")
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if status, err := conn.Status(ctx); err == nil {
		pid = status.PID
	}
	if _, err = conn.Call(ctx, wire.Shutdown{}); err != nil || absent != nil {
		return pid, late(ctx, err)
	}
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	return pid, socket.AwaitGone(ctx, path, was) // otherwise a command that follows could still find the supervisor
}
