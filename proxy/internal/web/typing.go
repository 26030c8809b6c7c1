package web

import (
	"sync"

	"holdfast/protocol/frame"
)

const (
	// typingWindow is how much input a raw WebSocket holds that was not
	// accepted; beyond it the client is not read.
	typingWindow = 1 << 20
	// sendWindow is how much of that is on its way: what is sent behind a
	// piece that the supervisor has no room for is thrown away there.
	sendWindow = 4 * frame.MaxData
)

// typing is input that was not accepted yet, so that it can be sent again. The
// client of a raw WebSocket knows nothing of offsets; they are given here.
//
//	all of it:  base ... sent ... base+len(data)
//	            accepted by the supervisor before base, sent once before sent
type typing struct {
	work chan struct{} // there may be something to send
	room chan struct{} // there may be room

	mu     sync.Mutex
	data   []byte
	base   uint64
	sent   uint64
	window int  // how far sent may be ahead of base
	full   bool // the supervisor's queue was: send nothing before retry
}

func newTyping(offset uint64) *typing {
	return &typing{
		work: make(chan struct{}, 1), room: make(chan struct{}, 1),
		base: offset, sent: offset, window: sendWindow,
	}
}

// add takes as much of p as there is room for.
func (t *typing) add(p []byte) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(p), typingWindow-len(t.data))
	t.data = append(t.data, p[:n]...)
	poke(t.work)
	return n
}

// next returns the frame to send next; nil while there is none, or too much is
// on its way.
func (t *typing) next() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := int(t.sent - t.base)
	n := min(len(t.data), t.window) - from
	if n <= 0 || t.full {
		return nil
	}
	n = min(n, frame.MaxData)
	offset := t.sent
	t.sent += uint64(n)
	return frame.AppendData(nil, frame.Input, number, offset, t.data[from:from+n])
}

// accepted drops what the supervisor has.
func (t *typing) accepted(offset uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset <= t.base {
		return
	}
	t.drop(offset)
	if t.window < sendWindow {
		// The piece that was tried has been taken, or a part of it.
		t.window, t.sent = sendWindow, t.base
	}
}

// resume sends again from where the supervisor says it is. With full it waits
// for retry.
func (t *typing) resume(offset uint64, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset < t.base {
		// The supervisor has forgotten this writer. What was accepted stays
		// typed; the rest goes on under the new numbers.
		t.base = offset
	}
	t.drop(offset)
	t.sent, t.full = t.base, full
}

// drop moves base up to offset. mu is held.
func (t *typing) drop(offset uint64) {
	n := min(offset-t.base, uint64(len(t.data)))
	if t.data = t.data[n:]; len(t.data) == 0 {
		t.data = nil
	}
	t.base = offset
	t.sent = max(t.sent, t.base)
	poke(t.work)
	poke(t.room)
}

// retry tries again with one piece.
func (t *typing) retry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent, t.window, t.full = t.base, frame.MaxData, false
}

// state returns how far input was accepted, and whether something waits for
// that.
func (t *typing) state() (accepted uint64, waiting bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.base, len(t.data) > 0
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
