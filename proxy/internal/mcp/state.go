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
// the shell has reported the state. A program that waits for input, and one that computes without output,
// cannot be told apart from outside, so for other programs it names what can be seen: how long the session
// has been silent, and the text before the cursor. content may be nil.
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
	text := "running"
	if f := s.Foreground; f != nil && f.Name != "" {
		text += ", foreground program " + encoded(f.Name)
	}
	text += ", silent for " + rounded(now.Sub(s.LastIOAt))
	if content == nil || content.Cursor.Hidden || content.Cursor.Y >= len(content.Lines) {
		return text
	}
	before := beforeCursor(content.Lines[content.Cursor.Y], content.Cursor.X)
	if before != "" && endsAsQuestion(before) {
		return text + "; it may wait for input (not certain): the cursor is visible behind " + encoded(before)
	}
	return text
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
