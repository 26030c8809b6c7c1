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
// session has been silent, the mode of the terminal for input, and the text before the cursor. screen may be nil.
func fullState(s *protocol.SessionInfo, screen *shown, now time.Time) string {
	switch {
	case s.State == protocol.StateLost:
		return "lost with the machine"
	case s.Exit != nil:
		return exitState(s.Exit)
	case s.Frozen:
		return "frozen: all its processes are stopped until it is thawed"
	case reportsState(s):
		return programState(s.Program, now)
	case s.Command != nil:
		state := commandState(s.Command, now)
		if isRunning := !s.Command.StartedAt.IsZero() && s.Command.FinishedAt.IsZero(); isRunning && waitsForInput(s, screen, now) {
			state += "; " + inputText(s, screen, now.Sub(s.LastIOAt))
		}
		return state
	}
	program := ""
	if f := s.Foreground; f != nil && f.PID != s.PID && f.Name != "" { // the caller knows which program it has started
		program = " " + encoded(f.Name)
	}
	switch f := s.Foreground; {
	case f != nil && f.Stopped:
		return "stopped" + program + ": it continues after SIGCONT"
	case f != nil && f.Reads:
		return inputText(s, screen, 0)
	}
	silence := now.Sub(s.LastIOAt)
	text := "running" + program
	if silence >= longSilence {
		text += ", silent for " + rounded(silence)
	}
	if input := inputText(s, screen, silence); input != "" {
		text += "; " + input
	} else if screen != nil && silence >= longSilence {
		text += "; may be idle or compute"
	}
	return text
}

// inputText names the evidence that a program waits for input, if it has printed nothing for the time silence. It returns "" if
// there is none. screen may be nil.
func inputText(s *protocol.SessionInfo, screen *shown, silence time.Duration) string {
	if f := s.Foreground; f != nil && f.Reads {
		return "needs input" + hiddenText(screen) + ": it reads the terminal" + behindCursor(screen)
	}
	switch {
	case screen == nil:
	case screen.input == protocol.InputHidden:
		return "may need input, for example a password: the terminal hides it" + behindCursor(screen)
	case screen.isAlternate && screen.input == protocol.InputKeys:
		return "may need input: it fills the screen and gets each key"
	case screen.before != "" && endsAsQuestion(screen.before):
		return "may need input" + behindCursor(screen)
	case screen.input == protocol.InputKeys && silence >= longSilence:
		return "may need input: it gets each key" + behindCursor(screen)
	}
	return ""
}

// mayWaitForInput reports whether a program has reported its state, or is silent for long enough that it may wait for input.
func mayWaitForInput(s *protocol.SessionInfo, now time.Time) bool {
	return reportsState(s) || now.Sub(s.LastIOAt) >= settled
}

// reportsState reports whether the program that runs has reported its state.
func reportsState(s *protocol.SessionInfo) bool {
	return s.Program != nil && isNewer(s.Program, s.Command)
}

// waitsForInput reports whether a program probably waits for input: it has reported that it does not work, or there is other
// evidence and it is silent. If the only evidence is a text that ends as questions do, the silence must be longer, and fewer
// endings count, because a report of progress may end with a percentage or a parenthesis.
func waitsForInput(s *protocol.SessionInfo, screen *shown, now time.Time) bool {
	if reportsState(s) {
		return s.Program.State != protocol.ProgramWorking
	}
	silence := now.Sub(s.LastIOAt)
	if !mayWaitForInput(s, now) || inputText(s, screen, silence) == "" {
		return false
	}
	if s.Foreground != nil && s.Foreground.Reads || screen.input == protocol.InputHidden || screen.input == protocol.InputKeys {
		return true
	}
	return silence >= longSilence && strings.ContainsAny(screen.before[len(screen.before)-1:], "?:>]")
}

// longSilence is the time without output after which a session counts as silent.
const longSilence = protocol.OutputIdleMS * time.Millisecond

// hiddenText tells that the terminal does not show the input.
func hiddenText(screen *shown) string {
	if screen == nil || screen.input != protocol.InputHidden {
		return ""
	}
	return " that the terminal hides, as a password"
}

// behindCursor names the text before the cursor, if there is one.
func behindCursor(screen *shown) string {
	if screen == nil || screen.before == "" {
		return ""
	}
	return ", cursor behind " + encoded(screen.before)
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

// endsAsQuestion reports whether a text ends as prompts usually do.
func endsAsQuestion(text string) bool {
	return strings.ContainsRune("?:>$#%])", rune(text[len(text)-1]))
}

func rounded(d time.Duration) string { return d.Round(time.Second).String() }
