package session

import (
	"bytes"
	"fmt"

	"holdfast/protocol"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/pty"
)

// Input arrives in pieces that carry their writer's offset. What was accepted
// is ours: it lies in the journal, in order, and is typed as fast as the child
// reads. Beside what its queue holds at most, a pipe and the terminal itself have
// some 16 KiB each.

// input is owned by loop.
type input struct {
	journal *journal.Journal
	max     int  // bytes in its queue
	waiting bool // await waits for the terminal; else nothing is left to be typed

	answered int // bytes of our answers taken since nothing waited
	line     line
}

// placed returns how far a writer's input is accepted, and whether the n bytes that it
// has at an offset had been accepted before. Errors: invalid_argument, input_gap.
func (s *Session) placed(name string, offset uint64, n int) (accepted uint64, had bool, err error) {
	if accepted, _, err = s.input.journal.Writer(name); err != nil {
		return 0, false, fmt.Errorf("session %s: %w", s.id, err)
	}
	end := offset + uint64(n)
	switch {
	case end < offset:
		err = protocol.Errorf(protocol.CodeInvalidArgument, "input offset overflows")
	case offset > accepted:
		err = inputError(protocol.CodeInputGap, accepted, "input from %d on is missing", accepted)
	}
	return accepted, end <= accepted, err
}

// typed accepts input from a writer at the writer's offset and returns how far
// the writer's input is accepted now. What was accepted before is skipped, so
// sending again after a doubt is harmless. a is whose it is, nil where it comes
// without an attachment.
//
// Errors: input_gap where bytes before offset are missing, input_full where
// the queue has no room for all of it, line_too_long where all was taken, and
// the terminal will cut it; each carries the accepted offset.
func (s *Session) typed(a *Attachment, name string, offset uint64, p []byte) (uint64, error) {
	if err := s.open(); err != nil {
		return 0, err
	}
	accepted, had, err := s.placed(name, offset, len(p))
	if err != nil || had {
		return accepted, err
	}
	p = p[accepted-offset:]
	s.lastIO.set(s.cfg.Now())
	s.cfg.courtesy.typed(s)
	var n int
	if a != nil {
		s.typing(a, p)
	}
	now := s.moment()
	if a == nil {
		n, err = s.accept(name, accepted, p)
	} else {
		n, err = s.acceptFrom(a, accepted, p)
	}
	accepted += uint64(n)
	s.overhear(now, p[:n])
	s.cfg.counts.typed.Add(uint64(n))
	return accepted, s.taken(accepted, p, n, err)
}

// taken says what became of input of which n bytes were accepted.
func (s *Session) taken(accepted uint64, p []byte, n int, err error) error {
	switch {
	case err != nil:
		return err
	case n < len(p):
		return inputError(protocol.CodeInputFull, accepted, "the input queue of %d bytes is full", s.input.max)
	case s.input.line.add(p) && s.pty.LineMode():
		e := inputError(protocol.CodeLineTooLong, accepted, "the terminal is in line mode and cuts a line of this input after %d bytes", pty.MaxLine)
		e.Retryable = false
		return e
	}
	return nil
}

// line is the line that is being typed.
type line struct {
	n int // its bytes so far
}

// add takes note of what is typed, and reports whether a line has become too
// long in it for a terminal that gathers lines.
func (l *line) add(p []byte) (long bool) {
	for len(p) > 0 {
		end := bytes.IndexAny(p, lineEnds)
		piece := p
		if end >= 0 {
			piece = p[:end]
		}
		if before := l.n; before <= pty.MaxLine {
			l.n = before + len(piece)
			long = long || l.n > pty.MaxLine
		}
		if end < 0 {
			break
		}
		l.n, p = 0, p[end+1:]
	}
	return long
}

// lineEnds are what ends a line: newline, return, which most terminals make one
// of, and the end of file.
const lineEnds = "\n\r\x04"

