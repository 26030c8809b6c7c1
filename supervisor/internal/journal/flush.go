package journal

import (
	"errors"
	"fmt"
)

// maxFlush bounds what one Flush moves, in bytes: a child that reads as fast as
// it is typed to must not hold up whoever owns the journal. It takes about half
// a millisecond.
const maxFlush = 64 << 10

// Flush types what the terminal takes without blocking and reports whether all
// is typed. If not, it is called again when the terminal takes input, which may
// be at once.
//
// An error is the terminal's or the queue's; nothing that is left can be typed
// then, and Drop makes an end of it.
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

// move types a piece; more is false where the terminal took less.
func (j *Journal) move(to Master) (n int, more bool, err error) {
	if j.pipe < 0 {
		return j.typePlain(to)
	}
	if err := j.fill(); err != nil {
		return 0, false, err
	}
	all := j.inPipe
	n, err = to.SpliceFrom(uintptr(j.pipe), all)
	j.at()
	j.inPipe -= n
	if n == 0 && errors.Is(err, errors.ErrUnsupported) {
		return 0, true, j.goPlain()
	}
	return n, n == all && n > 0, err
}

// fill moves what the pipe has room for out of the queue, once it is half empty:
// a terminal takes some 4 KiB at a time, and a refill for each costs as much again.
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
	j.at()
	j.inPipe += n
	j.piped += uint64(n)
	j.room.store(wordPiped, j.piped)
	j.rest()
	j.trim()
	return err
}

// plainPiece is what a crash loses at most of what goes without a pipe.
const plainPiece = 4 << 10

// typePlain writes a piece of the queue to the terminal. It counts as typed
// before it is: what a process that dies was writing is lost rather than typed
// twice, which might be a command.
func (j *Journal) typePlain(to Master) (n int, more bool, err error) {
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

// goPlain gives up the pipe for a terminal that cannot be spliced to. What is in
// it goes back to the queue, before all else there; the file has room for it.
func (j *Journal) goPlain() error {
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

// Drop forgets all that is not typed; writers keep what they were told.
func (j *Journal) Drop() error {
	// The pipe first: what leaves it counts as typed, so that at each moment
	// the queue follows what is left.
	err := readPipe(j.pipe, make([]byte, j.inPipe))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.at()
	j.inPipe = 0
	j.piped = j.end
	j.room.store(wordPiped, j.piped)
	j.at()
	j.trim()
	return nil
}
