// Package pty runs a program on a new pseudo-terminal and ends it again, with
// all that it started there.
//
// Nothing here holds a thread while it waits: the master and, on Linux, the
// child's end are watched by the netpoller, so a thousand idle terminals cost a
// thousand goroutines and no more. That also gives reads and writes deadlines.
//
// Invariant: a child is reaped exactly once, by its own PTY, and only then is
// Done closed; until then its pid cannot belong to another process. No signal
// goes to a pid that was not seen to be of this terminal and is still the same
// process.
//
// Not here: what the bytes mean (package screen), when to read, write or end
// (package session), which program, size or environment (its callers).
package pty

import (
	"errors"
	"fmt"
	"os"
)

// Errors of Start. A program or directory that is not there matches
// fs.ErrNotExist, one that may not be used fs.ErrPermission.
var (
	ErrUnsupported = errors.New("pty: no terminals on this system")
	ErrExhausted   = errors.New("pty: no terminal left")
)

// Spec says what to run. Nothing is filled in: the environment is exact, and
// the size has to be one.
type Spec struct {
	Argv       []string
	Dir        string // "" is our own
	Env        []string
	Cols, Rows int
	Cgroup     *os.File // directory of the cgroup that the child starts in; Linux only, nil is our own

	// Opened, if there is one, is called with the terminal before anything runs
	// on it, so that it can be handed to who keeps it if we die. An error of it
	// is Start's.
	Opened func(*PTY) error
	// Ended, if there is one, is called when the child has ended and before it is
	// reaped: until it returns, another parent could still ask how.
	Ended func(Status)
}

// Status is how a child ended.
type Status struct {
	Code   int    `json:"code"`             // exit code, 128+n for signal n, -1 if it cannot be known
	Signal string `json:"signal,omitempty"` // "SIGKILL"; "" if it exited
	Err    error  `json:"-"`                // why the code cannot be known
	Core   bool   `json:"core,omitempty"`   // it dumped core
	Usage  Usage  `json:"usage,omitzero"`   // zero where it cannot be known
}

// Usage is what a child and those of its descendants that it waited for took.
type Usage struct {
	UserMS      int64  `json:"user_ms"`
	SystemMS    int64  `json:"system_ms"`
	MaxRSSBytes uint64 `json:"max_rss_bytes"` // the most that one of them had at a time; 0 if that is not known
	MinorFaults uint64 `json:"minor_faults"`
	MajorFaults uint64 `json:"major_faults"`
}

// A State is what another program has to know of a PTY, beside its master, to go
// on with it.
type State struct {
	PID     int    `json:"pid"`
	Start   uint64 `json:"start,omitempty"`   // tells the child from a later process of the same pid
	Foreign bool   `json:"foreign,omitempty"` // the child is another's to wait for
	// Device, Inode and Terminal are the slave's: its filesystem, its number there,
	// and the device that it is.
	Device   uint64 `json:"device"`
	Inode    uint64 `json:"inode"`
	Terminal uint64 `json:"terminal"`
	// Ended is how the child ended, if it was reaped.
	Ended *Status `json:"ended,omitempty"`
}

// maxSide is the kernel's limit on columns and rows.
const maxSide = 1<<16 - 1

func checkSize(cols, rows int) error {
	if cols < 1 || rows < 1 || cols > maxSide || rows > maxSide {
		return fmt.Errorf("pty: size %dx%d: %w", cols, rows, errBadSize)
	}
	return nil
}

var errBadSize = errors.New("not between 1 and 65535")
