package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/installed"
	"holdfast/shared/keeperstate"
	"holdfast/shared/pipe"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

func (a *App) statusCommand() *cobra.Command {
	return a.JSONFlag(&cobra.Command{
		Use:     "status",
		Short:   "Show both processes: pid, version, protocol, uptime, sessions, skew",
		Example: "  proxy status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				s, err := c.Status(cmd.Context())
				if err != nil {
					return err
				}
				if a.JSON {
					err = PrintJSON(cmd, s)
				} else if dirs, where := a.Dirs(); where != nil {
					err = where
				} else {
					err = printStatus(cmd.OutOrStdout(), s, keeperstate.CheckHeld(dirs.Runtime))
				}
				if err == nil && s.Supervisor == nil && !pipe.Here {
					a.answered() // otherwise the watch would print the same
					a.tellUnanswered(cmd.Context())
					err = exitcode.New(sysexits.Unavailable, "")
				}
				return err
			})
		},
	})
}

// printStatus prints the state of both processes. held is the reason why no supervisor is started,
// or nil.
func printStatus(out io.Writer, s *client.Status, held error) error {
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
	if s.Supervisor == nil && held != nil {
		_, err := fmt.Fprintln(out, "supervisor  none runs:", held)
		return err
	}
	if s.Supervisor == nil {
		fmt.Fprintln(out, "supervisor  cannot be reached; its sessions are unknown")
		return nil
	}
	line("supervisor", *s.Supervisor)
	fmt.Fprintln(out, "keeper     ", keeperText(s.Supervisor))
	if c := s.Supervisor.Cages; c != nil {
		fmt.Fprintln(out, "cages      ", cagesText(c))
	}
	if r := s.Supervisor.Recording; r != nil && r.Failing > 0 {
		fmt.Fprintf(out, "recordings  %s cannot be stored on disk: %s; %s doctor tells the next step\n", plain.Count(r.Failing, "session"), plain.Text(r.Error), installed.Name())
	}
	if r := s.Supervisor.Recording; r != nil && r.Sealed > 0 {
		fmt.Fprintf(out, "sealed      %s cannot be read without the key; %s doctor tells the next step\n", plain.Count(r.Sealed, "lost session"), installed.Name())
	}
	skew := "none"
	if s.Proxy.Version != s.Supervisor.Version {
		skew = "versions differ; they speak protocol " + agreed(s)
	}
	_, err := fmt.Fprintf(out, "sessions    %d running, %s, skew: %s\n", s.Supervisor.Sessions, plain.Count(s.Proxy.Clients, "client"), skew)
	return err
}

// cagesText describes whether sessions have control groups.
func cagesText(c *protocol.CagesStatus) string {
	if c.Dir == "" {
		return Named("none, so sessions have no limits; proxy doctor tells why")
	}
	text := "one for each session, with limits of " + cmp.Or(strings.Join(c.Controllers, ", "), "nothing")
	if len(c.Left) > 0 {
		text += fmt.Sprintf("; %d of ended sessions still have processes", len(c.Left))
	}
	return text
}

// keeperText describes the keeper, which holds the sessions if the supervisor dies.
func keeperText(s *protocol.ProcessStatus) string {
	k := s.Keeper
	if k == nil {
		return "none; the sessions would end with the supervisor"
	}
	text := fmt.Sprintf("pid %-8d holds %s; supervisor started %s", k.PID, plain.Count(k.Sessions, "session"), times(k.Starts))
	if k.Sessions < s.Sessions {
		text = fmt.Sprintf("pid %-8d holds only %d of %s; supervisor started %s", k.PID, k.Sessions, plain.Count(s.Sessions, "session"), times(k.Starts))
	}
	if k.Last != "" {
		text += ", the previous one ended: " + k.Last
	}
	if s.Upgrades > 0 {
		text += "; upgraded " + times(s.Upgrades)
	}
	if k.Lost > 0 {
		text += "; keepers lost: " + strconv.Itoa(k.Lost)
	}
	return text
}

// agreed returns the protocol version that both processes use.
func agreed(s *client.Status) string {
	v, err := protocol.Agree(s.Proxy.Protocol, s.Supervisor.Protocol)
	if err != nil {
		return "nothing in common"
	}
	return fmt.Sprint(v)
}
