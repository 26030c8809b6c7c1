package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/plain"
)

func (a *app) lsCommand() *cobra.Command {
	var originator string
	var wide bool
	var labels map[string]string
	cmd := a.jsonFlag(&cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the sessions",
		Example: "  proxy ls\n  proxy ls --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				list, err := c.ListBy(cmd.Context(), client.ListFilter{Originator: originator, Labels: labels})
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(cmd, append([]protocol.SessionInfo{}, list...))
				}
				if len(list) == 0 {
					a.tellElsewhere(cmd)
				}
				return printList(cmd.OutOrStdout(), list, wide)
			})
		},
	})
	cmd.Flags().StringVar(&originator, "originator", "", "list only sessions started by this `originator`")
	cmd.Flags().BoolVar(&wide, "wide", false, "print also memory, processes and processor time of each session that has a control group")
	cmd.Flags().StringToStringVar(&labels, "label", nil, "list only sessions with this label, `k=v`; may be repeated")
	cmd.Flags().Lookup("label").DefValue = "" // omits the default from the help text
	return cmd
}

// tellElsewhere prints other directories in which sessions of this user may be.
func (a *app) tellElsewhere(cmd *cobra.Command) {
	dirs, secret, err := a.dirsAndSecret()
	if err != nil {
		return // the list itself has succeeded
	}
	for _, p := range a.elsewhere(cmd.Context(), dirs, secret) {
		fmt.Fprintf(cmd.ErrOrStderr(), "proxy: %s in %s; see its sessions: %s\n", p.Runs, p.Dir, p.Command)
	}
}

// printList prints a table of sessions.
func printList(out io.Writer, list []protocol.SessionInfo, wide bool) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "no sessions; proxy new starts one")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	more := ""
	if wide {
		more = "MEMORY\tPIDS\tCPU\t"
	}
	fmt.Fprintln(w, "ID\tSTATE\tPID\tSIZE\tVIEWERS\tAGE\tIDLE\t"+more+"RUNS\tCOMMAND")
	for _, s := range list {
		if wide {
			memory, pids, cpu := useText(s.Cage)
			more = memory + "\t" + pids + "\t" + cpu + "\t"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\t%s%s\t%s\n", s.ID, stateText(s), s.PID, s.Size, s.Attachments,
			since(s.CreatedAt), since(s.LastIOAt), more, foregroundName(s), plain.Text(titleAndCommand(s)))
	}
	return w.Flush()
}

// stateText returns the state of a session for people.
func stateText(s protocol.SessionInfo) string {
	if s.Exit == nil {
		if s.Frozen {
			return string(s.State) + ", frozen"
		}
		if f := s.Foreground; f != nil && f.Stopped && s.State == protocol.StateRunning {
			return "stopped"
		}
		if s.Degraded {
			return string(s.State) + ", no screen"
		}
		return string(s.State)
	}
	if s.Exit.Signal != "" {
		return "exited " + s.Exit.Signal
	}
	return fmt.Sprintf("exited %d", s.Exit.ExitCode)
}

// foregroundName returns the name of the session's foreground process, or "-" if it is unknown.
func foregroundName(s protocol.SessionInfo) string {
	if s.Foreground == nil || s.Foreground.Name == "" {
		return "-"
	}
	return strings.ReplaceAll(plain.Text(s.Foreground.Name), " ", "_")
}

// titleAndCommand returns a session's command, preceded by the title that a user has given it.
func titleAndCommand(s protocol.SessionInfo) string {
	command := commandLine(s.Argv)
	if title := s.Labels[protocol.LabelTitle]; title != "" {
		return title + ": " + command
	}
	return command
}

// commandLine returns the command in at most 60 characters.
func commandLine(argv []string) string {
	line := strings.Join(argv, " ")
	if r := []rune(line); len(r) > 60 {
		line = string(r[:59]) + "…"
	}
	return line
}

// since returns the time since t in its largest unit.
func since(t time.Time) string {
	d := max(0, time.Since(t))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func (a *app) infoCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:               "info ID",
		Short:             "Show details of a session",
		Example:           "  proxy info build\n  proxy info build --json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.sessionIDs(anyState),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				info, err := c.SessionInfo(cmd.Context(), id)
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(cmd, info)
				}
				return printInfo(cmd.OutOrStdout(), info)
			})
		},
	})
}

// printInfo prints the details of a session.
func printInfo(out io.Writer, s *protocol.SessionInfo) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(w, "%s\t%v\n", name, value) }
	row("id", s.ID)
	row("instance", s.Instance)
	row("state", stateText(*s))
	row("pid", s.PID)
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
			row("stopped", fmt.Sprintf("its program was stopped; proxy kill %s --signal CONT continues it", s.ID))
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

// eventText describes an event on one line.
func eventText(e *client.Event) string {
	switch {
	case e.Exit != nil:
		how := fmt.Sprintf("code %d", e.Exit.ExitCode)
		if e.Exit.Signal != "" {
			how = e.Exit.Signal
		}
		return fmt.Sprintf("%d exited %s %s, %s", e.Seq, e.Exit.SessionID, how, e.Exit.Reason)
	case e.Session == nil:
		return fmt.Sprintf("%d %s %d", e.Seq, e.Event, e.Missed)
	case e.Event == protocol.EventResized:
		return fmt.Sprintf("%d %s %s %s", e.Seq, e.Event, e.Session.ID, e.Session.Size)
	case e.Event == protocol.EventTitle:
		return fmt.Sprintf("%d %s %s %s", e.Seq, e.Event, e.Session.ID, plain.Text(e.Session.Title))
	case e.Event == protocol.EventLabels:
		return fmt.Sprintf("%d %s %s %s", e.Seq, e.Event, e.Session.ID, plain.Text(e.Session.Labels[protocol.LabelTitle]))
	case e.Event == protocol.EventCwd:
		return fmt.Sprintf("%d %s %s %s", e.Seq, e.Event, e.Session.ID, plain.Text(e.Session.CurrentCwd))
	case e.Event == protocol.EventCommandStarted && e.Session.Command != nil:
		return fmt.Sprintf("%d %s %s %s", e.Seq, e.Event, e.Session.ID, plain.Text(e.Session.Command.Line))
	case e.Event == protocol.EventCommandFinished && e.Session.Command != nil:
		return fmt.Sprintf("%d %s %s %s", e.Seq, e.Event, e.Session.ID, commandText(e.Session.Command))
	case e.Notification != nil:
		text := strings.TrimSpace(e.Notification.Title + " " + e.Notification.Body)
		return fmt.Sprintf("%d %s %s %s", e.Seq, e.Event, e.Session.ID, plain.Text(text))
	}
	return fmt.Sprintf("%d %s %s", e.Seq, e.Event, e.Session.ID)
}
