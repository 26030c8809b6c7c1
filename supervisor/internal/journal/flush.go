package journal

import (
	"errors"
	"fmt"
)

// maxFlush bounds the bytes that one Flush moves, because a program that reads its input as
// fast as it arrives must not block the journal's owner. To move that many bytes takes about
// half a millisecond.
const maxFlush = 64 << 10

// Flush delivers as much input as the terminal accepts without blocking, and reports whether
// all input is delivered. If not, the caller must call it again when the terminal accepts
// input, which may be at once.
//
// An error comes from the terminal or from the queue's file. The remaining input cannot be
// delivered then, and the caller should discard it by Drop.
func (j *Journal) Flush(to Master) (done bool, err error) {
	for moved := 0; j.Pending() > 0; {
		if moved >= maxFlush {
			return false, nil
		}
		n, more, err := j.move(to)
		if err != nil {
			return false, fmt.Errorf("journal: %w", err)
		}
		if moved += n; !more {
			return j.Pending() == 0, nil
		}
	}
	return true, nil
}

// move delivers one piece. more is false if the terminal accepted less than the piece.
func (j *Journal) move(to Master) (n int, more bool, err error) {
	if j.pipe < 0 {
		return j.writePlain(to)
	}
	if err := j.fill(); err != nil {
		return 0, false, err
	}
	all := j.inPipe
	n, err = to.SpliceFrom(uintptr(j.pipe), all)
	j.mayDie()
	j.inPipe -= n
	if n == 0 && errors.Is(err, errors.ErrUnsupported) {
		return 0, true, j.abandonPipe()
	}
	return n, n == all && n > 0, err
}

// fill moves input from the queue into the pipe if the pipe is at most half full. A terminal
// accepts about 4 KiB at a time, and to refill the pipe after each of them would double the
// cost.
func (j *Journal) fill() error {
	want := min(j.Queued(), pipeBytes-j.inPipe)
	if want <= 0 || j.inPipe > pipeBytes/2 {
		return nil
	}
	p, err := j.readQueue(want)
	if err != nil {
		return err
	}
	j.begin(filling, slot{j.room, noSlot}, j.piped, len(p), 0)
	n, err := writePipe(j.pipe, p)
	j.mayDie()
	j.inPipe += n
	j.piped += uint64(n)
	j.room.store(wordPiped, j.piped)
	j.settle()
	j.trim()
	return err
}

// plainPiece is the length of a piece that is written without a pipe, in bytes, and so the most
// that a crash loses.
const plainPiece = 4 << 10

// writePlain writes one piece of the queue to the terminal. The piece counts as delivered
// before it is written. If this process dies during the write, the piece may be lost, but it is
// never delivered twice, because it might be a command.
func (j *Journal) writePlain(to Master) (n int, more bool, err error) {
	p, err := j.readQueue(min(j.Queued(), plainPiece))
	if err != nil {
		return 0, false, err
	}
	j.room.store(wordPiped, j.piped+uint64(len(p)))
	n, err = to.TryWrite(p)
	j.piped += uint64(n)
	j.room.store(wordPiped, j.piped)
	j.trim()
	return n, n == len(p), err
}

// abandonPipe closes the pipe if the terminal does not support splice(2). The bytes of the pipe
// go back into the queue, before all bytes that wait there. The queue's file always has room
// for them.
func (j *Journal) abandonPipe() error {
	if err := j.needQueue(); err != nil {
		return err
	}
	p := make([]byte, j.inPipe)
	if err := readPipe(j.pipe, p); err != nil {
		return err
	}
	if err := j.writeQueue(p, j.piped-uint64(len(p))); err != nil {
		return err
	}
	j.piped -= uint64(len(p))
	j.inPipe = 0
	j.room.store(wordPiped, j.piped)
	err := closeFile(j.pipe)
	j.pipe = -1
	return err
}

// Drop discards all input that was not delivered. The offsets of the writers do not change.
func (j *Journal) Drop() error {
	// The pipe must be emptied first, because bytes that leave it count as delivered, so that at
	// each instant the queue follows the bytes of the pipe.
	err := readPipe(j.pipe, make([]byte, j.inPipe))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.mayDie()
	j.inPipe = 0
	j.piped = j.end
	j.room.store(wordPiped, j.piped)
	j.mayDie()
	j.trim()
	return nil
}
