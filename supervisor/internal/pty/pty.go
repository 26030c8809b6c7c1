// Package pty runs a program on a new pseudo-terminal, and ends it together with all processes
// that it started there.
//
// No thread is blocked while a PTY waits: the netpoller watches the master and, on Linux, the
// child's pidfd. A thousand idle terminals therefore cost a thousand goroutines and no threads.
// The netpoller also gives reads and writes their deadlines.
//
// Invariant: a child is reaped exactly once, by its own PTY, and Done is closed only after
// that; until then its pid cannot belong to another process. A signal is sent only to a process
// that was seen to belong to this terminal, and only if it is still the same process.
//
// Not here: the meaning of the bytes (package screen); when to read, write or end (package
// session); the choice of program, size and environment (the callers).
package pty

import (
	"errors"
	"fmt"
	"os"
)

// Errors of Start. If the program or the directory does not exist, the error matches
// fs.ErrNotExist; if it may not be used, fs.ErrPermission.
var (
	ErrUnsupported = errors.New("pty: terminals are not supported on this operating system")
	ErrExhausted   = errors.New("pty: no terminal or no file descriptor left")
	ErrNoAnswer    = errors.New("pty: the file system of the program or of its directory does not answer; try again when it does")
)

// A Spec describes the program to run. Start adds nothing to it: Env is the whole environment,
// and the size must be valid.
type Spec struct {
	Argv       []string
	Dir        string // "": the directory of this process
	Env        []string
	Cols, Rows int
	Cgroup     *os.File // directory of the cgroup that the child starts in; Linux only; nil: the cgroup of this process

	// Opened, if it is not nil, is called with the terminal before the child is forked, so that
	// the caller can hand a duplicate of the master to a process that outlives this one. If
	// Opened fails, Start returns its error.
	Opened func(*PTY) error
	// Ended, if it is not nil, is called when the child has ended and before it is reaped. If
	// this process dies before Ended returns, the child's next parent can still reap it.
	Ended func(Status)
}

// Memory is the memory that ReadEach reads into. ReadEach calls Reserve before it reads, and Withdraw if there was no
// output, so that no memory is reserved while it waits. If Reserve returns no memory, ReadEach returns.
type Memory interface {
	Reserve() []byte
	Withdraw()
}

// A Status describes how the child ended.
type Status struct {
	Code   int    `json:"code"`             // exit code; 128+n for signal n; -1 if it is unknown
	Signal string `json:"signal,omitempty"` // such as "SIGKILL"; "" if the child exited
	Err    error  `json:"-"`                // the reason why the code is unknown
	Core   bool   `json:"core,omitempty"`   // the child dumped core
	Usage  Usage  `json:"usage,omitzero"`   // zero if it is unknown
}

// Usage is the resource usage of a child and of those descendants that were waited for.
type Usage struct {
	UserMS      int64  `json:"user_ms"`
	SystemMS    int64  `json:"system_ms"`
	MaxRSSBytes uint64 `json:"max_rss_bytes"` // maximum resident size of one process; 0 if it is unknown
	MinorFaults uint64 `json:"minor_faults"`
	MajorFaults uint64 `json:"major_faults"`
}

// A State is, beside the master, all that another program needs to adopt a PTY.
type State struct {
	PID     int    `json:"pid"`
	Start   uint64 `json:"start,omitempty"`   // start time of the child, which a later process of the same pid does not have
	Foreign bool   `json:"foreign,omitempty"` // another process is the child's parent
	// Device, Inode and Terminal identify the slave: st_dev, st_ino and st_rdev of fstat(2).
	Device   uint64 `json:"device"`
	Inode    uint64 `json:"inode"`
	Terminal uint64 `json:"terminal"`
	// Ended is the status of a child that was reaped, otherwise nil.
	Ended *Status `json:"ended,omitempty"`
}

// maxSide is the kernel's limit on columns and on rows.
const maxSide = 1<<16 - 1

func checkSize(cols, rows int) error {
	if cols < 1 || rows < 1 || cols > maxSide || rows > maxSide {
		return fmt.Errorf("pty: size %dx%d: %w", cols, rows, errBadSize)
	}
	return nil
}

var errBadSize = errors.New("not between 1 and 65535")
