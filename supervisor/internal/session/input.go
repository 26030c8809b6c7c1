package session

import (
	"bytes"
	"fmt"

	"holdfast/protocol"
	"holdfast/supervisor/internal/pty"
)

// Input arrives in pieces that carry their writer's offset. What was accepted
// is ours: it lies in one bounded queue, in order, and goes to the PTY as fast
// as the child reads.

const (
	inputPiece = 32 << 10 // written to the PTY at a time
	maxWriters = 1024     // writers not attached whose offset is remembered; the longest silent goes first
)

// input is owned by loop.
type input struct {
	max     int
	queue   [][]byte // pieces of at most inputPiece bytes
	queued  int      // bytes in queue
	busy    bool     // a piece is with the write goroutine
	writers map[string]*writer
	clock   uint64

	answered int // bytes of our answers taken since nothing was queued
	line     line
}

type writer struct {
	accepted uint64 // bytes taken so far, from 0
	used     uint64 // input.clock when it last wrote or attached
	attached int    // attachments of this name
	attempt  uint64 // the latest of them
}

func newInput(limit int) input {
	return input{max: limit, writers: make(map[string]*writer)}
}

func (in *input) drop() { in.queue, in.queued = nil, 0 }

// writer returns the state of the named writer, a new one beginning at 0.
func (in *input) writer(name string) *writer {
	in.clock++
	w := in.writers[name]
	if w == nil {
		if len(in.writers) >= maxWriters {
			in.forgetOldest()
		}
		w = &writer{}
		in.writers[name] = w
	}
	w.used = in.clock
	return w
}

func (in *input) detach(name string) { in.writers[name].attached-- }

// forgetOldest spares the attached ones: their clients go on from an offset.
func (in *input) forgetOldest() {
	idle, oldest, at := 0, "", in.clock
	for name, w := range in.writers {
		if w.attached > 0 {
			continue
		}
		idle++
		if w.used < at {
			oldest, at = name, w.used
		}
	}
	if idle >= maxWriters {
		delete(in.writers, oldest)
	}
}

// take queues as much of p as there is room for and returns how much that was.
func (in *input) take(p []byte) int {
	p = p[:min(len(p), in.max-in.queued)]
	in.queued += len(p)
	for rest := p; len(rest) > 0; {
		if k := len(in.queue); k > 0 && len(in.queue[k-1]) < cap(in.queue[k-1]) {
			last := &in.queue[k-1]
			n := min(cap(*last)-len(*last), len(rest))
			*last = append(*last, rest[:n]...)
			rest = rest[n:]
			continue
		}
		in.queue = append(in.queue, make([]byte, 0, min(inputPiece, max(512, len(rest)))))
	}
	return len(p)
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
	w := s.input.writer(name)
	end := offset + uint64(len(p))
	switch {
	case end < offset:
		return w.accepted, protocol.Errorf(protocol.CodeInvalidArgument, "input offset overflows")
	case offset > w.accepted:
		return w.accepted, inputError(protocol.CodeInputGap, w.accepted, "input from %d on is missing", w.accepted)
	case end <= w.accepted:
		return w.accepted, nil
	}
	p = p[w.accepted-offset:]
	s.lastIO = s.cfg.Now()
	s.cfg.courtesy.typed(s)
	var n int
	var err error
	if a == nil {
		n, err = s.accept(p)
	} else {
		s.typing(a, p)
		n, err = s.acceptFrom(a, p)
	}
	w.accepted += uint64(n)
	s.cfg.counts.typed.Add(uint64(n))
	return w.accepted, s.taken(w.accepted, p, n, err)
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

// accept writes to the PTY what it takes at once, if nothing waits before it,
// and queues the rest.
func (s *Session) accept(p []byte) (int, error) {
	n := 0
	if !s.input.busy && s.input.queued == 0 {
		var err error
		if n, err = s.pty.TryWrite(p); err != nil {
			return n, protocol.Errorf(protocol.CodeSessionNotFound, fmt.Sprintf("session %s takes no input: %v", s.id, err))
		}
	}
	n += s.input.take(p[n:])
	s.writeNext()
	return n, nil
}

// writeNext hands the next piece to the write goroutine, if that is idle.
func (s *Session) writeNext() {
	in := &s.input
	if in.busy || len(in.queue) == 0 {
		return
	}
	p := in.queue[0]
	in.queue[0] = nil
	in.queue = in.queue[1:]
	in.queued -= len(p)
	in.busy = true
	s.toWrite <- p // has room: one piece is out at a time
}

func (s *Session) inputWritten(err error) {
	s.input.busy = false
	if err != nil {
		// The terminal takes no input any more; what waits has no reader.
		s.log.Debug().Err(err).Int("dropped", s.input.queued).Msg("input not written")
		s.input.drop()
		return
	}
	s.writeNext()
}

// Type accepts input without an attachment. With a writer's name it is exactly
// once, by the writer's offset.
func (s *Session) Type(name string, offset uint64, p []byte) (accepted uint64, err error) {
	if !s.do(func() {
		if name != "" {
			accepted, err = s.typed(nil, name, offset, p)
			return
		}
		if err = s.open(); err != nil {
			return
		}
		s.lastIO = s.cfg.Now()
		var n int
		n, err = s.accept(p)
		accepted = uint64(n)
		s.cfg.counts.typed.Add(accepted)
		err = s.taken(accepted, p, n, err)
	}) {
		return 0, notFound(s.id)
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
