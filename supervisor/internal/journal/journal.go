// Package journal holds the input of one session: what was accepted is typed
// exactly once, even if the process dies by SIGKILL between any two
// instructions or inside a system call.
//
// A write(2) to a terminal whose caller dies leaves nobody who knows how much
// was typed. A pipe knows. So what is typed goes from its writer, or from the
// queue where it has to wait, into a pipe, and by splice(2) from there to the
// terminal. The pipe, the queue's file and the room, which is memory that holds
// the counters and the writers, are duplicated in another process; after a crash
// they are adopted.
//
//	writer ──▶ pipe ──▶ terminal        nothing waits: a write and a splice
//	   └──▶ queue ──▶┘                  else
//
// Invariant: typed + what is in the pipe = piped. Of the two counters only the
// one whose system call is under way can be stale, and a word in the room says
// which, so the pipe's length gives it. All that changes together is written to
// the room first and made so by one store to that word (recover.go).
//
// Where the terminal cannot be spliced to, or there are no pipes of this kind
// (not Linux), the queue is written to the terminal; then an upgrade still loses
// and repeats nothing, and a crash loses the piece that was being written.
//
// Not here: what input means and who may type (package session), waiting for
// the terminal (package pty), who keeps the duplicates.
package journal

import (
	"errors"
	"fmt"
)

// Errors. Those of Accept leave the writer where it was.
var (
	ErrGap      = errors.New("journal: input before this offset is missing")
	ErrOverflow = errors.New("journal: input offset overflows")
	ErrName     = errors.New("journal: not a writer's name")
	ErrWriters  = errors.New("journal: no room for another writer")
	ErrDamaged  = errors.New("journal: what was left makes no sense")
	ErrVersion  = errors.New("journal: left by a version that is not understood")
)

// DefaultMax is how many bytes wait at most, beside those in the pipe.
const DefaultMax = 8 << 20

// maxMax keeps what a hostile room can make us believe within reason.
const maxMax = 1 << 30

// Config tunes a journal. A zero field means its default.
type Config struct {
	Max  int         // bytes that wait at most; DefaultMax. An adopted journal keeps to the lower of this and what it began with
	Made func(Files) // told of a new file before a byte is in it, so that it can be duplicated; the queue's is made late

	step func() // tests die here
}

// Files are the journal's descriptors, -1 where there is none. They are its
// own and valid until Close; whoever hands them on gives duplicates.
type Files struct {
	Pipe  int // both ends; nonblocking, which all duplicates share
	Queue int // made when the first byte has to wait
}

// Master is the terminal's side. Neither call blocks; fewer bytes than asked
// without an error mean that it takes no more now.
type Master interface {
	// SpliceFrom types n bytes out of a pipe. It matches
	// errors.ErrUnsupported, having typed nothing, if that cannot be.
	SpliceFrom(pipe uintptr, n int) (typed int, err error)
	TryWrite(p []byte) (n int, err error)
}

// A Journal belongs to one goroutine. The fields repeat what the room says,
// which is written and, but for recovery, not read.
type Journal struct {
	room    room
	max     int    // bytes in the queue
	size    uint64 // bytes of the queue's file, which is a ring
	made    func(Files)
	pipe    int // -1 is none: the queue is written to the terminal
	queue   int // -1 is none yet
	piped   uint64
	end     uint64 // bytes accepted
	inPipe  int    // piped - typed; at most pipeBytes
	dirty   int    // bytes written to the queue's file since it was cut
	scratch []byte // while something waits
	writers writers
	step    func() // tests die here
}

// New begins a journal in room, which is zero. Its pipe exists when it returns:
// once that and room are duplicated elsewhere, input may come.
func New(room []byte, cfg Config) (*Journal, error) {
	pipe, err := newPipe()
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j, err := Adopt(room, Files{Pipe: pipe, Queue: -1}, cfg)
	if err != nil {
		return nil, errors.Join(err, closeFile(pipe))
	}
	return j, nil
}

// Files returns the descriptors as they are now.
func (j *Journal) Files() Files { return Files{j.pipe, j.queue} }

// Exact reports whether a crash loses and repeats no byte.
func (j *Journal) Exact() bool { return j.pipe >= 0 }

// Queued is how many bytes wait in the queue.
func (j *Journal) Queued() int { return int(j.end - j.piped) }

// Pending is how many bytes were accepted and are not typed.
func (j *Journal) Pending() int { return j.Queued() + j.inPipe }

// Room is how many bytes are sure to be accepted.
func (j *Journal) Room() int { return max(0, j.max-j.Queued()) }

// Close closes the journal's descriptors: no more input may come. The room is its
// giver's, and as long as that is there writers may be asked for and attached.
func (j *Journal) Close() error {
	err := errors.Join(closeFile(j.pipe), closeFile(j.queue))
	j.pipe, j.queue = -1, -1
	return err
}

// at is where a process may die, for tests.
func (j *Journal) at() {
	if j.step != nil {
		j.step()
	}
}
