package cli

import (
	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

func (a *App) freezeCommand() *cobra.Command {
	cmd := a.oneSession("freeze ID", "Stop all programs of a session until it is thawed", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			return c.Freeze(cmd.Context(), id)
		})
	cmd.Long = "Stop all programs of a session, even those that have left its terminal, without a signal\n" +
		"that they would notice. They use no processor time until proxy thaw. Input that arrives\n" +
		"meanwhile is kept for them. Freezing needs a control group (see proxy doctor)."
	cmd.Example = "  proxy freeze build"
	return cmd
}
