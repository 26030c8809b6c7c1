package cli

import (
	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

func (a *App) clearCommand() *cobra.Command {
	var screen bool
	cmd := a.oneSession("clear ID", "Forget the lines above a session's screen", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			return c.Clear(cmd.Context(), id, screen)
		})
	cmd.Long = "Forget the lines above a session's screen, for all viewers: history, search and screen do not have them any more.\n\n" +
		"The past of the session begins anew: screen --at, play and export do not have earlier output either."
	cmd.Example = "  proxy clear build\n  proxy clear build --screen   # the screen as well, except the cursor's row"
	cmd.Flags().BoolVar(&screen, "screen", false, "clear the screen as well, except the cursor's row, which moves to the top")
	return cmd
}
