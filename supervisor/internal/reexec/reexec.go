// Package reexec changes the program of this process: same pid, same children,
// same open files. The new program is tried first, as a child that only says
// whether it can go on with what it is left.
//
// Invariant: until Exec has changed the program nothing has changed; if that
// fails, nothing has changed either.
//
// Not here: what is left, and how to come to rest before (package session).
package reexec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
)

// The names in the environment by which a program learns what it has been left:
// the number of a memory file.
const (
	inheritEnv = "HOLDFAST_INHERIT"
	trialEnv   = "HOLDFAST_INHERIT_TRIAL"
)

// maxManifest bounds what is read of a memory file, in bytes: 4,096 sessions with
// long histories.
const maxManifest = 8 << 30

// A Program is a program's file, held open: what is tried is what is run,
// whatever becomes of its path.
type Program struct {
	path string
	file *os.File
}

// Open opens a program that is to be run in place of this one.
func Open(path string) (*Program, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would be waited for
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0) {
		err = &fs.PathError{Op: "run", Path: path, Err: errNoProgram}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Program{path, file}, nil
}

// OpenSelf opens the program that this process runs, whatever is at its path now;
// the path is what it is to be called.
func OpenSelf(path string) (*Program, error) {
	if runtime.GOOS == "linux" {
		p, err := Open("/proc/self/exe")
		if err == nil {
			p.path = path
		}
		return p, err
	}
	return Open(path)
}

var errNoProgram = errors.New("it is no program")

// Close gives the file back.
func (p *Program) Close() error { return p.file.Close() }

// header is what stands before the manifest in a memory file, on a line.
type header struct {
	Files []int `json:"files"` // descriptors, in the order in which they were given
}

func (p *Program) failed(what string, err error) error {
	return fmt.Errorf("%s %s: %w", what, p.path, err)
}
