package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/installed"
	"holdfast/shared/plain"
)

func (a *App) whyCommand() *cobra.Command {
	cmd := a.JSONFlag(a.oneSession("why ID", "Show how and why a session ended, and which resources it used", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			info, err := c.SessionInfo(cmd.Context(), id)
			if err != nil {
				return err
			}
			return a.Print(cmd, postmortem{info.ID, info.Instance, info.State, info.PID, info.CreatedAt, info.Exit},
				func(out io.Writer) error { return printWhy(out, info, time.Now()) })
		}))
	cmd.Long = "Show how a session ended: its code or signal, the client that asked for the end, whether\n" +
		"memory ran out, its use of resources, its directory, and its last output. If the session\n" +
		"has not ended, why shows its state. Unknown facts are omitted; --json prints the exit record."
	cmd.Example = "  proxy why old\n  proxy why old --json"
	return cmd
}

// A postmortem is the output of --json: the exit record, and the state of a session that has none.
type postmortem struct {
	ID        protocol.SessionID `json:"id"`
	Instance  protocol.Instance  `json:"instance"`
	State     protocol.State     `json:"state"`
	PID       int                `json:"pid"`
	StartedAt time.Time          `json:"started_at"`
	*protocol.ExitRecord
}

// printWhy prints the end of a session for people.
func printWhy(out io.Writer, s *protocol.SessionInfo, now time.Time) error {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("%s (%s)", s.ID, plain.Text(commandLine(s.Argv)))
	e := s.Exit
	switch {
	case s.Lost != nil:
		sayLost(say, s)
		_, err := io.WriteString(out, b.String())
		return err
	case e == nil:
		say("%s since %s, for %s, as pid %d", s.State, s.CreatedAt.Format(time.RFC3339), formatDuration(now.Sub(s.CreatedAt)), s.PID)
		sayFrozen(say, s)
		_, err := io.WriteString(out, b.String())
		return err
	}
	say("ended %s %s, after %s", e.ExitedAt.Format(time.RFC3339), howEnded(e), formatDuration(e.ExitedAt.Sub(e.StartedAt)))
	say("%s", whoEnded(e))
	if len(e.Survivors) > 0 {
		say("could not be killed: pid %s", strings.Trim(fmt.Sprint(e.Survivors), "[]"))
	}
	switch e.OOM {
	case "":
	case protocol.OOMKernelLog:
		say("out of memory: the kernel's log says that it was killed for that")
	default: // including values that are newer than this program
		say("out of memory: its %s says that one was killed for that at the time", plain.Text(string(e.OOM)))
	}
	if u := e.Usage; u != (protocol.Usage{}) {
		memory := ""
		if u.MaxRSSBytes > 0 { // 0 means unknown
			memory = "; at most " + ByteSize(u.MaxRSSBytes) + " of memory"
		}
		say("took %s of processor time, %s of the kernel's%s", seconds(u.UserMS), seconds(u.SystemMS), memory)
	}
	if e.Cage != nil {
		sayCage(say, e.Cage)
	}
	if e.Cwd != "" {
		say("was in %s", plain.Text(e.Cwd))
	} else {
		say("was started in %s", plain.Text(s.Cwd))
	}
	sayLines(say, e.LastLines)
	_, err := io.WriteString(out, b.String())
	return err
}

// sayFrozen prints whether a session is frozen, because it looks like one that hangs.
func sayFrozen(say func(string, ...any), s *protocol.SessionInfo) {
	if s.Frozen {
		say("frozen: %s thaw %s lets its programs continue", installed.Name(), s.ID)
	}
}

// sayLost prints how long a session lived that the machine has ended.
func sayLost(say func(string, ...any), s *protocol.SessionInfo) {
	say("lost with the machine, after %s or more", formatDuration(s.Lost.SeenAt.Sub(s.CreatedAt)))
	say("stored last %s, up to offset %d of its output", s.Lost.SeenAt.Format(time.RFC3339), s.Lost.Offset)
	if s.Lost.Cwd != "" {
		say("was in %s", plain.Text(s.Lost.Cwd))
	}
	say("%s revive %s starts it again below its last screen", installed.Name(), s.ID)
}

// sayLines prints the session's last lines.
func sayLines(say func(string, ...any), lines []string) {
	if len(lines) > 0 {
		say("last lines:")
	}
	for _, l := range lines {
		say("  %s", plain.Text(l))
	}
}

// whoEnded describes which client asked for the end, and why.
func whoEnded(e *protocol.ExitRecord) string {
	by := ""
	if e.EndedBy != "" {
		by = " by " + plain.Text(e.EndedBy)
	}
	if e.EndedByUser != "" {
		by += " for the user " + plain.Text(e.EndedByUser)
	}
	switch {
	case e.Outcome != protocol.OutcomeNatural:
		text := "asked for" + by + " (" + plain.Text(string(e.Reason)) + ")"
		if e.Outcome == protocol.OutcomeHard {
			text += "; it did not end when asked, and was killed"
		}
		return text
	case by != "":
		return "the signal was sent" + by
	case e.Signal != "":
		return "no client asked for it: the signal came from the program itself or from outside"
	}
	return "no client asked for it: the program ended by itself"
}

// sayCage prints the resources that all programs of a session used, and the limits that they
// reached.
func sayCage(say func(string, ...any), c *protocol.Cage) {
	var parts []string
	if c.MemoryPeakBytes > 0 {
		parts = append(parts, "at most "+ByteSize(c.MemoryPeakBytes)+" of memory")
	}
	if c.PIDsPeak > 0 {
		parts = append(parts, fmt.Sprintf("at most %d processes and threads", c.PIDsPeak))
	}
	parts = append(parts, fmt.Sprintf("%s of processor time, %s of the kernel's", seconds(c.UserMS), seconds(c.SystemMS)))
	say("all of it used %s", strings.Join(parts, ", "))
	if text := c.Limits.String(); text != "" {
		say("its limits were %s", text)
	}
	if c.OOMKills > 0 {
		where := "of the machine"
		if c.OOMs > 0 {
			where = "at its limit"
			if c.Limits.MemoryMax != nil {
				where += " of " + protocol.FormatBytes(*c.Limits.MemoryMax)
			}
		}
		text := fmt.Sprintf("memory ran out %s: the kernel killed %s", where, processes(c.OOMKills))
		if len(c.OOMKilled) > 0 {
			text += ", " + plain.Text(strings.Join(c.OOMKilled, ", "))
		}
		say("%s", text)
	}
	if c.PIDsDenied > 0 {
		text := "it ran out of processes"
		if c.Limits.PIDsMax != nil {
			text += fmt.Sprintf(" at its limit of %d", *c.Limits.PIDsMax)
		}
		say("%s: %s could not be started", text, processes(c.PIDsDenied))
	}
}

func processes(n uint64) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
