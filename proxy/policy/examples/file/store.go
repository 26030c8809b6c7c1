package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// A store holds the config of a file, and reads the file again after a change. A new file should
// be put in place by a rename, because a partly written file is invalid.
type store struct {
	path string
	log  hclog.Logger

	mu       sync.Mutex
	lastRead os.FileInfo // state of the file at the last read; nil if the file was missing
	current  *config     // the last valid config
}

// open reads the file, which must be valid at the start.
func open(path string, log hclog.Logger) (*store, error) {
	s := &store{path: path, log: log}
	var err error
	s.current, s.lastRead, err = load(path)
	return s, err
}

// config returns the last valid config. Each call checks whether the file has changed, which
// takes about a microsecond; an invalid version is logged once.
func (s *store) config() *config {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := os.Stat(s.path)
	switch {
	case err != nil && s.lastRead == nil: // the file is missing, and that was logged
		return s.current
	case err == nil && s.lastRead != nil && isSameFile(now, s.lastRead):
		return s.current
	}
	c, lastRead, err := load(s.path)
	s.lastRead = lastRead
	if err != nil {
		s.log.Error("the policy's file cannot be used, the last good one stays", "error", err)
		return s.current
	}
	s.log.Info("the policy's file is read again", "users", len(c.Users), "tasks", len(c.Tasks))
	s.current = c
	return c
}

func isSameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// load returns the config of a file. It returns the file's state even if the content is invalid.
func load(path string) (*config, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat() // before the content is read, so that a later change is noticed the next time
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, info, err
	}
	c, err := parse(text)
	if err != nil {
		return nil, info, fmt.Errorf("%s: %w", path, err)
	}
	return c, info, nil
}
