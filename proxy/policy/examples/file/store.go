package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// A store has the config of a file, and reads it again when it has changed.
// Put a new one in its place by renaming: what is half written is a mistake.
type store struct {
	path string
	log  hclog.Logger

	mu      sync.Mutex
	read    os.FileInfo // of what was last read, good or not; nil if it could not be
	current *config     // the last good one
}

// open reads the file, which has to be good at the start.
func open(path string, log hclog.Logger) (*store, error) {
	s := &store{path: path, log: log}
	var err error
	s.current, s.read, err = load(path)
	return s, err
}

// config returns the last good config. It looks at the file each time, which
// takes a microsecond, and complains once about what it finds.
func (s *store) config() *config {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := os.Stat(s.path)
	switch {
	case err != nil && s.read == nil: // gone, and that was said
		return s.current
	case err == nil && s.read != nil && same(now, s.read):
		return s.current
	}
	c, read, err := load(s.path)
	s.read = read
	if err != nil {
		s.log.Error("the policy's file cannot be used, the last good one stays", "error", err)
		return s.current
	}
	s.log.Info("the policy's file is read again", "users", len(c.Users), "tasks", len(c.Tasks))
	s.current = c
	return c
}

func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// load returns what it knows of the file even where it cannot be used.
func load(path string) (*config, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat() // before it is read: what is written meanwhile is seen the next time
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
