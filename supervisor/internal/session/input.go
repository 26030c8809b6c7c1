package session

import (
	"bytes"
	"fmt"

	"holdfast/protocol"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/pty"
)

// Input arrives in pieces with the writer's offset. Once input is accepted, the session must
// deliver it: it lies in the journal, in order, and is written to the terminal as fast as the
// child reads. The limit of the journal's queue does not count the pipe and the terminal's own
// buffer, some 16 KiB each.

// input is owned by loop.
type input struct {
	journal *journal.Journal
	max     int  // bytes that the journal's queue may hold
	waiting bool // await waits for the terminal; if false, no accepted input is left to write

	replyBytes int // bytes of our own replies that were accepted since the journal was last empty
}

// checkInputOffset returns up to which offset the writer's input is accepted, and whether all n
// bytes at offset were accepted before. Errors: invalid_argument, input_gap.
func (s *Session) checkInputOffset(name string, offset uint64, n int) (accepted uint64, had bool, err error) {
	if accepted, _, err = s.input.journal.Writer(name); err != nil {
		return 0, false, fmt.Errorf("session %s: %w", s.id, err)
	}
	end := offset + uint64(n)
	switch {
	case end < offset:
		err = protocol.Errorf(protocol.CodeInvalidArgument, "input offset plus length exceeds 64 bits")
	case offset > accepted:
		err = inputError(protocol.CodeInputGap, accepted, "input before this piece is missing; send again from offset %d", accepted)
	}
	return accepted, end <= accepted, err
}

// acceptInput accepts input of a writer at the writer's offset, and returns up to which offset
// the writer's input is accepted now. Bytes that were accepted before are skipped, so a client
// may repeat input if it does not know whether it arrived. a is the attachment that sent the
// input, or nil if a request sent it.
//
// Errors, which carry the accepted offset: input_gap if bytes before offset are missing;
// input_full if the queue has no room for all of it; line_too_long if all was accepted, but the
// terminal will cut a line of it. Besides, those of checkOpen.
func (s *Session) acceptInput(a *Attachment, name string, offset uint64, p []byte) (uint64, error) {
	if err := s.checkOpen(); err != nil {
		return 0, err
	}
	accepted, had, err := s.checkInputOffset(name, offset, len(p))
	if err != nil || had {
		return accepted, err
	}
	p = p[accepted-offset:]
	s.lastIO.set(s.cfg.Now())
	s.cfg.courtesy.noteInput(s.instance)
	var n int
	if a != nil {
		s.noteViewerInput(a, p)
	}
	now := s.inputContext()
	if a == nil {
		n, err = s.queueInput(name, accepted, p)
	} else {
		n, err = s.queueViewerInput(a, accepted, p)
	}
	accepted += uint64(n)
	s.echoInput(now, p[:n])
	s.cfg.counts.inputBytes.Add(uint64(n))
	return accepted, s.inputResult(accepted, p, n, err)
}

// inputResult returns the error for input of which n bytes were accepted, or nil. It counts the
// bytes of the unfinished line.
func (s *Session) inputResult(accepted uint64, p []byte, n int, err error) error {
	switch {
	case err != nil:
		return err
	case n < len(p):
		return inputError(protocol.CodeInputFull, accepted, "the input queue of %d bytes is full; send the remainder later", s.input.max)
	case s.saved.PendingLine.add(p) && s.pty.LineMode():
		e := inputError(protocol.CodeLineTooLong, accepted, "the input was accepted, but the terminal is in line mode and cuts a line of it after %d bytes", pty.MaxLine)
		e.Retryable = false
		return e
	}
	return nil
}

// pendingLine is the number of bytes of the line of input that has no line end yet.
type pendingLine int

// add counts input, and reports whether a line in it exceeds the limit of a terminal in line
// mode.
func (l *pendingLine) add(p []byte) (long bool) {
	for len(p) > 0 {
		end := bytes.IndexAny(p, lineEnds)
		piece := p
		if end >= 0 {
			piece = p[:end]
		}
		if before := *l; before <= pty.MaxLine {
			*l = before + pendingLine(len(piece))
			long = long || *l > pty.MaxLine
		}
		if end < 0 {
			break
		}
		*l, p = 0, p[end+1:]
	}
	return long
}

