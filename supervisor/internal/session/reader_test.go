//go:build linux || darwin

package session

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/ring"
)

// newReader returns a reader of a fake terminal, without a session.
func newReader(t *testing.T) (*reader, *fakePTY) {
	t.Helper()
	f := newFake(pty.Spec{})
	out, err := ring.New(64<<10, protocol.Size{Cols: 80, Rows: 24})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	r := &reader{source: f, ring: out, counter: new(atomic.Uint64)}
	r.makeChannels()
	return r, f
}

// A reader passes on each piece of output and ends soon after its child, also if a grandchild keeps
// the terminal open.
func TestReaderEnds(t *testing.T) {
	for name, held := range map[string]bool{"alone": false, "with a grandchild": true} {
		synctest.Test(t, func(t *testing.T) {
			r, f := newReader(t)
			f.held = held
			go r.run()
			f.print([]byte("first"))
			if c := <-r.chunks; c != (chunk{0, 5}) {
				t.Errorf("%s: got %+v", name, c)
			}
			f.print([]byte("last"))
			f.exit(pty.Status{})
			begun := time.Now()
			r.expectEnd()
			if c := <-r.chunks; c != (chunk{5, 4}) {
				t.Errorf("%s: got %+v", name, c)
			}
			if _, ok := <-r.chunks; ok || time.Since(begun) > 2*drainQuiet || r.counter.Load() != 9 {
				t.Errorf("%s: more output, or it ends after %v; %d bytes read", name, time.Since(begun), r.counter.Load())
			}
		})
	}
}

// lateOnce is a terminal whose reader is not scheduled for a while after it has set its first deadline.
type lateOnce struct {
	*fakePTY
	calls atomic.Int32
}

func (f *lateOnce) SetReadDeadline(at time.Time) error {
	err := f.fakePTY.SetReadDeadline(at)
	if f.calls.Add(1) == 2 { // the first call is that of loop
		time.Sleep(2 * drainQuiet)
	}
	return err
}

// A read that begins after its deadline does not show that there is no output.
func TestReaderIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newReader(t)
		f.held = true
		r.source = &lateOnce{fakePTY: f}
		go r.run()
		synctest.Wait()
		f.exit(pty.Status{})
		r.expectEnd()
		time.Sleep(drainQuiet + drainQuiet/2) // the reader has set its deadline
		f.print([]byte("last words"))
		n := 0
		for c := range r.chunks {
			n += c.n
		}
		if n != len("last words") {
			t.Errorf("%d bytes were read, want all", n)
		}
	})
}

// A halted reader has passed on all that it has read, and reads nothing until it is released, also
// if a second halt begins before.
func TestReaderHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newReader(t)
		go r.run()
		got := 0
		receive := func(c chunk) { got += c.n }
		f.print([]byte("before"))
		synctest.Wait()
		first, second := newHalt(), newHalt()
		r.stop(first, receive)
		if got != 6 {
			t.Errorf("%d bytes came before the halt", got)
		}
		f.print([]byte("within"))
		r.setDeadline(time.Time{})
		r.resume(first)
		synctest.Wait()
		if len(r.chunks) > 0 {
			t.Error("the reader reads before it is released")
		}
		r.stop(second, receive)
		if got != 6 {
			t.Errorf("%d bytes came by the second halt", got)
		}
		r.resume(second)
		r.setDeadline(time.Time{})
		r.release()
		if c := <-r.chunks; c != (chunk{6, 6}) {
			t.Errorf("after the halts: %+v", c)
		}
		f.exit(pty.Status{})
		for range r.chunks {
		}
		r.isOver = true
		r.stop(newHalt(), receive) // does not wait for a reader that has ended
	})
}
