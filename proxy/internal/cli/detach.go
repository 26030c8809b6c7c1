package cli

import (
	"os"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
)

// detachCommand ends the attachments of other viewers. It needs no request of its own: it makes an
// exclusive attachment with Steal, which ends all other attachments that can send input, and
// detaches again.
func (a *App) detachCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "detach [ID]",
		Short: "Detach all terminals that are attached to a session; the session continues",
		Long: "Detach all terminals, pages and programs that are attached to a session and can send input. The session continues.\n" +
			"Read-only viewers stay attached. Without an ID, detach uses the session in which the command runs.",
		Example:           "  proxy detach build\n  proxy detach           # in a session: detach all its viewers",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.sessionIDs(alive),
		RunE: func(cmd *cobra.Command, args []string) error {
			isOwn := len(args) == 0
			if isOwn {
				args = append(args, os.Getenv("HOLDFAST_SESSION"))
			}
			if args[0] == "" {
				return exitcode.WrongUsagef("detach takes the ID of a session; in a terminal that is attached, %s detaches", front.DefaultDetachKey)
			}
			id, err := a.sessionID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				if isOwn {
					info, err := c.SessionInfo(cmd.Context(), id)
					if err != nil {
						return err
					}
					if !a.isItself(id, info.Instance) {
						return exitcode.WrongUsagef("this terminal is a session of another supervisor; name the session to detach")
					}
				}
				none := 0
				att, err := c.Attach(cmd.Context(), id, client.AttachOptions{Mode: protocol.ModeExclusive, Steal: true, Detach: true, History: &none})
				if err != nil {
					return tellExited(err)
				}
				return att.Detach()
			})
		},
	}
}