// accept takes input, by a writer at its offset or, where the name is "", by
// nobody, as much as there is room for, and types what the terminal takes at once.
func (s *Session) accept(name string, offset uint64, p []byte) (n int, err error) {
	j := s.input.journal
	if name == "" {
		n, err = j.Append(p)
	} else {
		_, n, err = j.Accept(name, offset, p)
	}
	left, err := s.typeNow(offset+uint64(n), err)
	if left = min(left, n); left > 0 && name != "" {
		_ = j.Refuse(name, left) // it has accepted these
	}
	return n - left, err
}

// replace takes count bytes of a writer's input, or none, with p typed in their
// place, and returns how many it took.
func (s *Session) replace(name string, offset uint64, count int, p []byte) (int, error) {
	done, err := s.input.journal.Replace(name, count, p)
	if !done {
		count = 0
	}
	_, err = s.typeNow(offset+uint64(count), err)
	return count, err
}

// typeNow types what was just accepted, up to an offset and with an error, unless
// something waits before it. Where the terminal takes no input left bytes of it
// were given up.
func (s *Session) typeNow(accepted uint64, err error) (left int, _ error) {
	if flushErr := s.flush(); flushErr != nil {
		left = s.input.journal.Pending()
		s.giveUp(flushErr)
		return left, protocol.Errorf(protocol.CodeSessionNotFound, fmt.Sprintf("session %s takes no input: %v", s.id, flushErr))
	}
	if err != nil { // no memory or descriptor for what has to wait: later there may be
		return 0, inputError(protocol.CodeInputFull, accepted, "the input cannot wait: %v", err)
	}
	return 0, nil
}

// flush types what the terminal takes, and has await wait if that is not all. The
// journal returns now and then while there is more: then await does at once,
// and loop has seen to others meanwhile.
func (s *Session) flush() error {
	in := &s.input
	if in.waiting {
		return nil
	}
	done, err := in.journal.Flush(s.pty)
	if err != nil {
		return err
	}
	if !done {
		in.waiting = true
		s.full <- struct{}{} // has room: await waits for one at a time
	}
	return nil
}

// typeOn goes on after await has waited, and with an error if it waited in vain.
func (s *Session) typeOn(err error) {
	s.input.waiting = false
	if s.exit != nil {
		return
	}
	if err == nil {
		err = s.flush()
	}
	if err != nil {
		s.giveUp(err)
	}
}

// giveUp is for a terminal that takes no input any more; what waits has no reader.
func (s *Session) giveUp(why error) {
	j := s.input.journal
	s.log.Debug().Err(why).Int("dropped", j.Pending()).Msg("input not written")
	if err := j.Drop(); err != nil {
		s.log.Warn().Err(err).Msg("input not dropped")
	}
}

// Type accepts input without an attachment. With a writer's name it is exactly
// once, by the writer's offset.
func (s *Session) Type(name string, offset uint64, p []byte) (accepted uint64, err error) {
	if unanswered := s.ask(answerTime, func() {
		if name != "" {
			accepted, err = s.typed(nil, name, offset, p)
			return
		}
		if err = s.open(); err != nil {
			return
		}
		s.lastIO.set(s.cfg.Now())
		now := s.moment()
		var n int
		n, err = s.accept("", 0, p)
		accepted = uint64(n)
		s.overhear(now, p[:n])
		s.cfg.counts.typed.Add(accepted)
		err = s.taken(accepted, p, n, err)
	}); unanswered != nil {
		return 0, unanswered
	}
	return accepted, err
}

func inputError(code protocol.Code, accepted uint64, format string, args ...any) *protocol.Error {
	return &protocol.Error{Code: code, Message: fmt.Sprintf(format, args...), Offset: &accepted, Retryable: true}
}

// Incomplete reports whether err says that input was not taken, but may be
// sent again from the offset it carries.
func Incomplete(err error) bool {
	code := protocol.CodeOf(err)
	return code == protocol.CodeInputGap || code == protocol.CodeInputFull
}
