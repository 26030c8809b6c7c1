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

// fullState describes the state of a session with the evidence. It says "certain" only where the system or
// the shell has reported the state. A program that waits for the terminal and for something else at once, and one that
// computes without output, cannot be told apart from outside. For such programs it names what can be seen: how long the
// session has been silent, what the terminal does with input, and the text before the cursor. content may be nil.
func fullState(s *protocol.SessionInfo, content *protocol.ScreenContent, now time.Time) string {
	switch {
	case s.State == protocol.StateLost:
		return "lost with the machine (certain)"
	case s.Exit != nil:
		return exitState(s.Exit)
	case s.Frozen:
		return "frozen: all its processes are stopped until it is thawed (certain)"
	case s.Command != nil:
		return commandState(s.Command, now)
	}
	program := "its program"
	if f := s.Foreground; f != nil && f.Name != "" {
		program = encoded(f.Name)
	}
	switch f := s.Foreground; {
	case f != nil && f.Stopped:
		return "stopped: " + program + " continues after SIGCONT (certain: the system reports it)"
	case f != nil && f.Reads:
		return "needs input" + hiddenText(content) + " (certain: the system reports that the job of " + program + " reads the terminal)" + behindCursor(content)
	}
	silence := now.Sub(s.LastIOAt)
	text := "running " + program + ", silent for " + rounded(silence)
	question := lineBeforeCursor(content)
	switch {
	case content == nil:
	case content.Input == protocol.InputHidden:
		text += "; it may need input, for example a password (not certain): the terminal collects a line that it does not show" + behindCursor(content)
	case content.Alternate && content.Input == protocol.InputKeys:
		text += "; it may need input (not certain): it fills the screen, and gets each key"
	case question != "" && endsAsQuestion(question):
		text += "; it may need input (not certain): the cursor is visible behind " + encoded(question)
	case silence >= protocol.OutputIdleMS*time.Millisecond:
		text += "; it is idle or computes (not certain): it prints nothing, and nothing tells that it needs input"
	}
	return text
}

// hiddenText tells that the terminal does not show the input.
func hiddenText(content *protocol.ScreenContent) string {
	if content == nil || content.Input != protocol.InputHidden {
		return ""
	}
	return " that the terminal does not show, as a password"
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
	return "; the cursor is behind " + encoded(before)
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
		return "ended by " + e.Signal + " (certain)"
	case e.ExitCode < 0:
		return "ended, with a code that is not known (certain)"
	}
	return fmt.Sprintf("ended with code %d (certain)", e.ExitCode)
}

// commandState describes the state of a shell that reports its commands.
func commandState(c *protocol.CommandInfo, now time.Time) string {
	switch {
	case c.StartedAt.IsZero():
		return "the shell waits for its first command (certain: it reports its prompts)"
	case c.FinishedAt.IsZero():
		return fmt.Sprintf("%s has run for %s (certain: the shell reports its commands)", encoded(c.Line), rounded(now.Sub(c.StartedAt)))
	case c.Prompt:
		return fmt.Sprintf("%s ended%s after %s, and the shell waits for a command (certain: it reports them)", encoded(c.Line), codeText(c.ExitCode), rounded(c.FinishedAt.Sub(c.StartedAt)))
	}
	return fmt.Sprintf("%s ended%s after %s (certain: the shell reports its commands)", encoded(c.Line), codeText(c.ExitCode), rounded(c.FinishedAt.Sub(c.StartedAt)))
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

func rounded(d time.Duration) string {
	if d < time.Second {
		return "less than a second"
	}
	return d.Round(time.Second).String()
}
