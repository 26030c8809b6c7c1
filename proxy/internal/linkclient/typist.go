package linkclient

import (
	"bytes"
	"context"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
)

const (
	// typingWindow is how much input a Typist holds that was not accepted.
	typingWindow = 1 << 20
	// sendWindow is how much of that is on its way: what is sent behind a
	// piece that the supervisor has no room for is thrown away there.
	sendWindow = 4 * frame.MaxData
)

// A Typist types for a client that knows nothing of offsets: it numbers the
// input, keeps what was not accepted yet, and sends it again where that is
// asked for.
//
//	all of it:  base ... sent ... base+len(data)
//	            accepted by the supervisor before base, sent once before sent
type Typist struct {
	// RetryMin and RetryMax are the shortest and the longest wait before input
	// that nobody answered for is sent again: an error is not repeated as long
	// as the input queue stays full. Accepted input is acknowledged within
	// about 20 ms.
	RetryMin, RetryMax time.Duration

	a    *Attachment
	work chan struct{} // there may be something to send
	room chan struct{} // there may be room

	mu     sync.Mutex
	data   []byte
	base   uint64
	sent   uint64
	window int  // how far sent may be ahead of base
	full   bool // the supervisor's queue was: send nothing before retry
}

// NewTypist returns a Typist for an attachment, from the offset on up to which
// its writer's input was accepted.
func NewTypist(a *Attachment, offset uint64) *Typist {
	return &Typist{
		RetryMin: 50 * time.Millisecond, RetryMax: 400 * time.Millisecond,
		a: a, work: make(chan struct{}, 1), room: make(chan struct{}, 1),
		base: offset, sent: offset, window: sendWindow,
	}
}

// Add takes as much of p as there is room for, and returns how much that was.
func (t *Typist) Add(p []byte) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(p), max(0, typingWindow-len(t.data)))
	t.data = append(t.data, p[:n]...)
	poke(t.work)
	return n
}

// Keep is Add for what must not be lost: for the last that comes before Rest, and
// for what that returned. It makes room.
func (t *Typist) Keep(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	poke(t.work)
}

// Room is poked when there may be room again.
func (t *Typist) Room() <-chan struct{} { return t.room }

// Run sends what was added until ctx is done.
func (t *Typist) Run(ctx context.Context) {
	wait, before := t.RetryMin, uint64(0)
	for {
		if f := t.next(t.a.number); f != nil {
			t.a.SendRaw(f)
			continue
		}
		accepted, waiting := t.state()
		if accepted != before {
			wait, before = t.RetryMin, accepted
		}
		var retry <-chan time.Time
		if waiting {
			retry = time.After(wait)
		}
		select {
		case <-t.work:
		case <-retry:
			t.retry()
			wait = min(2*wait, t.RetryMax)
		case <-ctx.Done():
			return
		}
	}
}

// Told acts on what the attachment is told about input, and reports whether m
// was that.
func (t *Typist) Told(m protocol.Message) bool {
	switch m := m.(type) {
	case *wire.Accepted:
		t.accepted(m.Offset)
		return true
	case *wire.Error:
		if m.Offset == nil || m.Code != protocol.CodeInputGap && m.Code != protocol.CodeInputFull {
			return false
		}
		t.resume(*m.Offset, m.Code == protocol.CodeInputFull)
		return true
	}
	return false
}

// next returns the frame to send next; nil while there is none, or too much is
// on its way.
func (t *Typist) next(number uint32) []byte {
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
func (t *Typist) accepted(offset uint64) {
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
func (t *Typist) resume(offset uint64, full bool) {
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
func (t *Typist) drop(offset uint64) {
	n := min(offset-t.base, uint64(len(t.data)))
	if t.data = t.data[n:]; len(t.data) == 0 {
		t.data = nil
	}
	t.base = offset
	t.sent = max(t.sent, t.base)
	poke(t.work)
	poke(t.room)
}

// Rest returns what was added and is not accepted.
func (t *Typist) Rest() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.data)
}

// retry tries again with one piece.
func (t *Typist) retry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent, t.window, t.full = t.base, frame.MaxData, false
}

// state returns how far input was accepted, and whether something waits for
// that.
func (t *Typist) state() (accepted uint64, waiting bool) {
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
