package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/plain"
)

func (a *App) shareCommand() *cobra.Command {
	ttl := time.Hour
	cmd := a.JSONFlag(a.oneSession("share ID", "Print a link that shows a session in a browser", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			url, expires, err := c.Share(cmd.Context(), id, ttl)
			if err != nil {
				return err
			}
			if a.JSON {
				return PrintJSON(cmd, map[string]any{"url": url, "expires_at": expires})
			}
			where := "this machine"
			if a.Host != "" { // by ssh
				where = plain.Text(a.Host)
			}
			Warn("everybody who has this link sees %s until %s, on %s or through a tunnel to it", id, expires.Local().Format(time.DateTime), where)
			_, err = fmt.Fprintln(cmd.OutOrStdout(), url)
			return err
		}))
	cmd.Long = "Print a link that shows a session in a browser: its screen and its history, but no other sessions.\n" +
		"The viewer cannot send input. The link can be used many times until it expires or the session\n" +
		"ends. To revoke it earlier, remove the proxy's token from the state directory and replace the\n" +
		"proxy (--handoff); this revokes all links, ends the connections of their viewers, and signs out\n" +
		"the browsers of the web page.\n\n" +
		"A gate serves no links. For a host of a gate, run the command on the host itself."
	cmd.Example = "  proxy share build\n  proxy share build --ttl 15m --json"
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if ttl < time.Millisecond {
			return exitcode.WrongUsagef("--ttl must be at least 1ms")
		}
		return nil
	}
	SpanVar(cmd.Flags(), &ttl, "ttl", ttl, "the `time` after which the link expires, at most 720h")
	return cmd
}
