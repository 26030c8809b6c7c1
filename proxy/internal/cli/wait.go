package cli

import (
	"encoding/base64"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/sysexits"
)

func (a *App) waitCommand() *cobra.Command {
	o := &awaitOptions{}
	var exit bool
	var since string
	cmd := a.JSONFlag(a.oneSession("wait ID", "Wait for a session's end or for its output", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			if !o.asked() {
				return a.waitForExit(cmd, c, id, o.timeout)
			}
			mark, err := parseMark(since)
			if err != nil {
				return err
			}
			return a.await(cmd, c, o, id, mark)
		}))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(cmd.Flags(), ""); err != nil {
			return err
		}
		if exit && o.asked() {
			return exitcode.WrongUsagef("give only one of --exit, --text, --prompt and --idle")
		}
		if since != "" && !o.asked() {
			return exitcode.WrongUsagef("--since needs --text, --prompt or --idle")
		}
		_, err := parseMark(since)
		return err
	}
	cmd.Long = "Wait for a session's end and exit with its code, or wait for output.\n\n" +
		"--text waits for a line on the screen, or one that scrolls off the screen meanwhile. Wrapped lines are\n" +
		"joined, and blanks at the end of a line are ignored. --since with the output of proxy mark considers only\n" +
		"changes after that mark; proxy send --wait-text does the same. If the session ends first, the exit code\n" +
		"is that of the session, or 1 if that is 0."
	cmd.Example = "  proxy wait build --timeout 10m\n" +
		"  proxy wait server --text 'listening on port (\\d+)' --timeout 30s\n" +
		"  mark=$(proxy mark build); proxy send build --enter make; proxy wait build --since \"$mark\" --prompt"
	o.flags(cmd, "")
	cmd.Flags().BoolVar(&exit, "exit", false, "wait for the session's end (the default)")
	cmd.Flags().StringVar(&since, "since", "", "consider only changes after a `mark`")
	return cmd
}

// waitForExit waits for the session's end and exits with its code.
func (a *App) waitForExit(cmd *cobra.Command, c *client.Client, id protocol.SessionID, timeout time.Duration) error {
	exit, err := c.Wait(cmd.Context(), id, timeout)
	if err != nil {
		return err
	}
	if a.JSON {
		if err := PrintJSON(cmd, exit); err != nil {
			return err
		}
	}
	if exit.Reason == protocol.ReasonLost {
		return exitcode.Newf(sysexits.Software, "session %s was lost with the machine, so its exit code is not known; proxy revive %s starts it again", id, id)
	}
	return childExit(exit.ExitCode)
}

// parseMark parses the output of mark; "" means no mark.
func parseMark(s string) ([]byte, error) {
	mark, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(mark) > protocol.MaxMark {
		return nil, exitcode.WrongUsagef("--since must be the output of proxy mark")
	}
	return mark, nil
}
