package journal

import (
	"errors"
	"testing"
)

// A life has everything that outlives a process: the room and the files. It holds the files as the keeper does.
type life struct {
	room  []byte
	files Files
	max   int
	count int // steps until death; 0 means none
	made  int // how often Made was called
	j     *Journal
}

type death struct{}

func newLife(tb testing.TB, limit int) *life {
	tb.Helper()
	l := &life{room: make([]byte, RoomBytes), max: limit}
	j, err := New(l.room, l.config())
	if err != nil {
		tb.Fatal(err)
	}
	l.j, l.files = j, j.Files()
	tb.Cleanup(func() {
		if err := errors.Join(closeFile(l.files.Pipe), closeFile(l.files.Queue)); err != nil {
			tb.Error(err)
		}
	})
	return l
}

func (l *life) config() Config {
	return Config{Max: l.max, Made: func(f Files) { l.files = f; l.made++ }, step: func() {
		if l.count > 0 {
			if l.count--; l.count == 0 {
				panic(death{})
			}
		}
	}}
}

// until calls f, which dies at the given step, and reports whether it died. A death leaves the descriptors that the
// keeper has.
func (l *life) until(step int, f func()) (died bool) {
	l.count = step
	defer func() {
		l.count = 0
		if e := recover(); e != nil {
			if _, ok := e.(death); !ok {
				panic(e)
			}
			died = true
			if l.j != nil && l.j.queue != l.files.Queue {
				_ = closeFile(l.j.queue) // the keeper has not received it
			}
		}
	}()
	f()
	return false
}

// adopt adopts the journal as the next process does.
func (l *life) adopt() error {
	l.j = nil
	j, err := Adopt(l.room, l.files, l.config())
	if err == nil {
		l.j, l.files = j, j.Files()
	}
	return err
}

// terminal is a terminal without a kernel.
type terminal struct {
	room      int // bytes that it accepts until the child reads
	delivered []byte
	plain     bool // it cannot be spliced to
	err       error
}

func (m *terminal) SpliceFrom(pipe uintptr, n int) (int, error) {
	switch {
	case m.plain:
		return 0, errors.ErrUnsupported
	case m.err != nil:
		return 0, m.err
	}
	p := make([]byte, min(n, m.room))
	if err := readPipe(int(pipe), p); err != nil {
		return 0, err
	}
	return m.TryWrite(p)
}

func (m *terminal) TryWrite(p []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	n := min(len(p), m.room)
	m.delivered = append(m.delivered, p[:n]...)
	m.room -= n
	return n, nil
}

// read reads n bytes as the child, which makes room for more.
func (m *terminal) read(n int) { m.room += n }
