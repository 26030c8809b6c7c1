package cli

import (
	"encoding/base64"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

func (a *App) markCommand() *cobra.Command {
	cmd := a.JSONFlag(a.oneSession("mark ID", "Print the current position of a session, for wait --since", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			m, err := c.Mark(cmd.Context(), id)
			if err != nil {
				return err
			}
			return a.Print(cmd, m, func(out io.Writer) error {
				_, err := fmt.Fprintln(out, base64.StdEncoding.EncodeToString(m.Mark))
				return err
			})
		}))
	cmd.Example = "  mark=$(proxy mark build); proxy send build --enter 'make test'; proxy wait build --since \"$mark\" --text ok"
	return cmd
}
