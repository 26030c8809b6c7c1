package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

func (a *app) awayCommand() *cobra.Command {
	lines := 10
	cmd := a.jsonFlag(a.oneSession("away ID", "Say what has happened in a session since its last viewer left", cobra.ExactArgs(1),
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
				h, err := lastLines(ctx, c, id, lines+info.Size.Rows) // a screen may end in blank ones
				if err != nil {
					return err
				}
				r.news(h, lines)
			}
			if a.json {
				return printJSON(cmd, r)
			}
			return r.print(cmd.OutOrStdout(), info, time.Now())
		}))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if lines < 0 {
			return usage(fmt.Errorf("--lines is not negative, it is %d", lines))
		}
		return nil
	}
	cmd.Long = "Say what has happened in a session since its last viewer left: the commands that have\n" +
		"ended, where its shell tells of them (new --shell-integration), what it has to say, how\n" +
		"much it printed, its last new lines, and how it has ended. Viewers that could not type do\n" +
		"not count. While somebody looks, it is what happened before."
	cmd.Example = "  proxy away build\n  proxy away build --json"
	cmd.Flags().IntVar(&lines, "lines", lines, "at most so many new `lines`, the last; 0 is none")
	return cmd
}

// An absence is what has happened in one, and what has become of the session.
type absence struct {
	ID    protocol.SessionID `json:"id"`
	State protocol.State     `json:"state"`
	*protocol.AwayInfo
	Lines []string             `json:"lines"` // the last new ones
	Exit  *protocol.ExitRecord `json:"exit,omitempty"`
}

// news takes the last n of the lines that were not whole when the last viewer left.
func (r *absence) news(h *protocol.HistoryContent, n int) {
	all := dropBlank(h.Lines)
	for _, l := range all[max(0, len(all)-n):] {
		if r.Left != nil && l.Line < r.Left.Line {
			continue
		}
		var b strings.Builder
		for _, s := range l.Spans {
			b.WriteString(s.Text)
		}
		r.Lines = append(r.Lines, b.String())
	}
}

func (r *absence) print(out io.Writer, s *protocol.SessionInfo, now time.Time) error {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("%s (%s)", r.ID, printable(commandLine(s.Argv)))
	switch {
	case r.Left == nil:
		say("nobody has looked since it was started, %s ago", lasted(now.Sub(s.CreatedAt)))
	case r.BackAt.IsZero():
		say("nobody looks since %s, for %s", r.Left.At.Format(time.RFC3339), lasted(now.Sub(r.Left.At)))
	default:
		say("nobody looked from %s on, for %s; somebody is back since then", r.Left.At.Format(time.RFC3339), lasted(r.BackAt.Sub(r.Left.At)))
	}
	if e := r.Exit; e != nil {
		say("ended %s %s, after %s", e.ExitedAt.Format(time.RFC3339), howEnded(e), lasted(e.ExitedAt.Sub(e.StartedAt)))
	} else {
		say("%s", stateNow(s))
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
		say("told: %s", printable(strings.TrimSpace(n.Title+" "+n.Body)))
	}
	if r.Printed == 0 {
		say("printed nothing")
	} else if r.Printed < 1<<20 {
		say("printed %d bytes", r.Printed)
	} else {
		say("printed %s", byteSize(r.Printed))
	}
	sayLines(say, r.Lines)
	_, err := io.WriteString(out, b.String())
	return err
}

// stateNow says what a session that has not ended does.
func stateNow(s *protocol.SessionInfo) string {
	switch c := s.Command; {
	case c == nil:
		return string(s.State)
	case c.Prompt:
		return string(s.State) + ", at its prompt"
	case !c.FinishedAt.IsZero() || c.Line == "":
		return string(s.State)
	default:
		return string(s.State) + ": " + printable(c.Line)
	}
}

// commandText says what a shell's command came to.
func commandText(c *protocol.CommandInfo) string {
	how := "ended"
	if c.ExitCode != nil {
		how = fmt.Sprintf("code %d", *c.ExitCode)
	}
	if !c.StartedAt.IsZero() && !c.FinishedAt.IsZero() {
		how += " after " + lasted(c.FinishedAt.Sub(c.StartedAt))
	}
	if c.Line == "" {
		return how
	}
	return how + ": " + printable(c.Line)
}
