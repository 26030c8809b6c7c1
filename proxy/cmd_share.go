package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

func (a *app) shareCommand() *cobra.Command {
	ttl := time.Hour
	cmd := a.jsonFlag(a.oneSession("share ID", "Print a link by which a browser can look at a session", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			url, expires, err := c.Share(cmd.Context(), id, ttl)
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(cmd, map[string]any{"url": url, "expires_at": expires})
			}
			warn(fmt.Errorf("whoever has this link sees %s until %s, on this machine or through a tunnel to it", id, expires.Local().Format(time.DateTime)))
			_, err = fmt.Fprintln(cmd.OutOrStdout(), url)
			return err
		}))
	cmd.Long = "Print a link by which a browser can look at a session: its screen and its history,\n" +
		"not the other sessions, and without typing. It can be opened many times until it\n" +
		"expires, or the session ends; there is no other way to take it back than to remove\n" +
		"the proxy's token from the state directory, and to replace the proxy."
	cmd.Example = "  proxy share build\n  proxy share build --ttl 15m --json"
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if ttl < time.Millisecond {
			return usage(errors.New("--ttl must be longer than that"))
		}
		return nil
	}
	spanVar(cmd.Flags(), &ttl, "ttl", ttl, "how long it is good for, at most 720h")
	return cmd
}
