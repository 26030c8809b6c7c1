//go:build linux || darwin

package pty

import (
	"os"
	"sync/atomic"
	"time"
)

// Some versions of macOS refuse to watch a terminal by kqueue. There a Read or
// Write tries again and again, and looks at its deadline between the tries.
type tries struct{ read, write atomic.Pointer[time.Time] }

// maxPause weighs the echo's delay against the wake-ups of an idle terminal.
const maxPause = 8 * time.Millisecond

func (p *PTY) whenReadable(try func(fd uintptr) bool) error {
	if p.polled {
		return p.raw.Read(try)
	}
	return p.retry(&p.tries.read, try)
}

func (p *PTY) whenWritable(try func(fd uintptr) bool) error {
	if p.polled {
		return p.raw.Write(try)
	}
	return p.retry(&p.tries.write, try)
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
