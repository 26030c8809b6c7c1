package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
)

func (a *App) limitCommand() *cobra.Command {
	var limits *protocol.Limits
	cmd := a.oneSession("limit ID", "Change how much memory, processor time and how many processes a session may use", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			info, err := c.Limit(cmd.Context(), id, *limits)
			if err != nil {
				return err
			}
			text := "none"
			if info.Cage != nil && info.Cage.Limits.String() != "" {
				text = info.Cage.Limits.String()
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "limits: %s\n", text)
			return err
		})
	limits = limitFlags(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if limits.IsZero() {
			return exitcode.WrongUsagef("no limit to change: give a limit, such as --memory-max 512M")
		}
		return nil
	}
	cmd.Long = "Change limits of a running session. Limits that are not given stay as they are. A limit holds for\n" +
		"all programs of the session together. Limits need a control group for the session; proxy doctor tells\n" +
		"whether sessions have one. If the new memory limit is lower than the session's use of memory, the\n" +
		"kernel may kill one of its programs. proxy new and proxy run have the same flags."
	cmd.Example = "  proxy limit build --memory-max 2G --cpu-max 150%\n  proxy limit build --pids-max none"
	return cmd
}
