package linkclient

import (
	"bytes"
	"context"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/resend"
)

const (
	// typingWindow is the largest number of bytes that a Typist holds before they are accepted: twice those that are
	// sent. A connection may have 256 of them, and all are a part of its state in a handoff.
	typingWindow = 2 * sendWindow
	// sendWindow is how many of these bytes may be sent without an answer. It is small because
	// the supervisor drops all input behind a piece for which its queue has no room.
	sendWindow = 4 * frame.MaxData
)

// A Typist sends input for a client that does not know offsets. It numbers the input, holds the
// bytes that are not accepted yet, and sends them again if the supervisor asks for them.
type Typist struct {
	// retryMin and retryMax are the shortest and the longest wait before unanswered input is sent
	// again. A retry is needed because the supervisor reports a full input queue only once. It
	// acknowledges accepted input within about 20 ms.
	retryMin, retryMax time.Duration

	a    *Attachment
	work chan struct{} // sent to when there may be bytes to send
	room chan struct{} // sent to when there may be room

	mu     sync.Mutex
	in     resend.Buffer
	window int  // largest number of bytes that are sent and not accepted
	full   bool // the supervisor's queue was full: send no bytes before the retry
}

// NewTypist returns a Typist for an attachment. Its writer's input was accepted up to offset.
func NewTypist(a *Attachment, offset uint64) *Typist {
	t := &Typist{
		retryMin: 50 * time.Millisecond, retryMax: 400 * time.Millisecond,
		a: a, work: make(chan struct{}, 1), room: make(chan struct{}, 1), window: sendWindow,
	}
	t.in.Renumber(offset)
	return t
}

// Add appends as much of p as there is room for, and returns the number of bytes.
func (t *Typist) Add(p []byte) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(p), max(0, typingWindow-t.in.Len()))
	t.in.Add(p[:n])
	poke(t.work)
	return n
}

// Keep appends all of p, even if there is no room. It is for the last input before Rest and for
// the bytes that Rest returned, which must not be lost.
func (t *Typist) Keep(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in.Add(p)
	poke(t.work)
}

// Room returns a channel that receives a value when there may be room again.
func (t *Typist) Room() <-chan struct{} { return t.room }

// Run sends the added input until ctx is done.
func (t *Typist) Run(ctx context.Context) {
	wait, before := t.retryMin, uint64(0)
	for {
		if f := t.next(t.a.number); f != nil {
			t.a.SendRaw(f)
			continue
		}
		accepted, waiting := t.state()
		if accepted != before {
			wait, before = t.retryMin, accepted
		}
		var retry <-chan time.Time
		if waiting {
			retry = time.After(wait)
		}
		select {
		case <-t.work:
		case <-retry:
			t.retry()
			wait = min(2*wait, t.retryMax)
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
	if t.full {
		return nil
	}
	p, offset := t.in.Next(frame.MaxData, t.window)
	if len(p) == 0 {
		return nil
	}
	return frame.AppendData(nil, frame.Input, number, offset, p)
}

// accepted drops the bytes before offset, because the supervisor has accepted them.
func (t *Typist) accepted(offset uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.in.Accept(offset) {
		return
	}
	t.poke()
	if t.window < sendWindow {
		// The supervisor has accepted at least a part of the piece that was sent as a test.
		t.window = sendWindow
		t.in.Repeat()
	}
}

// resume sends input again from the offset that the supervisor names. If full is true, it waits
// for the retry.
func (t *Typist) resume(offset uint64, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in.Resume(offset)
	t.full = full
	t.poke()
}

// poke wakes the goroutines that wait for bytes to send, and for room.
func (t *Typist) poke() {
	poke(t.work)
	poke(t.room)
}

// Rest returns the bytes that were added and are not accepted.
func (t *Typist) Rest() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.in.Bytes())
}

// retry sends one piece again, to find out whether the supervisor has room.
func (t *Typist) retry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in.Repeat()
	t.window, t.full = frame.MaxData, false
}

// state returns the accepted offset, and whether unaccepted bytes exist.
func (t *Typist) state() (accepted uint64, waiting bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.in.Base(), t.in.Len() > 0
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
