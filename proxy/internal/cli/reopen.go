package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
)

// reopenSize returns the size for a session that is reopened in this terminal: the terminal's size,
// or 0 and 0 if the session has a fixed size.
func reopenSize(info *protocol.SessionInfo) (cols, rows int) {
	if info.SizePolicy == protocol.SizeFixed {
		return 0, 0
	}
	size := front.OwnSize()
	return size.Cols, size.Rows
}

func (a *App) reopenCommand() *cobra.Command {
	o := &attachOptions{}
	var detach bool
	early := earlyTime
	cmd := &cobra.Command{
		Use:               "reopen ID [-- argv...]",
		Short:             "Start an exited session again under its id: same command, directory, environment and labels",
		Example:           "  proxy reopen old               # as it was\n  proxy reopen old -- make -k    # another command",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.sessionIDs(exited),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n != 1 && (n >= 0 || len(args) > 1) {
				return exitcode.WrongUsagef("reopen takes one ID; the command must follow --")
			}
			id, err := a.sessionID(cmd.Context(), args[0])
			if err := errors.Join(err, a.checkAttach(o), checkEarlyExit(early)); err != nil {
				return err
			}
			ctx := cmd.Context()
			return a.withClient(ctx, func(c *client.Client) error {
				if err := a.notItself(ctx, c, id); err != nil {
					return err
				}
				o.fresh, o.reopened, o.early = !detach, true, early
				change := protocol.RespawnSpec{Argv: args[1:]}
				if o.fresh {
					info, err := c.SessionInfo(ctx, id)
					if err != nil {
						return err
					}
					change.Cols, change.Rows = reopenSize(info)
				}
				none := time.Duration(0)
				s, err := c.Reopen(ctx, id, change, &none) // this command checks for an early exit, as in new
				if err != nil {
					return err
				}
				if detach {
					return a.detached(cmd, c, s, early, early)
				}
				return a.attachTo(ctx, c, &s.Session, o)
			})
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not attach; print the id")
	SpanVar(cmd.Flags(), &early, "early-exit", early, "restore the old exit record if the child fails within this `time`; 0 does not wait")
	o.flags(a, cmd)
	return cmd
}
