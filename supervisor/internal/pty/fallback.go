//go:build linux || darwin

package pty

import (
	"os"
	"sync/atomic"
	"time"
)

// deadlines holds the deadlines of a PTY that the netpoller cannot watch, because some versions of
// macOS refuse to watch a terminal by kqueue. Read and Write of such a PTY try again after a
// pause, and check the deadline before each try.
type deadlines struct{ read, write atomic.Pointer[time.Time] }

// maxPause is the longest pause between two tries. A longer one delays the echo; a shorter one
// wakes the process up more often for an idle terminal.
const maxPause = 8 * time.Millisecond

func (p *PTY) whenReadable(try func(fd uintptr) bool) error {
	if p.isPolled {
		return p.raw.Read(try)
	}
	return p.retry(&p.deadlines.read, try)
}

func (p *PTY) whenWritable(try func(fd uintptr) bool) error {
	if p.isPolled {
		return p.raw.Write(try)
	}
	return p.retry(&p.deadlines.write, try)
}

func (p *PTY) retry(deadline *atomic.Pointer[time.Time], try func(fd uintptr) bool) error {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		if t := deadline.Load(); t != nil && !t.IsZero() && !time.Now().Before(*t) {
			return os.ErrDeadlineExceeded
		}
		var done bool
		// Control fails once the file is closed.
		if err := p.raw.Control(func(fd uintptr) { done = try(fd) }); err != nil || done {
			return err
		}
		time.Sleep(pause)
	}
}
