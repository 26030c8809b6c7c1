package cli

import (
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
)

func (a *App) renameCommand() *cobra.Command {
	var title string
	cmd := a.oneSession("rename ID TITLE", "Set or remove a session's title", cobra.ExactArgs(2),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			_, err := c.Rename(cmd.Context(), id, title)
			return err
		})
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		if title = args[1]; len(title) > protocol.MaxTitle || !utf8.ValidString(title) {
			return exitcode.WrongUsagef("a title is text, at most %d bytes", protocol.MaxTitle)
		}
		return nil
	}
	cmd.Long = "Set the title of a session for all viewers. It is the label title. It takes precedence over the title that a program sets, and " +
		"a reopened session keeps it. The id does not change. An empty TITLE removes the title."
	cmd.Example = "  proxy rename build 'release 1.2'\n  proxy rename build ''"
	return cmd
}