// lineEnds end a line of input: newline, return, which most terminals convert to newline, and
// end of file (Ctrl-D).
const lineEnds = "\n\r\x04"

// queueInput accepts as much input as there is room for, and writes at once what the terminal
// takes. name is the writer, or "" for input of the session itself, which has no offset. n is
// the number of bytes accepted.
func (s *Session) queueInput(name string, offset uint64, p []byte) (n int, err error) {
	j := s.input.journal
	if name == "" {
		n, err = j.Append(p)
	} else {
		_, n, err = j.Accept(name, offset, p)
	}
	left, err := s.flushAccepted(offset+uint64(n), err)
	if left = min(left, n); left > 0 && name != "" {
		_ = j.Refuse(name, left) // withdraws bytes that the journal has just accepted, so it cannot fail
	}
	return n - left, err
}

// replaceInput accepts count bytes of the writer's input, or none of them, but writes p to the
// terminal instead. It returns how many bytes were accepted.
func (s *Session) replaceInput(name string, offset uint64, count int, p []byte) (int, error) {
	done, err := s.input.journal.Replace(name, count, p)
	if !done {
		count = 0
	}
	_, err = s.flushAccepted(offset+uint64(count), err)
	return count, err
}

// flushAccepted writes accepted input to the terminal, unless earlier input still waits.
// accepted is the writer's offset after the input, and err the error with which it was queued.
// If the terminal takes no input any more, left is the number of bytes that were dropped.
func (s *Session) flushAccepted(accepted uint64, err error) (left int, _ error) {
	if flushErr := s.flush(); flushErr != nil {
		left = s.input.journal.Pending()
		s.giveUp(flushErr)
		return left, protocol.Errorf(protocol.CodeSessionNotFound, fmt.Sprintf("the terminal of session %s takes no input: %v", s.id, flushErr))
	}
	if err != nil { // memory or descriptors for the queue are missing; a later attempt may succeed
		return 0, inputError(protocol.CodeInputFull, accepted, "the input cannot be queued: %v; send it later", err)
	}
	return 0, nil
}

// flush writes as much queued input as the terminal takes. If input remains, await waits for
// the terminal. The journal also returns early when much input is queued; await then returns at
// once, and loop has handled other requests in between.
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
		s.writeBlocked <- struct{}{} // has room, because await waits for one request at a time
	}
	return nil
}

// resumeInput writes more input after await has waited. err is the error of that wait.
func (s *Session) resumeInput(err error) {
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

// giveUp drops the queued input, because the terminal takes no input any more.
func (s *Session) giveUp(why error) {
	j := s.input.journal
	s.log.Debug().Err(why).Int("dropped", j.Pending()).Msg("queued input dropped; the terminal takes none")
	if err := j.Drop(); err != nil {
		s.log.Warn().Err(err).Msg("journal of input not cleared")
	}
}

// Type accepts input that comes without an attachment. With a writer's name, input is accepted
// exactly once by the writer's offset; with the name "" offset is ignored. Errors: those of
// acceptInput; busy.
func (s *Session) Type(name string, offset uint64, p []byte) (accepted uint64, err error) {
	if unanswered := s.ask(answerTime, func() {
		if name != "" {
			accepted, err = s.acceptInput(nil, name, offset, p)
			return
		}
		if err = s.checkOpen(); err != nil {
			return
		}
		s.lastIO.set(s.cfg.Now())
		now := s.inputContext()
		var n int
		n, err = s.queueInput("", 0, p)
		accepted = uint64(n)
		s.echoInput(now, p[:n])
		s.cfg.counts.inputBytes.Add(accepted)
		err = s.inputResult(accepted, p, n, err)
	}); unanswered != nil {
		return 0, unanswered
	}
	return accepted, err
}

func inputError(code protocol.Code, accepted uint64, format string, args ...any) *protocol.Error {
	return &protocol.Error{Code: code, Message: fmt.Sprintf(format, args...), Offset: &accepted, Retryable: true}
}

// Incomplete reports whether err means that input was not accepted, but may be sent again from
// the offset in the error.
func Incomplete(err error) bool {
	code := protocol.CodeOf(err)
	return code == protocol.CodeInputGap || code == protocol.CodeInputFull
}
