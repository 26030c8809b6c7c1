package cli

import (
	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
)

func (a *App) resizeCommand() *cobra.Command {
	var size protocol.Size // zero if no size was given
	var policy protocol.SizePolicy
	cmd := a.oneSession("resize ID [COLSxROWS]", "Change a session's size, or its size policy", cobra.RangeArgs(1, 2),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			ctx := cmd.Context()
			if policy == protocol.SizeFixed { // the supervisor sets policy and size in one step
				return c.SetSizePolicy(ctx, id, policy, size.Cols, size.Rows)
			}
			if policy != "" {
				if err := c.SetSizePolicy(ctx, id, policy, 0, 0); err != nil {
					return err
				}
			}
			if size == (protocol.Size{}) {
				return nil
			}
			return c.Resize(ctx, id, size.Cols, size.Rows)
		})
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if len(args) < 2 && policy == "" {
			return exitcode.WrongUsagef("nothing to change: give COLSxROWS or --policy")
		}
		if len(args) > 1 {
			size, err = parseSize(args[1])
		}
		return err
	}
	cmd.Example = "  proxy resize build 120x40            # until its policy changes it again\n  proxy resize build --policy largest"
	cmd.Long = "Change a session's size once, until its size policy changes it again; or change the policy.\n\n" +
		"latest    the size of the viewer that sent input last\n" +
		"owner     the size of the viewer that attached first\n" +
		"smallest  the smallest size of all viewers\n" +
		"largest   the largest size of all viewers\n" +
		"fixed     COLSxROWS, or the current size; no viewer changes it\n\n" +
		"No viewer's window makes a session smaller than " + protocol.Size{Cols: protocol.SmallestCols, Rows: protocol.SmallestRows}.String() + "."
	sizePolicyVar(cmd, &policy, "policy", "the `policy` from now on: latest, owner, smallest, largest or fixed")
	return cmd
}
