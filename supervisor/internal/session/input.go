package session

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/pty"
)

// Once input is accepted, the session must deliver it: it lies in the journal, in order, and is
// written to the terminal as fast as the child reads. The limit of the journal's queue does not count
// the pipe and the terminal's own buffer, some 16 KiB each.

// input writes accepted input to the terminal. While the terminal takes none, a goroutine waits for it in await;
// loop calls the other methods.
type input struct {
	*identity
	log      *zerolog.Logger
	terminal inputTerminal
	line     *pendingLine // in the session's savedState
	journal  *journal.Journal
	max      int             // bytes that the journal's queue may hold
	waits    *sync.WaitGroup // has the goroutine in await
	writable chan error      // result of its wait: nil, or the error because of which the terminal never takes input again
	waiting  bool            // await waits for the terminal; if false, no accepted input is left to write
	isOver   bool            // the session has exited

	replyBytes int // bytes of replies of the session that were accepted since the journal was last empty
}

// inputTerminal is the part of a PTY that an input uses.
type inputTerminal interface {
	journal.Master
	AwaitWritable() error
	SetWriteDeadline(time.Time) error
	LineMode() bool
}

func (in *input) makeChannels(waits *sync.WaitGroup) {
	in.waits, in.writable = waits, make(chan error, 1)
}

// await waits until the terminal takes input. Few sessions ever wait, so none has a goroutine for it all the time.
func (in *input) await() { in.writable <- in.terminal.AwaitWritable() }

// checkOffset returns up to which offset the writer's input is accepted, and whether all n
// bytes at offset were accepted before. Errors: invalid_argument, input_gap.
func (in *input) checkOffset(name string, offset uint64, n int) (accepted uint64, had bool, err error) {
	if accepted, _, err = in.journal.Writer(name); err != nil {
		return 0, false, fmt.Errorf("session %s: %w", in.id, err)
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

// queue accepts as much input as there is room for, and writes at once as much as the terminal
// takes. name is the writer, or "" for input of the session itself, which has no offset. n is
// the number of bytes accepted.
func (in *input) queue(name string, offset uint64, p []byte) (n int, err error) {
	j := in.journal
	if name == "" {
		n, err = j.Append(p)
	} else {
		_, n, err = j.Accept(name, offset, p)
	}
	left, err := in.flushAccepted(offset+uint64(n), err)
	if left = min(left, n); left > 0 && name != "" {
		_ = j.Refuse(name, left) // withdraws bytes that the journal has just accepted, so it cannot fail
	}
	return n - left, err
}

// replace accepts count bytes of the writer's input, or none of them, but writes p to the
// terminal instead. It returns how many bytes were accepted.
func (in *input) replace(name string, offset uint64, count int, p []byte) (int, error) {
	done, err := in.journal.Replace(name, count, p)
	if !done {
		count = 0
	}
	_, err = in.flushAccepted(offset+uint64(count), err)
	return count, err
}

// queueWhole queues all of p, which stands for count bytes of the writer, or nothing. done reports
// whether it did.
func (in *input) queueWhole(name string, offset uint64, count int, p []byte) (done bool, err error) {
	if name == "" {
		if len(p) > in.journal.Room() {
			return false, nil
		}
		n, err := in.queue("", 0, p)
		return n == len(p), err
	}
	n, err := in.replace(name, offset, count, p)
	return n == count, err
}

// flushAccepted writes accepted input to the terminal, unless earlier input still waits.
// accepted is the writer's offset after the input, and err the error with which it was queued.
// If the terminal takes no input any more, left is the number of bytes that were dropped.
func (in *input) flushAccepted(accepted uint64, err error) (left int, _ error) {
	if flushErr := in.flush(); flushErr != nil {
		left = in.journal.Pending()
		in.giveUp(flushErr)
		return left, protocol.Errorf(protocol.CodeSessionNotFound, "the terminal of session %s takes no input: %v", in.id, flushErr)
	}
	if err != nil { // memory or descriptors for the queue are missing; a later attempt may succeed
		return 0, inputError(protocol.CodeInputFull, accepted, "the input cannot be queued: %v; send it later", err)
	}
	return 0, nil
}

// flush writes as much queued input as the terminal takes. If input remains, await waits for
// the terminal. The journal also returns early when much input is queued; await then returns at
// once, and loop has handled other requests in between.
func (in *input) flush() error {
	if in.waiting {
		return nil
	}
	done, err := in.journal.Flush(in.terminal)
	if err != nil {
		return err
	}
	if !done {
		in.waiting = true
		in.waits.Go(in.await)
	}
	return nil
}

// resume writes more input after await has waited. err is the error of that wait.
func (in *input) resume(err error) {
	in.waiting = false
	if in.isOver {
		return
	}
	if err == nil {
		err = in.flush()
	}
	if err != nil {
		in.giveUp(err)
	}
}

// stop stops await, so that no goroutine writes to the terminal until restart.
func (in *input) stop() {
	if in.waiting {
		_ = in.terminal.SetWriteDeadline(longAgo) // fails only on a terminal on which AwaitWritable ends by itself
		<-in.writable                             // the result does not matter, because restart tries to write
		in.waiting = false
	}
}

// restart ends the effect of stop.
func (in *input) restart() {
	if !in.isOver {
		_ = in.terminal.SetWriteDeadline(time.Time{})
	}
	in.resume(nil)
}

// close closes the journal, because the session has exited.
func (in *input) close() error {
	in.isOver = true
	return errors.Join(in.journal.Drop(), in.journal.Close())
}

// reply queues a reply of the session to a terminal query. A reply that has no room is dropped.
func (in *input) reply(p []byte) {
	if in.journal.Pending() == 0 {
		in.replyBytes = 0
	}
	if in.replyBytes+len(p) > maxReplies || len(p) > in.journal.Room() {
		return
	}
	in.replyBytes += len(p)
	_, _ = in.queue("", 0, p) // if the terminal takes no input, it is about to end
}

// giveUp drops the queued input, because the terminal takes no input any more.
func (in *input) giveUp(why error) {
	j := in.journal
	in.log.Debug().Err(why).Int("dropped", j.Pending()).Msg("queued input dropped; the terminal takes none")
	if err := j.Drop(); err != nil {
		in.log.Warn().Err(err).Msg("journal of input not cleared")
	}
}

// result returns the error for input of which n bytes were accepted, or nil. It counts the
// bytes of the unfinished line.
func (in *input) result(accepted uint64, p []byte, n int, err error) error {
	switch {
	case err != nil:
		return err
	case n < len(p):
		return inputError(protocol.CodeInputFull, accepted, "the input queue of %d bytes is full; send the remainder later", in.max)
	case in.line.add(p) && in.terminal.LineMode():
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

func inputError(code protocol.Code, accepted uint64, format string, args ...any) *protocol.Error {
	return &protocol.Error{Code: code, Message: fmt.Sprintf(format, args...), Offset: &accepted, Retryable: true}
}

// Incomplete reports whether err means that input was not accepted, but may be sent again from
// the offset in the error.
func Incomplete(err error) bool {
	code := protocol.CodeOf(err)
	return code == protocol.CodeInputGap || code == protocol.CodeInputFull
}
