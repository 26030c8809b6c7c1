package cli

import (
	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

func (a *App) thawCommand() *cobra.Command {
	cmd := a.oneSession("thaw ID", "Continue all programs of a frozen session", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			return c.Thaw(cmd.Context(), id)
		})
	cmd.Example = "  proxy thaw build"
	return cmd
}
