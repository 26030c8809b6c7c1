//go:build linux || darwin

package session

import (
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/screen"
)

// A plant is a bug that the simulation must find.
type plant struct {
	name string
	pty  func(*fakePTY) PTY // wraps the fake terminal
	step func(*sim)         // is called after each step
}

// badPTY is a terminal with a bug.
type badPTY struct {
	*fakePTY
	read, write func(p []byte, at int) []byte // returns the bytes that a bug makes of p, which begins at an offset
	out, in     int
}

func (b *badPTY) ReadEach(to pty.Memory, each func(int)) (int, error) {
	return readEach(b.Read, to, each)
}

func (b *badPTY) Read(p []byte) (int, error) {
	if b.read == nil {
		return b.fakePTY.Read(p)
	}
	n, err := b.fakePTY.Read(p[:max(1, len(p)/2)])
	got := b.read(append([]byte(nil), p[:n]...), b.out)
	b.out += n
	return copy(p, got), err
}

func (b *badPTY) TryWrite(p []byte) (n int, err error) {
	if b.write == nil {
		return b.fakePTY.TryWrite(p)
	}
	b.change(func() {
		n = min(len(p), b.free())
		got := b.write(append([]byte(nil), p[:n]...), b.in)
		b.in += n
		b.fakePTY.in = append(b.fakePTY.in, got...) // the bug may return one byte more than there is room for
	})
	return n, nil
}

// once applies a bug once: to the byte at an offset or, if that is the last byte of a piece, to the next piece.
func once(at int, how func(p []byte, i int) []byte) func([]byte, int) []byte {
	done := false
	return func(p []byte, from int) []byte {
		if i := at - from; !done && i < len(p)-1 && len(p) > 1 {
			done = true
			return how(p, max(i, 0))
		}
		return p
	}
}

func dropByte(p []byte, i int) []byte   { return append(p[:i], p[i+1:]...) }
func doubleByte(p []byte, i int) []byte { return append(p[:i+1], p[i:]...) }
func changeByte(p []byte, i int) []byte { p[i] ^= 1; return p }

func badRead(how func([]byte, int) []byte) func(*fakePTY) PTY {
	return func(f *fakePTY) PTY { return &badPTY{fakePTY: f, read: once(1000, how)} }
}

func badWrite(how func([]byte, int) []byte) func(*fakePTY) PTY {
	return func(f *fakePTY) PTY {
		f.plain = true
		return &badPTY{fakePTY: f, write: once(100, how)}
	}
}

// inLoop changes the session's state in its goroutine after each step from the tenth on, for every attached client.
func inLoop(how func(m *sim, c *client)) func(*sim) {
	return func(m *sim) {
		for _, c := range m.clients {
			if c.v != nil && !c.evicted && m.step >= 10 {
				m.s.do(func() { how(m, c) })
			}
		}
	}
}

// The simulation must find each of these bugs.
func TestSimulateFindsBugs(t *testing.T) {
	for _, p := range []plant{
		{name: "a printed byte is dropped", pty: badRead(dropByte)},
		{name: "a printed byte is doubled", pty: badRead(doubleByte)},
		{name: "a printed byte is changed", pty: badRead(changeByte)},
		{name: "a typed byte is dropped", pty: badWrite(dropByte)},
		{name: "a typed byte is doubled", pty: badWrite(doubleByte)},
		{name: "a typed byte is changed", pty: badWrite(changeByte)},
		{name: "a viewer skips a byte", step: inLoop(func(m *sim, c *client) {
			if _, end, _ := m.s.ring.Bounds(); c.v.a.pos < end {
				c.v.a.pos++
			}
		})},
		{name: "a viewer sees a byte twice", step: inLoop(func(_ *sim, c *client) { c.v.a.pos = max(1, c.v.a.pos) - 1 })},
		{name: "a size is not sent", step: inLoop(func(m *sim, c *client) { c.v.a.size = m.s.size })},
		{name: "a snapshot lacks a byte", step: inLoop(func(_ *sim, c *client) {
			c.v.a.left = max(1, c.v.a.left) - 1
		})},
		{name: "input is counted and not written", step: inLoop(func(m *sim, c *client) { _, _ = m.s.input.journal.Replace(c.spec.Writer, 1, nil) })},
		{name: "a writer is forgotten", step: inLoop(func(m *sim, c *client) {
			j := m.s.input.journal
			accepted, _, _ := j.Writer(c.spec.Writer)
			_ = j.Refuse(c.spec.Writer, int(accepted))
		})},
		{name: "the queue is in another order", step: func(m *sim) {
			m.s.do(func() {
				p := make([]byte, 64<<10)
				fd := m.s.input.journal.Files().Queue
				n, _ := unix.Pread(fd, p, 0)
				for i := 0; i+1 < n; i += 2 {
					p[i], p[i+1] = p[i+1], p[i]
				}
				_, _ = unix.Pwrite(fd, p[:max(0, n)], 0)
			})
		}},
		{name: "a view is not brought up to date", step: inLoop(func(m *sim, c *client) {
			if _, end, _ := m.s.ring.Bounds(); c.v.a.view != nil {
				c.v.a.pos = end
			}
		})},
		{name: "a view has another size", step: inLoop(func(_ *sim, c *client) {
			if c.v.a.view != nil {
				c.v.a.view = screen.NewOwn(protocol.Size{Cols: 33, Rows: 7}, nil)
			}
		})},
		{name: "a lost viewer is forgotten at once", step: inLoop(func(m *sim, _ *client) { clear(m.s.viewers.lost) })},
		{name: "the last writer does not decide the size", step: inLoop(func(m *sim, _ *client) { m.s.saved.Decider = "" })},
		{name: "the policy is forgotten", step: inLoop(func(m *sim, _ *client) { m.s.saved.SizePolicy = protocol.SizeLatest })},
		{name: "a window is mistaken", step: inLoop(func(_ *sim, c *client) { c.v.a.window.Rows++ })},
		{name: "a steal does not evict the other viewer", step: inLoop(func(m *sim, c *client) { c.v.a.spec.Mode = protocol.ModeShared })},
	} {
		t.Run(p.name, func(t *testing.T) {
			for seed := range uint64(500) { // the first seeds find most of the bugs
				if err := simulate(t, seed, p); err != nil {
					t.Logf("found: %v", err)
					return
				}
			}
			t.Error("no seed finds the bug")
		})
	}
}
