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
	// typingWindow is the largest number of bytes that a Typist holds before they are accepted.
	typingWindow = 1 << 20
	// sendWindow is how many of these bytes may be sent without an answer. It is small because
	// the supervisor drops all input behind a piece for which its queue has no room.
	sendWindow = 4 * frame.MaxData
)

// A Typist sends input for a client that does not know offsets. It numbers the input, holds the
// bytes that are not accepted yet, and sends them again if the supervisor asks for them.
//
//	offsets:  base ... sent ... base+len(data)
//	          bytes before base are accepted, bytes before sent were sent
type Typist struct {
	// RetryMin and RetryMax are the shortest and the longest wait before unanswered input is sent
	// again. A retry is needed because the supervisor reports a full input queue only once. It
	// acknowledges accepted input within about 20 ms.
	RetryMin, RetryMax time.Duration

	a    *Attachment
	work chan struct{} // sent to when there may be bytes to send
	room chan struct{} // sent to when there may be room

	mu     sync.Mutex
	data   []byte
	base   uint64
	sent   uint64
	window int  // largest difference of sent and base
	full   bool // the supervisor's queue was full: send no bytes before the retry
}

// NewTypist returns a Typist for an attachment. Its writer's input was accepted up to offset.
func NewTypist(a *Attachment, offset uint64) *Typist {
	return &Typist{
		RetryMin: 50 * time.Millisecond, RetryMax: 400 * time.Millisecond,
		a: a, work: make(chan struct{}, 1), room: make(chan struct{}, 1),
		base: offset, sent: offset, window: sendWindow,
	}
}

// Add appends as much of p as there is room for, and returns the number of bytes.
func (t *Typist) Add(p []byte) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(p), max(0, typingWindow-len(t.data)))
	t.data = append(t.data, p[:n]...)
	poke(t.work)
	return n
}

// Keep appends all of p, even if there is no room. It is for the last input before Rest and for
// the bytes that Rest returned, which must not be lost.
func (t *Typist) Keep(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	poke(t.work)
}

// Room returns a channel that receives a value when there may be room again.
func (t *Typist) Room() <-chan struct{} { return t.room }

// Run sends the added input until ctx is done.
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

// HandleReply handles a message of the attachment, and reports whether the message was about input.
func (t *Typist) HandleReply(m protocol.Message) bool {
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

// next returns the next frame to send, or nil if there are no bytes to send or the window is
// full.
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

// accepted drops the bytes before offset, because the supervisor has accepted them.
func (t *Typist) accepted(offset uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset <= t.base {
		return
	}
	t.drop(offset)
	if t.window < sendWindow {
		// The supervisor has accepted at least a part of the piece that was sent as a test.
		t.window, t.sent = sendWindow, t.base
	}
}

// resume sends input again from the offset that the supervisor names. If full is true, it waits
// for the retry.
func (t *Typist) resume(offset uint64, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset < t.base {
		// The supervisor has forgotten this writer. The accepted input was typed already; the
		// remaining input continues under the new offsets.
		t.base = offset
	}
	t.drop(offset)
	t.sent, t.full = t.base, full
}

// drop removes the bytes before offset; t.mu must be held.
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

// Rest returns the bytes that were added and are not accepted.
func (t *Typist) Rest() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.data)
}

// retry sends one piece again, to find out whether the supervisor has room.
func (t *Typist) retry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent, t.window, t.full = t.base, frame.MaxData, false
}

// state returns the accepted offset, and whether unaccepted bytes exist.
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
