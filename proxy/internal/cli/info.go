package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/installed"
	"holdfast/shared/plain"
)

func (a *App) infoCommand() *cobra.Command {
	cmd := a.JSONFlag(a.oneSession("info ID", "Show details of a session", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			info, err := c.SessionInfo(cmd.Context(), id)
			if err != nil {
				return err
			}
			return a.Print(cmd, info, func(out io.Writer) error { return printInfo(out, info) })
		}))
	cmd.Example = "  proxy info build\n  proxy info build --json"
	return cmd
}

// printInfo prints the details of a session.
func printInfo(out io.Writer, s *protocol.SessionInfo) error {
	w := plain.NewTable(out)
	row := func(name string, value any) { fmt.Fprintf(w, "%s\t%v\n", name, value) }
	row("id", s.ID)
	row("instance", s.Instance)
	row("state", stateText(*s))
	row("pid", pidText(s.PID))
	row("size", strings.TrimSpace(s.Size.String()+" "+string(s.SizePolicy)))
	row("command", plain.Text(strings.Join(s.Argv, " ")))
	row("cwd", plain.Text(s.Cwd))
	if s.CurrentCwd != "" && s.CurrentCwd != s.Cwd {
		row("now in", plain.Text(s.CurrentCwd))
	}
	if f := s.Foreground; f != nil {
		row("runs", fmt.Sprintf("%s, pid %d", foregroundName(*s), f.PID))
		if s.CurrentCwd == "" && f.Cwd != "" && f.Cwd != s.Cwd {
			row("now in", plain.Text(f.Cwd))
		}
		if f.Stopped {
			row("stopped", fmt.Sprintf("its program was stopped; %s kill %s --signal CONT continues it", installed.Name(), s.ID))
		}
	}
	if s.Title != "" {
		row("title", plain.Text(s.Title))
	}
	if c := s.Command; c != nil && s.Exit == nil {
		row("shell", stateNow(s))
		if !c.FinishedAt.IsZero() {
			row("last ran", commandText(c))
		}
	}
	if l := s.Lost; l != nil {
		row("lost", fmt.Sprintf("with the machine; stored last %s, up to byte %d of the output; was in %s; start it again: %s revive %s",
			l.SeenAt.Format(time.RFC3339), l.Offset, plain.Text(l.Cwd), installed.Name(), s.ID))
	}
	row("created", s.CreatedAt.Format(time.RFC3339))
	row("last i/o", s.LastIOAt.Format(time.RFC3339))
	row("output", fmt.Sprintf("%d bytes, kept from %d on", s.OutputOffset, s.RingStart))
	row("viewers", s.Attachments)
	for _, v := range s.Viewers {
		row("viewer", strings.TrimSpace(fmt.Sprintf("%s, %s since %s", cmp.Or(plain.Text(v.Client), "unnamed"), v.Mode, v.Since.Format(time.RFC3339))))
	}
	if c := s.Cage; c != nil && s.Exit == nil {
		memory, pids, cpu := useText(c)
		row("uses", fmt.Sprintf("%s of memory, %s processes and threads, %s of processor time", memory, pids, cpu))
		if text := c.Limits.String(); text != "" {
			row("limits", text)
		}
	}
	if s.Originator != "" {
		row("originator", plain.Text(s.Originator))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		row("label "+plain.Text(k), plain.Text(s.Labels[k]))
	}
	if e := s.Exit; e != nil {
		row("ended", fmt.Sprintf("%s, %s, %s", e.ExitedAt.Format(time.RFC3339), e.Outcome, e.Reason))
		for _, l := range e.LastLines {
			row("last line", plain.Text(l))
		}
	}
	return w.Flush()
}
