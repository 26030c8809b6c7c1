package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
)

func (a *App) killCommand() *cobra.Command {
	var grace time.Duration
	var signal string
	var forget, all bool
	only := func(cmd *cobra.Command) bool { return signal != "" && !cmd.Flags().Changed("grace") && !all }
	kill := func(cmd *cobra.Command, c *client.Client, id protocol.SessionID) error {
		ctx := cmd.Context()
		if only(cmd) {
			return c.Signal(ctx, id, signal)
		}
		end := client.End{SoftSignal: signal, All: all}
		if cmd.Flags().Changed("grace") {
			end.Grace = &grace
		}
		err := c.Terminate(ctx, id, end)
		if errors.Is(err, protocol.ErrSessionExited) && forget {
			return c.Forget(ctx, id)
		}
		if err != nil {
			return err
		}
		if _, err := c.Wait(ctx, id, -1); err != nil {
			return err
		}
		if forget {
			return c.Forget(ctx, id)
		}
		return nil
	}
	cmd := a.manySessions("kill ID...", "End sessions, or only send them a signal", kill)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if only(cmd) && forget {
			return exitcode.WrongUsagef("--signal alone does not end a session, so --forget needs --grace as well")
		}
		return nil
	}
	cmd.Example = "  proxy kill build --signal INT   # as ctrl-c does\n  proxy kill build --grace 2s\n  proxy kill build --all          # and its daemons"
	cmd.Long = "End a session: send SIGHUP to all of its process groups, wait for the grace time, then send SIGKILL.\n\n" +
		"With --signal alone, kill only sends that signal. With --signal and --grace, it sends that signal\n" +
		"instead of SIGHUP.\n\n" +
		"With --all it ends every process that the session has started, even daemons that have left its\n" +
		"terminal, and even after the session has exited. That needs a control group for the session;\n" +
		"proxy doctor tells whether sessions have one."
	SpanVar(cmd.Flags(), &grace, "grace", 250*time.Millisecond, "time from the first signal to SIGKILL")
	cmd.Flags().StringVar(&signal, "signal", "", "the `signal`, such as INT, SIGUSR1 or 10")
	cmd.Flags().BoolVar(&all, "all", false, "end every process that it has started, even those that have left its terminal")
	cmd.Flags().BoolVar(&forget, "forget", false, "forget the exit record as well")
	return cmd
}
