package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
)

func (a *app) statusCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "status",
		Short: "Show both processes: pid, version, protocol, uptime, sessions, skew",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				s, err := c.Status(cmd.Context())
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(cmd, s)
				}
				return printStatus(cmd, s)
			})
		},
	})
}

func printStatus(cmd *cobra.Command, s *client.Status) error {
	out := cmd.OutOrStdout()
	line := func(name string, p protocol.ProcessStatus) {
		up := time.Duration(p.Uptime * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(out, "%-11s pid %-8d version %-14s protocol %-4s up %v\n", name, p.PID, p.Version, p.Protocol, up)
	}
	line("proxy", s.Proxy)
	if s.Web != "" {
		fmt.Fprintln(out, "web         http://"+s.Web)
	}
	if s.Supervisor == nil && pipe.Here {
		_, err := fmt.Fprintln(out, "supervisor  unsupported_os: there are no terminals on this system yet")
		return err
	}
	if s.Supervisor == nil {
		fmt.Fprintln(out, "supervisor  cannot be reached; nothing is known of its sessions")
		return nil
	}
	line("supervisor", *s.Supervisor)
	skew := "none"
	if s.Proxy.Version != s.Supervisor.Version {
		skew = "versions differ; they speak protocol " + agreed(s)
	}
	_, err := fmt.Fprintf(out, "sessions    %d running, %d clients, skew: %s\n", s.Supervisor.Sessions, s.Proxy.Clients, skew)
	return err
}

func agreed(s *client.Status) string {
	v, err := protocol.Agree(s.Proxy.Protocol, s.Supervisor.Protocol)
	if err != nil {
		return "nothing in common"
	}
	return fmt.Sprint(v)
}

func (a *app) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the running proxy; the supervisor and every session go on",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pipe.Here {
				return notHere("a stop", "proxy status says which process to end")
			}
			dirs, err := a.dirs()
			if err != nil {
				return err
			}
			pid, err := handoff.Stop(cmd.Context(), dirs.Socket(config.ControlSocket(a.proxy)))
			if nobodyListens(err) {
				return &exitError{exitUnavailable, "no proxy runs here"}
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "proxy %d stopped; the sessions go on\n", pid)
			return err
		},
	}
}
