package session

import (
	"cmp"
	"time"

	"golang.org/x/time/rate"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// A shell may report its prompts and commands by shell marks (OSC 133). Each command is
// published as two events, when it starts and when it ends. If a program floods the terminal
// with shell marks, they are all counted, but only the last of them is published from time to
// time.
const (
	commandBurst = 256 // events at once
	commandRate  = 20  // events per second beyond the burst
	commandRetry = time.Second / commandRate
)

// commands is the state of a session's shell, as its marks report it. loop owns it.
type commands struct {
	Command       *protocol.CommandInfo `json:"command,omitempty"`   // nil if the shell has sent no mark; replaced, and never changed
	PromptAt      uint64                `json:"prompt_at,omitempty"` // offset of the piece of output with the last prompt
	Log           commandLog            `json:"command_log,omitempty"`
	line          string                // line of the command that starts next
	isEditingLine bool                  // the shell waits for a command, and no line end was sent to it since

	limit       *rate.Limiter
	unpublished protocol.EventKind // the event that was held back last, or ""
	alarm                          // runs while an event is held back
}

// commandEvent is an event of a command, with the state of the shell at that time.
type commandEvent struct {
	kind    protocol.EventKind
	command protocol.CommandInfo
}

// processHeard takes the bells, notifications and shell marks that the screen has collected,
// counts them and publishes the commands.
func (s *Session) processHeard() {
	sc := s.display.screen
	s.saved.ScannedTo = sc.Offset()
	h, ok := sc.Heard()
	if !ok {
		return
	}
	s.saved.Away.addHeard(h)
	if h.Pictures != 0 {
		s.viewers.renewForPictures(h.Pictures, s.answers.current())
	}
	if len(h.Marks) == 0 {
		return
	}
	s.noteReports(h.Marks)
	c := &s.saved.commands
	events, hasChanged := c.apply(h, s.cfg.Now())
	if !hasChanged {
		return
	}
	s.recording.keepCommands(c.Log)
	for _, e := range events {
		if e.kind == protocol.EventCommandFinished {
			s.saved.Away.addCommand(e.command)
		}
	}
	events = c.admit(events)
	s.recording.markCommands(events)
	if len(events) > 0 || c.unpublished == "" {
		s.noteChange()
		s.settle() // saved before they are published, so that a successor does not publish them again
	}
	if len(events) == 0 {
		return
	}
	info := s.info()
	for i := range events {
		one := info
		one.Command = maskCommand(&events[i].command, s.masker)
		s.hub.Publish(events[i].kind, &one, nil)
	}
}

// apply updates the state with shell marks, and returns their events. hasChanged is false if the
// marks are not reports of a shell and have changed nothing.
func (c *commands) apply(h screen.Heard, now time.Time) (events []commandEvent, hasChanged bool) {
	c.countMissed(h.Ended)
	for _, m := range h.Marks {
		if m.Kind == screen.MarkErased {
			hasChanged = c.erase(m.Place.Line) || hasChanged
			continue
		}
		if m.Kind == screen.MarkReport || m.Kind == screen.MarkReset {
			continue
		}
		hasChanged = true
		if kind := c.applyShellMark(m, now); kind != "" {
			events = append(events, commandEvent{kind, *c.Command})
		}
	}
	return events, hasChanged
}

// countMissed counts commands if the screen has dropped their shell marks.
func (c *commands) countMissed(ended uint64) {
	if ended > 0 {
		next := c.current()
		next.Count += ended
		c.Command = &next
	}
}

func (c *commands) current() protocol.CommandInfo {
	if c.Command == nil {
		return protocol.CommandInfo{}
	}
	return *c.Command
}

// applyShellMark updates the state with a shell mark and returns the kind of its event, or ""
// if it has none. Repeated marks count once, because shells redraw prompts, report the end of
// empty lines, and report a start for each part of a line.
func (c *commands) applyShellMark(m screen.Mark, now time.Time) (kind protocol.EventKind) {
	next := c.current()
	running := !next.StartedAt.IsZero() && next.FinishedAt.IsZero()
	switch m.Kind {
	case screen.MarkPrompt:
		next.Prompt, c.isEditingLine, c.PromptAt = true, true, m.At
	case screen.MarkLine:
		c.line = m.Line
		return ""
	case screen.MarkStarted:
		if running && !next.Prompt {
			return ""
		}
		// A prompt while a command runs comes from an inner shell. The command of the outer
		// shell is not tracked any further.
		next.Prompt, next.Line = false, cmp.Or(m.Line, c.line)
		next.StartedAt, next.FinishedAt = now, time.Time{}
		next.Cwd, next.Output = m.Cwd, &protocol.CommandOutput{Start: m.End, From: m.Place}
		c.line, c.isEditingLine = "", false
		kind = protocol.EventCommandStarted
	case screen.MarkEnded:
		if !running {
			return ""
		}
		next.FinishedAt, next.ExitCode = now, nil
		if m.Code >= 0 {
			next.ExitCode = &m.Code
		}
		next.Count++
		next.Output = endOutput(next.Output, m)
		c.Log.add(next)
		kind = protocol.EventCommandFinished
	}
	c.Command = &next
	return kind
}

// admit returns the first of these events, as many as may be published now. Of the others only
// the last one is published later.
func (c *commands) admit(events []commandEvent) []commandEvent {
	if c.limit == nil {
		c.limit = rate.NewLimiter(commandRate, commandBurst)
	}
	n := 0
	for n < len(events) && c.limit.Allow() {
		n++
	}
	if n > 0 {
		c.unpublished = ""
	}
	if n < len(events) {
		c.unpublished = events[len(events)-1].kind
		if c.c == nil {
			c.set(commandRetry)
		}
	}
	return events[:n]
}

// takeUnpublished returns the event that was held back, or "" if there is none or if it must
// wait for longer. It must be called after a receive from the alarm.
func (c *commands) takeUnpublished() (kind protocol.EventKind) {
	c.disarm()
	if c.unpublished == "" {
		return ""
	}
	if !c.limit.Allow() {
		c.set(commandRetry)
		return ""
	}
	return c.removeUnpublished()
}

// removeUnpublished returns the event that was held back, or "" if there is none.
func (c *commands) removeUnpublished() (kind protocol.EventKind) {
	kind, c.unpublished = c.unpublished, ""
	return kind
}

// hasPrompt reports whether the shell waits for a command, with a prompt that is not older than
// an offset.
func (c *commands) hasPrompt(from uint64) bool { return c.current().Prompt && c.PromptAt >= from }

// publishPendingCommand publishes the event that was held back.
func (s *Session) publishPendingCommand() {
	if kind := s.saved.commands.takeUnpublished(); kind != "" {
		s.noteChange()
		s.settle()
		s.publishEvent(kind)
	}
}

// outputIdle is how long a session must not print until output_idle is published.
const outputIdle = protocol.OutputIdleMS * time.Millisecond

// quiet detects when a session stops printing. loop owns it.
type quiet struct {
	alarm      // runs while Busy is set
	Busy  bool `json:"busy,omitempty"` // the session has printed, and output_idle was not published since
}

// printed notes output, and reports whether that changed Busy.
func (q *quiet) printed() bool {
	if q.c == nil {
		q.set(outputIdle)
	}
	changed := !q.Busy
	q.Busy = true
	return changed
}

// isOver reports whether the session has stopped printing, if it has not printed for silence. If
// not, q waits for longer. It must be called after a receive from the alarm.
func (q *quiet) isOver(silence time.Duration) bool {
	q.disarm()
	if left := outputIdle - silence; left > 0 {
		q.set(left)
		return false
	}
	q.Busy = false
	return true
}

// publishOutputIdle publishes output_idle, if the session has not printed for outputIdle.
func (s *Session) publishOutputIdle() {
	if !s.saved.quiet.isOver(s.activity.silentFor(s.cfg.Now(), nil)) {
		return
	}
	s.noteChange()
	if s.saved.State != protocol.StateRunning {
		return
	}
	s.settle()
	s.publishEvent(protocol.EventOutputIdle)
}
