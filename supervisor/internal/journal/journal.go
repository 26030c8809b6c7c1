// Package journal holds the input of one session. Input that was accepted is delivered to the
// terminal exactly once, even if the process is killed by SIGKILL between any two instructions
// or inside a system call.
//
// If a process dies inside a write(2) to a terminal, it is not known how much the terminal has
// accepted. The length of a pipe is always known. Input therefore goes from its writer into a
// pipe, or first into a queue if it has to wait, and from the pipe to the terminal by
// splice(2). The pipe, the queue's file and the room have duplicates in another process, and
// are adopted after a crash. The room is memory that holds the counters and the writers.
//
//	writer ──▶ pipe ──▶ terminal        no input waits: a write and a splice
//	   └──▶ queue ──▶┘                  otherwise
//
// Invariant: delivered bytes + bytes in the pipe = piped bytes. Of these two counters, only the
// one that the system call in progress changes can be stale. A word in the room says which call that
// is, and the pipe's length then gives the counter. Words that must change together are first
// written to the room as an intent, and one store to that word makes the intent valid
// (recover.go).
//
// If the terminal does not support splice(2), or if there are no such pipes (all systems but
// Linux), the queue is written to the terminal. An upgrade then still loses and repeats no
// input, but a crash loses the piece that was being written.
//
// Not here: the meaning of input and the right to write (package session), the wait for the
// terminal (package pty), the process that holds the duplicates.
package journal

import (
	"errors"
	"fmt"
)

// Errors of this package. After an error of Accept, the writer's offset is unchanged.
var (
	ErrGap      = errors.New("journal: input before this offset is missing")
	ErrOverflow = errors.New("journal: input offset overflows")
	ErrName     = errors.New("journal: invalid name of a writer")
	ErrWriters  = errors.New("journal: too many writers: every slot belongs to an attached one")
	ErrDamaged  = errors.New("journal: room or files are damaged")
	ErrVersion  = errors.New("journal: room was written by an unknown version")
)

// defaultMax is the default limit of the queue in bytes. The bytes in the pipe do not count.
const defaultMax = 8 << 20

// maxMax bounds the numbers that are read from a room, because the room may have been written
// by a faulty or hostile process.
const maxMax = 1 << 30

// Config configures a journal. A zero field has its default.
type Config struct {
	Max  int         // limit of the queue in bytes; default defaultMax. An adopted journal uses the lower one of this limit and its first limit
	Made func(Files) // called with each new file before it holds input, so that the caller can duplicate it; the queue's file is created late

	step func() // called at each instant at which tests let the process die
}

// Files are the journal's descriptors; -1 means that there is none. They belong to the journal
// and are valid until Close. To pass them to another process, the caller must duplicate them.
type Files struct {
	Pipe  int // one descriptor for both ends; nonblocking, like all its duplicates
	Queue int // -1 until the first byte has to wait
}

// Master is the master side of the terminal. Neither method blocks. If a method accepts fewer
// bytes than requested and returns no error, the terminal accepts no more now.
type Master interface {
	// SpliceFrom moves n bytes from a pipe to the terminal. If that is not supported, it moves
	// no byte and returns an error that matches errors.ErrUnsupported.
	SpliceFrom(pipe uintptr, n int) (delivered int, err error)
	TryWrite(p []byte) (n int, err error)
}

// A Journal must be used by one goroutine at a time. Its fields repeat the words of the room.
// The room is always written, and read only during recovery.
type Journal struct {
	room    room
	max     int    // limit of the queue in bytes
	size    uint64 // bytes of the queue's file, which is a ring
	made    func(Files)
	pipe    int // -1: there is no pipe, and the queue is written to the terminal
	queue   int // -1: not created yet
	piped   uint64
	end     uint64 // bytes accepted
	inPipe  int    // piped - delivered; at most pipeBytes
	dirty   int    // bytes written to the queue's file since it was last truncated
	scratch []byte // nil while no input waits
	writers writers
	step    func() // for tests; may be nil
}

// New returns an empty journal that keeps its counters in room. All bytes of room must be 0. The caller
// should duplicate the pipe and the room in another process before it accepts input.
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

// Files returns the present descriptors.
func (j *Journal) Files() Files { return Files{j.pipe, j.queue} }

// Exact reports whether a crash loses and repeats no byte.
func (j *Journal) Exact() bool { return j.pipe >= 0 }

// Queued returns how many bytes wait in the queue.
func (j *Journal) Queued() int { return int(j.end - j.piped) }

// Pending returns how many bytes were accepted but not delivered to the terminal.
func (j *Journal) Pending() int { return j.Queued() + j.inPipe }

// Room returns how many bytes will certainly be accepted.
func (j *Journal) Room() int { return max(0, j.max-j.Queued()) }

// Close closes the journal's descriptors. No input may follow. The room belongs to the caller;
// until the caller frees it, the methods that concern writers may still be called.
func (j *Journal) Close() error {
	err := errors.Join(closeFile(j.pipe), closeFile(j.queue))
	j.pipe, j.queue = -1, -1
	return err
}

// mayDie marks an instant at which tests let the process die.
func (j *Journal) mayDie() {
	if j.step != nil {
		j.step()
	}
}
