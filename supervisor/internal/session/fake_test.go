//go:build linux || darwin

package session

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/supervisor/internal/pty"
)

// fakePTY is a terminal without a kernel. The test prints and reads in place of the child. It blocks on channels and
// timers alone, as testing/synctest requires.
type fakePTY struct {
	spec pty.Spec

	mu            sync.Mutex
	changed       chan struct{} // closed and replaced at each change
	out           []byte        // printed, and not read by the session yet
	perRead       int           // the most bytes that one Read returns; 0 means no limit
	deadline      time.Time
	writeDeadline time.Time
	in            []byte // input that the child has not read yet
	room          int    // the most bytes that in holds
	plain         bool   // input cannot be spliced to the terminal
	deaf          bool   // the child ends by SIGKILL only
	words         []byte // printed when the child is asked to end
	held          bool   // a grandchild has the terminal open
	sizes         []protocol.Size
	pixels        [2]int
	closed        bool
	echoes        atomic.Bool
	done          chan struct{}
	status        pty.Status
}

func newFake(spec pty.Spec) *fakePTY {
	return &fakePTY{spec: spec, changed: make(chan struct{}), done: make(chan struct{}), room: 4096}
}

// fakeTable returns a table whose terminals are fakes, and a function that returns the fake of a session.
func fakeTable(t *testing.T, cfg Config) (tb *Table, by func(*Session) *fakePTY) {
	t.Helper()
	cfg.Start = func(spec pty.Spec) (PTY, error) { return newFake(spec), nil }
	tb = NewTable(cfg)
	t.Cleanup(func() { shutdown(t, tb) })
	return tb, func(s *Session) *fakePTY { return s.pty.(*fakePTY) }
}

// change calls how with the lock held, and wakes all goroutines that wait for a change.
func (f *fakePTY) change(how func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakePTY) print(p []byte) { f.change(func() { f.out = append(f.out, p...) }) }

// take reads up to n bytes of input, as the child.
func (f *fakePTY) take(n int) (got []byte) {
	f.change(func() {
		n = min(n, len(f.in))
		got = append(got, f.in[:n]...)
		f.in = f.in[n:]
	})
	return got
}

func (f *fakePTY) exit(status pty.Status) {
	f.change(func() {
		select {
		case <-f.done:
		default:
			f.status = status
			close(f.done)
		}
	})
}

// wait waits for a change, or for the deadline if there is one. The caller holds mu, before and after the call.
func (f *fakePTY) wait(deadline time.Time) {
	changed := f.changed
	f.mu.Unlock()
	defer f.mu.Lock()
	if deadline.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

func (f *fakePTY) PID() int { return 1 << 30 }

func (f *fakePTY) ReadEach(to pty.Memory, each func(int)) (int, error) {
	return readEach(f.Read, to, each)
}

// readEach implements ReadEach for a terminal whose output comes in one piece.
func readEach(read func([]byte) (int, error), to pty.Memory, each func(int)) (int, error) {
	n, err := read(to.Reserve())
	if n > 0 {
		each(n)
	}
	return n, err
}

func (f *fakePTY) Read(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case f.closed:
			return 0, os.ErrClosed
		case !f.deadline.IsZero() && !time.Now().Before(f.deadline): // even if there is output, as in the kernel
			return 0, os.ErrDeadlineExceeded
		case len(f.out) > 0:
			if f.perRead > 0 {
				b = b[:min(len(b), f.perRead)]
			}
			n := copy(b, f.out)
			f.out = f.out[n:]
			return n, nil
		case isClosed(f.done) && !f.held:
			return 0, io.EOF
		}
		f.wait(f.deadline)
	}
}

func (f *fakePTY) SetReadDeadline(t time.Time) error {
	f.change(func() { f.deadline = t })
	return nil
}

func (f *fakePTY) SetWriteDeadline(t time.Time) error {
	f.change(func() { f.writeDeadline = t })
	return nil
}

func (f *fakePTY) TryWrite(b []byte) (n int, err error) {
	f.change(func() { n, err = f.write(b) })
	return n, err
}

func (f *fakePTY) SpliceFrom(pipe uintptr, n int) (typed int, err error) {
	f.change(func() {
		if f.plain {
			err = errors.ErrUnsupported
			return
		}
		p := make([]byte, min(n, f.free()))
		if len(p) > 0 {
			n, err = unix.Read(int(pipe), p)
			typed, _ = f.write(p[:max(0, n)])
		}
		if f.closed {
			err = os.ErrClosed
		}
	})
	return typed, err
}

func (f *fakePTY) AwaitWritable() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case f.closed:
			return os.ErrClosed
		case !f.writeDeadline.IsZero() && !time.Now().Before(f.writeDeadline):
			return os.ErrDeadlineExceeded
		case f.free() > 0:
			return nil
		}
		f.wait(f.writeDeadline)
	}
}

// free returns how many bytes of input the terminal has room for, or 0 after it was closed.
func (f *fakePTY) free() int {
	if f.closed {
		return 0
	}
	return max(0, f.room-len(f.in))
}

func (f *fakePTY) write(b []byte) (int, error) {
	if f.closed {
		return 0, os.ErrClosed
	}
	n := min(len(b), f.free())
	f.in = append(f.in, b[:n]...)
	return n, nil
}

func (f *fakePTY) Resize(cols, rows, width, height int) error {
	f.change(func() {
		f.pixels = [2]int{width, height}
		f.sizes = append(f.sizes, protocol.Size{Cols: cols, Rows: rows})
	})
	return nil
}

func (f *fakePTY) Interrupt() error            { return nil }
func (f *fakePTY) Signal(syscall.Signal) error { return nil }
func (f *fakePTY) Done() <-chan struct{}       { return f.done }
func (f *fakePTY) Status() pty.Status          { return f.status }

func (f *fakePTY) Hangup(soft syscall.Signal, grace time.Duration) (hard bool, survivors []int) {
	f.mu.Lock()
	deaf, words := f.deaf, f.words
	f.mu.Unlock()
	f.print(words)
	if !deaf {
		f.exit(pty.Status{Code: 128 + int(soft), Signal: pty.SignalName(soft)})
		return false, nil
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-f.done:
		return false, nil
	case <-timer.C:
		f.exit(pty.Status{Code: 137, Signal: "SIGKILL"})
		return true, nil
	}
}

func (f *fakePTY) Close() error {
	f.change(func() { f.closed = true })
	return nil
}

func (f *fakePTY) LineMode() bool { return false }
func (f *fakePTY) Echoes() bool   { return f.echoes.Load() }
