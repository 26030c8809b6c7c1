package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/plain"
)

func (a *App) awayCommand() *cobra.Command {
	lines := 10
	cmd := a.JSONFlag(a.oneSession("away ID", "Show what has happened in a session since its last viewer detached", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			ctx := cmd.Context()
			away, err := c.Away(ctx, id)
			if err != nil {
				return err
			}
			info, err := c.SessionInfo(ctx, id)
			if err != nil {
				return err
			}
			r := &absence{ID: info.ID, State: info.State, AwayInfo: away, Exit: info.Exit, Lines: []string{}}
			if lines > 0 && away.Printed > 0 {
				h, err := lastLines(ctx, c, id, lines+info.Size.Rows) // the screen may end in blank lines
				if err != nil {
					return err
				}
				r.addLines(h, lines)
			}
			return a.Print(cmd, r, func(out io.Writer) error { return r.print(out, info, time.Now()) })
		}))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if lines < 0 {
			return exitcode.WrongUsagef("--lines is %d: it must not be negative", lines)
		}
		return nil
	}
	cmd.Long = "Show what has happened in a session since its last viewer detached: the commands that\n" +
		"have ended (if the shell reports them, see new --shell-integration), its notifications, how\n" +
		"much it printed, its last new lines, and how it ended. Viewers that cannot send input do\n" +
		"not count. While a viewer is attached, away shows what happened before it attached."
	cmd.Example = "  proxy away build\n  proxy away build --json"
	cmd.Flags().IntVar(&lines, "lines", lines, "show at most so many of the last new `lines`; 0 shows none")
	return cmd
}

// An absence is the output of away: the events in the session, and its state.
type absence struct {
	ID    protocol.SessionID `json:"id"`
	State protocol.State     `json:"state"`
	*protocol.AwayInfo
	Lines []string             `json:"lines"` // the last new lines
	Exit  *protocol.ExitRecord `json:"exit,omitempty"`
}

// addLines stores the last n lines of h, without those that were complete when the last viewer
// detached.
func (r *absence) addLines(h *protocol.HistoryContent, n int) {
	all := dropBlank(h.Lines)
	for _, l := range all[max(0, len(all)-n):] {
		if r.Left == nil || l.Line >= r.Left.Line {
			r.Lines = append(r.Lines, l.Text())
		}
	}
}

// print prints the absence as text.
func (r *absence) print(out io.Writer, s *protocol.SessionInfo, now time.Time) error {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("%s (%s)", r.ID, plain.Text(commandLine(s.Argv)))
	switch {
	case r.Left == nil:
		say("no viewer has attached since the start, %s ago", formatDuration(now.Sub(s.CreatedAt)))
	case r.BackAt.IsZero():
		say("no viewer is attached since %s, for %s", r.Left.At.Format(time.RFC3339), formatDuration(now.Sub(r.Left.At)))
	default:
		say("no viewer was attached from %s on, for %s; now there is one again", r.Left.At.Format(time.RFC3339), formatDuration(r.BackAt.Sub(r.Left.At)))
	}
	if e := r.Exit; e != nil {
		say("ended %s %s, after %s", e.ExitedAt.Format(time.RFC3339), howEnded(e), formatDuration(e.ExitedAt.Sub(e.StartedAt)))
	} else {
		say("%s", stateNow(s))
		sayFrozen(say, s)
	}
	if len(r.Commands) > 0 {
		say("commands that have ended:")
		if more := r.Ended - uint64(len(r.Commands)); r.Ended > uint64(len(r.Commands)) {
			say("  %d before these", more)
		}
		for _, c := range r.Commands {
			say("  %s", commandText(&c))
		}
	}
	if r.Bells > 0 {
		say("rang %s", times(r.Bells))
	}
	for _, n := range r.Notifications {
		say("told: %s", plain.Text(strings.TrimSpace(n.Title+" "+n.Body)))
	}
	if r.Printed == 0 {
		say("printed nothing")
	} else if r.Printed < 1<<20 {
		say("printed %s", plain.Count(r.Printed, "byte"))
	} else {
		say("printed %s", ByteSize(r.Printed))
	}
	sayLines(say, r.Lines)
	_, err := io.WriteString(out, b.String())
	return err
}

// stateNow returns what a session that has not ended does now.
func stateNow(s *protocol.SessionInfo) string {
	switch c := s.Command; {
	case c == nil:
		return string(s.State)
	case c.Prompt:
		return string(s.State) + ", at its prompt"
	case !c.FinishedAt.IsZero() || c.Line == "":
		return string(s.State)
	default:
		return string(s.State) + ": " + plain.Text(c.Line)
	}
}

// commandText describes a command of a shell, and how it ended.
func commandText(c *protocol.CommandInfo) string {
	how := "ended"
	if c.ExitCode != nil {
		how = fmt.Sprintf("code %d", *c.ExitCode)
	}
	if !c.StartedAt.IsZero() && !c.FinishedAt.IsZero() {
		how += " after " + formatDuration(c.FinishedAt.Sub(c.StartedAt))
	}
	if c.Line == "" {
		return how
	}
	return how + ": " + plain.Text(c.Line)
}
