package mcp

import (
	"fmt"
	"strings"
	"time"

	"holdfast/protocol"
)

// shortState describes the state of a session for a list.
func shortState(s *protocol.SessionInfo, now time.Time) string {
	text := fullState(s, nil, now)
	if title := s.Title; title != "" {
		text += "; title " + encoded(title)
	}
	return text + "; started as " + encoded(strings.Join(s.Argv, " "))
}

// fullState describes the state of a session, and the evidence for it. The state is one that the system or the shell has
// reported. A program that waits for the terminal and for something else at once, and one that computes without output,
// cannot be told apart from outside. For such programs fullState says “may”, and names the evidence: how long the
// session has been silent, the mode of the terminal for input, and the text before the cursor. content may be nil.
func fullState(s *protocol.SessionInfo, content *protocol.ScreenContent, now time.Time) string {
	switch {
	case s.State == protocol.StateLost:
		return "lost with the machine"
	case s.Exit != nil:
		return exitState(s.Exit)
	case s.Frozen:
		return "frozen: all its processes are stopped until it is thawed"
	case s.Program != nil && isNewer(s.Program, s.Command):
		return programState(s.Program, now)
	case s.Command != nil:
		return commandState(s.Command, now)
	}
	program := ""
	if f := s.Foreground; f != nil && f.PID != s.PID && f.Name != "" { // the caller knows which program it has started
		program = " " + encoded(f.Name)
	}
	switch f := s.Foreground; {
	case f != nil && f.Stopped:
		return "stopped" + program + ": it continues after SIGCONT"
	case f != nil && f.Reads:
		return "needs input" + hiddenText(content) + ": it reads the terminal" + behindCursor(content)
	}
	silence := now.Sub(s.LastIOAt)
	text := "running" + program
	if silence >= protocol.OutputIdleMS*time.Millisecond {
		text += ", silent for " + rounded(silence)
	}
	question := lineBeforeCursor(content)
	switch {
	case content == nil:
	case content.Input == protocol.InputHidden:
		text += "; may need input, for example a password: the terminal hides it" + behindCursor(content)
	case content.Alternate && content.Input == protocol.InputKeys:
		text += "; may need input: it fills the screen and gets each key"
	case question != "" && endsAsQuestion(question):
		text += "; may need input" + behindCursor(content)
	case silence >= protocol.OutputIdleMS*time.Millisecond:
		text += "; may be idle or compute"
	}
	return text
}

// hiddenText tells that the terminal does not show the input.
func hiddenText(content *protocol.ScreenContent) string {
	if content == nil || content.Input != protocol.InputHidden {
		return ""
	}
	return " that the terminal hides, as a password"
}

// lineBeforeCursor returns the text before the cursor, or "" if the cursor is hidden or there is none.
func lineBeforeCursor(content *protocol.ScreenContent) string {
	if content == nil || content.Cursor.Hidden || content.Cursor.Y >= len(content.Lines) {
		return ""
	}
	return beforeCursor(content.Lines[content.Cursor.Y], content.Cursor.X)
}

// behindCursor names the text before the cursor, if there is one.
func behindCursor(content *protocol.ScreenContent) string {
	before := lineBeforeCursor(content)
	if before == "" {
		return ""
	}
	return ", cursor behind " + encoded(before)
}

// bellText tells how often a program has rung the bell since the last answer.
func bellText(count int) string {
	switch {
	case count <= 0:
		return ""
	case count == 1:
		return "; it has rung the bell"
	}
	return fmt.Sprintf("; it has rung the bell %d times", count)
}

func exitState(e *protocol.ExitRecord) string {
	switch {
	case e.Signal != "":
		return "ended by " + e.Signal
	case e.ExitCode < 0:
		return "ended, with a code that is not known"
	}
	return fmt.Sprintf("ended with code %d", e.ExitCode)
}

// commandState describes the state of a shell that reports its commands. If the line of the command is unknown, or is the
// one that the agent has just typed, c.Line is empty.
func commandState(c *protocol.CommandInfo, now time.Time) string {
	line := "the command"
	if c.Line != "" {
		line = encoded(c.Line)
	}
	switch {
	case c.StartedAt.IsZero():
		return "the shell waits for its first command"
	case c.FinishedAt.IsZero():
		return line + " runs" + durationText(" for ", now.Sub(c.StartedAt))
	}
	state := line + " ended" + codeText(c.ExitCode) + durationText(" after ", c.FinishedAt.Sub(c.StartedAt))
	if c.Prompt {
		state += ", the shell waits"
	}
	return state
}

// isNewer reports whether a report of a program belongs to the command that runs, or to no command of the shell.
func isNewer(p *protocol.ProgramStatus, c *protocol.CommandInfo) bool {
	return c == nil || c.FinishedAt.IsZero() && !p.At.Before(c.StartedAt)
}

// programState describes the state that a program has reported of itself.
func programState(p *protocol.ProgramStatus, now time.Time) string {
	text := "the program reports: "
	if p.App != "" {
		text = encoded(p.App) + " reports: "
	}
	text += string(p.State)
	switch {
	case p.Kind != "":
		text += " (" + p.Kind + ")"
	case p.State == protocol.ProgramBlocked:
		text += ", it needs input"
	}
	if p.Progress != nil {
		text += fmt.Sprintf(", %d %%", *p.Progress)
	}
	for _, said := range []string{p.Title, p.Message} {
		if said != "" {
			text += ", " + encoded(said)
		}
	}
	return text + durationText(", for ", now.Sub(p.At))
}

// durationText names a duration, unless it is less than a second.
func durationText(preposition string, d time.Duration) string {
	if d < time.Second {
		return ""
	}
	return preposition + rounded(d)
}

// beforeCursor returns the text of a row before a column, without spaces around it. Columns and characters
// differ if the row has wide characters; then the text may be longer, which is harmless in a description.
func beforeCursor(row string, column int) string {
	runes := []rune(row)
	return strings.TrimSpace(string(runes[:min(column, len(runes))]))
}

// endsAsQuestion reports whether a text ends as prompts usually do.
func endsAsQuestion(text string) bool {
	return strings.ContainsRune("?:>$#%])", rune(text[len(text)-1]))
}

func rounded(d time.Duration) string { return d.Round(time.Second).String() }
