// Package reexec replaces the program of this process: the pid, the children and the open files
// stay. The new program is tried first: it runs as a child that only reports whether it can
// continue with the manifest.
//
// Invariant: until the exec has happened, this process is unchanged, also if the exec fails.
//
// Not here: the content of the manifest, and the freeze of the sessions before an exec (package
// session).
package reexec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
)

// Environment variables that hold the descriptor of the memory file with the manifest.
const (
	inheritEnv = "HOLDFAST_INHERIT"
	trialEnv   = "HOLDFAST_INHERIT_TRIAL"
)

// maxManifest bounds the bytes that are read of a manifest. It is enough for 4,096 sessions
// with long histories.
const maxManifest = 8 << 30

// A Program is an open program file. It stays open, so that the program that was tried is the
// one that is executed, even if its path then leads to another file.
type Program struct {
	path string
	file *os.File
}

// Open opens the file of the program that is to replace this one. It fails if the file is not
// an executable regular file.
func Open(path string) (*Program, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // O_NONBLOCK, because the open of a named pipe would wait for a writer
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

// OpenSelf opens the program that this process runs, even if path leads to another file now.
// path becomes the program's name, argv[0].
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

var errNoProgram = errors.New("it is not an executable regular file")

// Close closes the program's file.
func (p *Program) Close() error { return p.file.Close() }

// A header is the first line of the memory file. The manifest follows it.
type header struct {
	Files []int `json:"files"` // descriptors, in the order that the caller of Exec gave
}

func (p *Program) failed(what string, err error) error {
	return fmt.Errorf("%s %s: %w", what, p.path, err)
}
