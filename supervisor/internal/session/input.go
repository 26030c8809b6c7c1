package session

import (
	"errors"
	"fmt"

	"holdfast/protocol"
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
}

type writer struct {
	accepted uint64 // bytes taken so far, from 0
	used     uint64 // input.clock when it last wrote or attached
	attached int    // attachments of this name
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
// sending again after a doubt is harmless.
//
// Errors: input_gap where bytes before offset are missing, input_full where
// the queue has no room for all of it; both carry the accepted offset.
func (s *Session) typed(name string, offset uint64, p []byte) (uint64, error) {
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
	n, err := s.accept(p)
	w.accepted += uint64(n)
	if err != nil {
		return w.accepted, err
	}
	if n < len(p) {
		return w.accepted, inputError(protocol.CodeInputFull, w.accepted, "the input queue of %d bytes is full", s.input.max)
	}
	return w.accepted, nil
}

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
			accepted, err = s.typed(name, offset, p)
			return
		}
		if err = s.open(); err != nil {
			return
		}
		s.lastIO = s.cfg.Now()
		var n int
		n, err = s.accept(p)
		accepted = uint64(n)
		if err == nil && n < len(p) {
			err = inputError(protocol.CodeInputFull, accepted, "the input queue of %d bytes is full", s.input.max)
		}
	}) {
		return 0, notFound(s.id)
	}
	return accepted, err
}

func inputError(code protocol.Code, accepted uint64, format string, args ...any) error {
	return &protocol.Error{Code: code, Message: fmt.Sprintf(format, args...), Offset: &accepted, Retryable: true}
}

// Incomplete reports whether err says that input was not taken, but may be
// sent again from the offset it carries.
func Incomplete(err error) bool {
	var e *protocol.Error
	return errors.As(err, &e) && e.Offset != nil
}
