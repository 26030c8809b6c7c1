package session

import (
	"cmp"
	"time"

	"golang.org/x/time/rate"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// A shell may tell of its prompts and commands (OSC 133). Each command is told as two
// events, with what was known of it then. A program that prints such marks on and on
// is heard less often: what is left out is counted, and the last of it is told.
const (
	commandBurst = 256 // events at once
	commandRate  = 20  // events a second, after that
	commandLater = time.Second / commandRate
)

// commands is what a session's shell says; owned by loop.
type commands struct {
	info   *protocol.CommandInfo // nil where it has said nothing; replaced, and never changed
	line   string                // of the command that starts next
	typing bool                  // it waits, and no line was typed since it said so

	promptAt uint64 // the offset of what the last prompt came in
	heard    uint64 // marks before this offset are in info, bells and all others in away

	limit  *rate.Limiter
	untold protocol.EventKind // what was left out, "" for nothing
	alarm                     // runs while there is something
}

// hear takes what the screen has heard since it was asked last.
func (s *Session) hear() {
	s.commands.heard = s.screen.Offset()
	h, ok := s.screen.Heard()
	if !ok {
		return
	}
	s.away.hear(h)
	if len(h.Marks) == 0 {
		return
	}
	now := s.cfg.Now()
	var told []protocol.CommandInfo
	var kinds []protocol.EventKind
	s.commands.missed(h.Ended)
	for _, m := range h.Marks {
		kind := s.commands.mark(m, now)
		if kind == "" {
			continue
		}
		if kind == protocol.EventCommandFinished {
			s.away.finished(*s.commands.info)
		}
		told, kinds = append(told, *s.commands.info), append(kinds, kind)
	}
	n := s.commands.allowed(kinds)
	if n > 0 || s.commands.untold == "" {
		s.note()
		s.settle() // a successor does not tell these again
	}
	if n == 0 {
		return
	}
	info := s.info()
	for i := range n {
		one := info
		one.Command = &told[i]
		s.hub.Publish(kinds[i], &one, nil)
	}
}

// missed counts commands that ended in marks which were left out.
func (c *commands) missed(ended uint64) {
	if ended > 0 {
		next := c.now()
		next.Count += ended
		c.info = &next
	}
}

func (c *commands) now() protocol.CommandInfo {
	if c.info == nil {
		return protocol.CommandInfo{}
	}
	return *c.info
}

// mark takes a mark and returns what it is an event of, "" if of nothing. What comes
// twice is heard once: shells draw a prompt again, tell how a line ended that was
// none, and start each part of a line.
func (c *commands) mark(m screen.Mark, now time.Time) (kind protocol.EventKind) {
	next := c.now()
	running := !next.StartedAt.IsZero() && next.FinishedAt.IsZero()
	switch m.Kind {
	case screen.MarkPrompt:
		next.Prompt, c.typing, c.promptAt = true, true, m.At
	case screen.MarkLine:
		c.line = m.Line
		return ""
	case screen.MarkStarted:
		if running && !next.Prompt {
			return ""
		}
		// A prompt while one runs is another shell's, within it; the outer one's
		// command is lost sight of.
		next.Prompt, next.Line = false, cmp.Or(m.Line, c.line)
		next.StartedAt, next.FinishedAt = now, time.Time{}
		c.line, c.typing = "", false
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
		kind = protocol.EventCommandFinished
	}
	c.info = &next
	return kind
}

// allowed returns how many of these events are told now. Of the others the last one
// is, later.
func (c *commands) allowed(kinds []protocol.EventKind) (n int) {
	if c.limit == nil {
		c.limit = rate.NewLimiter(commandRate, commandBurst)
	}
	for n < len(kinds) && c.limit.Allow() {
		n++
	}
	if n > 0 {
		c.untold = ""
	}
	if n < len(kinds) {
		c.untold = kinds[len(kinds)-1]
		if c.c == nil {
			c.set(commandLater)
		}
	}
	return n
}

// tellCommand tells the last of what was left out.
func (s *Session) tellCommand() {
	c := &s.commands
	c.rang()
	switch {
	case c.untold == "":
	case c.limit.Allow():
		kind := c.untold
		c.untold = ""
		s.note()
		s.settle()
		info := s.info()
		s.hub.Publish(kind, &info, nil)
	default:
		c.set(commandLater)
	}
}

// outputIdle is protocol.OutputIdleMS.
const outputIdle = protocol.OutputIdleMS * time.Millisecond

// quiet waits until a session that prints has stopped to; owned by loop.
type quiet struct {
	alarm      // runs while it is busy
	busy  bool // it has printed, and that it stopped was not told
}

// printed says that the session has printed.
func (s *Session) printed() {
	s.printedAt = s.cfg.Now()
	s.lastIO.set(s.printedAt)
	q := &s.quiet
	if !q.busy {
		q.busy = true
		s.note()
	}
	if q.c == nil {
		q.set(outputIdle)
	}
}

// becomeQuiet tells that nothing has been printed for a while.
func (s *Session) becomeQuiet() {
	q := &s.quiet
	q.rang()
	if left := outputIdle - s.silence(nil); left > 0 {
		q.set(left)
		return
	}
	q.busy = false
	s.note()
	if s.state != protocol.StateRunning {
		return
	}
	s.settle()
	info := s.info()
	s.hub.Publish(protocol.EventOutputIdle, &info, nil)
}
