package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/proxy/client"
)

func (a *App) startCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "start",
		Short:   "Start the proxy and the supervisor in the background if they do not run",
		Long:    "Start the proxy and the supervisor in the background if they do not run. new, run and web do so by themselves.",
		Example: "  proxy start",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithStarted(cmd.Context(), func(c *client.Client) error {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "proxy %d serves\n", c.ProxyPID())
				return err
			})
		},
	}
}
