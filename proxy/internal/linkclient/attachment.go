package linkclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
)

const (
	// resumeTimeout is how long an attachment waits for a new link before it ends, so that its
	// client reconnects.
	resumeTimeout = 30 * time.Second
	// detachTimeout is how long Detach tries to send the message to a supervisor that does not
	// read.
	detachTimeout = time.Second
	// unsureTime is how long before the loss of a link a size may have been sent without being
	// received: a supervisor that execs another program reads no messages in its last moments.
	// Such a size is sent again, because a repeated size has no effect.
	unsureTime = 5 * time.Second
)

// An Item is one message from the supervisor: a whole data frame, which contains the attachment's
// number, or a control message.
type Item struct {
	Raw     []byte // valid until the next call of Next; nil for a control message
	Message protocol.Message
}

// An Attachment is a view of a session that survives the loss of the link: it continues at its
// offset over the next link.
//
// Next must be called by one goroutine at a time. The other methods may be called from any
// goroutine.
type Attachment struct {
	c      *Client
	number uint32
	ctx    context.Context // canceled by Close
	end    context.CancelFunc

	pos   protocol.Position // owned by the goroutine that calls Next
	queue []Item            // items that this process has made and Next has not returned; owned as pos

	leaving sync.Once
	sendMu  sync.Mutex // held while a message is sent, so that the supervisor receives messages in the order of the calls

	mu            sync.Mutex
	spec          protocol.AttachSpec // the viewer's present size, appearance and options
	st            *link.Stream
	pid           int // process id of the supervisor at the other end of st
	closed        bool
	resize        *wire.Resize     // the last size, until it is sent
	appearance    *wire.Appearance // the last appearance, until it is sent
	unconfirmed   *wire.Resize     // the last size that was sent, until a message shows that it was received
	sentAt        time.Time        // time when unconfirmed was sent
	isRepeat      bool             // resize holds a size that was sent before and not confirmed
	isPausing     bool             // the viewer asked for a pause, which must be repeated over each new link
	needsSnapshot bool             // the viewer's own view has changed its size since it was shown last, so output cannot continue it
}

// Attach attaches to a session. The data frames of both directions carry number.
func (c *Client) Attach(ctx context.Context, number uint32, spec protocol.AttachSpec) (*Attachment, *protocol.AttachInfo, error) {
	a := &Attachment{c: c, number: number, spec: spec}
	a.ctx, a.end = context.WithCancel(context.Background())
	info, err := a.attach(ctx, spec)
	if err != nil {
		a.end()
		return nil, nil, err
	}
	a.mu.Lock()
	a.spec.Writer = info.Writer
	a.spec.Steal = false // a resumed attachment must not replace the client that has replaced it meanwhile
	a.mu.Unlock()
	return a, info, nil
}

func (a *Attachment) attach(ctx context.Context, spec protocol.AttachSpec) (*protocol.AttachInfo, error) {
	st, reply, pid, err := a.c.openFrom(ctx, wire.Attach{Attachment: a.number, AttachSpec: spec})
	if err != nil {
		return nil, err
	}
	attached, err := wire.ReplyAs[*wire.Attached](reply, nil)
	if err != nil {
		st.Abort()
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		st.Abort()
		return nil, io.EOF
	}
	a.st, a.pid = st, pid
	a.needsSnapshot = a.spec.View == protocol.ViewOwn && (a.spec.Cols != spec.Cols || a.spec.Rows != spec.Rows)
	a.pos.Attached(attached.AttachInfo, spec.Resume)
	return &attached.AttachInfo, nil
}

// Next returns the next item. After an Exited, a Stolen, or Close it returns io.EOF. If the link
// is lost, Next attaches again over a new link. If output was missed, the next item is then a
// Resync. In each case an input_gap follows with the offset at which the client's input should
// continue. ctx limits the wait for a new link; Close ends a waiting Next.
func (a *Attachment) Next(ctx context.Context) (Item, error) {
	for {
		if len(a.queue) > 0 {
			item := a.queue[0]
			a.queue = a.queue[1:]
			return item, nil
		}
		item, err := a.read()
		if err == nil {
			return item, nil
		}
		if a.isClosed() || ctx.Err() != nil {
			return Item{}, io.EOF
		}
		if err = a.resume(ctx); a.isClosed() || ctx.Err() != nil {
			return Item{}, io.EOF
		}
		if err != nil {
			return Item{}, err
		}
	}
}

func (a *Attachment) read() (Item, error) {
	a.mu.Lock()
	st := a.st
	a.mu.Unlock()
	for {
		raw, err := st.Next()
		if err != nil {
			return Item{}, err
		}
		payload := raw[frame.HeaderLen:]
		switch kind := frame.Kind(raw[4]); kind {
		case frame.Control:
			m, _, err := wire.Messages.Decode(payload)
			if protocol.CodeOf(err) == protocol.CodeUnsupported {
				continue
			}
			if e, ok := m.(*wire.Error); ok && e.Code == protocol.CodeUpgrading {
				time.AfterFunc(linkEnd, st.Abort) // if the supervisor stays and no other link comes, this makes the attachment resume over the present one
				continue
			}
			a.note(m)
			return Item{Message: m}, err
		case frame.Output, frame.Snapshot, frame.View:
			_, offset, data, err := frame.ParseData(payload)
			if err != nil {
				return Item{}, err
			}
			switch kind {
			case frame.Output:
				a.pos.Output(offset, len(data))
			case frame.Snapshot:
				a.pos.Snapshot(len(data))
			default:
				a.pos.View(offset)
			}
			return Item{Raw: raw}, nil
		}
	}
}

// note updates the position for messages that change it, and closes the attachment after its last
// message.
func (a *Attachment) note(m protocol.Message) {
	switch m := m.(type) {
	case *wire.Resync:
		a.pos.Resync(m.Offset, m.BytesMissed, m.SnapshotBytes, m.View)
		a.mu.Lock()
		a.needsSnapshot, a.unconfirmed = false, nil
		a.mu.Unlock()
	case *wire.Resized:
		a.mu.Lock()
		a.unconfirmed = nil
		a.mu.Unlock()
	case *wire.Exited, *wire.Stolen:
		a.Close()
	}
}

// resume attaches again at the position, over a new link.
func (a *Attachment) resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resumeTimeout)
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()
	a.mu.Lock()
	a.st.Abort()
	if a.resize == nil && time.Since(a.sentAt) < unsureTime {
		a.resize, a.isRepeat = a.unconfirmed, a.unconfirmed != nil
	}
	a.unconfirmed = nil
	pid := a.pid
	a.mu.Unlock()
	var pause backoff
	for {
		info, screenOnly, err := a.attachAgain(ctx)
		if err == nil {
			a.dropUnconfirmed(pid)
			a.queueResumed(info, screenOnly)
			a.sendPending()
			return nil
		}
		if (protocol.CodeOf(err) != protocol.CodeSupervisorUnreachable || errors.Is(err, errDied)) && ctx.Err() == nil {
			return fmt.Errorf("resume: %w", err)
		}
		if pause.wait(ctx) != nil {
			return unreachable(err)
		}
	}
}

// dropUnconfirmed drops a size that is to be sent again, if the supervisor to which it was sent, whose process id was pid,
// has died: it may have died of that size. The resumed attachment has that size, and it takes effect when the viewer
// sends input.
func (a *Attachment) dropUnconfirmed(pid int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isRepeat && a.pid != pid {
		a.resize, a.isRepeat = nil, false
	}
}

// attachAgain waits for the link before it computes the attach, because the wait may be long and
// the viewer's size may change meanwhile.
func (a *Attachment) attachAgain(ctx context.Context) (info *protocol.AttachInfo, screenOnly bool, err error) {
	if _, err := a.c.Conn(ctx); err != nil {
		return nil, false, err
	}
	spec := a.Resumption()
	info, err = a.attach(ctx, spec)
	return info, spec.ScreenOnly, err
}

// Resumption returns the attach that continues at the present position. It must be called by the
// goroutine that calls Next, or after that goroutine has ended.
func (a *Attachment) Resumption() protocol.AttachSpec {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pos.Resume(a.spec, a.needsSnapshot)
}

func (a *Attachment) queueResumed(info *protocol.AttachInfo, screenOnly bool) {
	if info.Replay == protocol.ReplaySnapshot {
		a.queue = append(a.queue, Item{Message: &wire.Resync{
			Offset: info.Offset, BytesMissed: info.BytesMissed, SnapshotBytes: info.SnapshotBytes, View: info.View, ScreenOnly: screenOnly,
		}})
	}
	if a.spec.Mode == protocol.ModeReadOnly { // the viewer sends no input
		return
	}
	gap := &protocol.Error{Code: protocol.CodeInputGap, Message: "a new link was made: send the input again from offset", Retryable: true, Offset: &info.InputOffset}
	a.queue = append(a.queue, Item{Message: &wire.Error{Error: *gap}})
}

func (a *Attachment) isClosed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// SendRaw forwards a whole frame of input. If the frame is lost with the link, the supervisor
// asks for its bytes again after the resume.
func (a *Attachment) SendRaw(raw []byte) {
	a.mu.Lock()
	st := a.st
	a.mu.Unlock()
	_ = st.SendRaw(raw)
}

// Send sends a control message. It does not report a failure, because the viewer's last size and
// appearance are stored: a resumed attachment has them, and a size or appearance that could not
// be sent is sent then.
func (a *Attachment) Send(m protocol.Message) {
	a.sendMu.Lock()
	defer a.sendMu.Unlock()
	a.mu.Lock()
	switch m := m.(type) {
	case wire.Resize:
		a.storeSize(m)
	case wire.Appearance:
		a.spec.Appearance, a.appearance = &m.Appearance, &m
	case wire.Pause:
		a.isPausing = true
	}
	st := a.st
	a.mu.Unlock()
	if st.Send(m) == nil {
		a.noteSent(m)
	}
}

// storeSize stores the viewer's size; a.mu must be held.
func (a *Attachment) storeSize(m wire.Resize) {
	size := protocol.Size{Cols: m.Cols, Rows: m.Rows}.Normalize()
	old, _ := a.spec.OwnSize()
	a.needsSnapshot = a.needsSnapshot || a.spec.View == protocol.ViewOwn && size != old
	a.spec.Cols, a.spec.Rows, a.resize, a.isRepeat = size.Cols, size.Rows, &m, false
}

// noteSent notes that m was sent. a.sendMu must be held, so that m is the last message.
func (a *Attachment) noteSent(m protocol.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch m := m.(type) {
	case wire.Resize:
		a.resize, a.isRepeat, a.unconfirmed, a.sentAt = nil, false, &m, time.Now()
	case wire.Appearance:
		a.appearance = nil
	}
}

// sendPending sends the messages that could not be sent without a link. The size must be sent
// although the resumed attachment has it, because an attach alone does not change the session's
// size.
func (a *Attachment) sendPending() {
	a.sendMu.Lock()
	defer a.sendMu.Unlock()
	a.mu.Lock()
	st, resize, appearance, isPausing := a.st, a.resize, a.appearance, a.isPausing
	a.mu.Unlock()
	if resize != nil && st.Send(*resize) == nil {
		a.noteSent(*resize)
	}
	if appearance != nil && st.Send(*appearance) == nil {
		a.noteSent(*appearance)
	}
	if isPausing {
		_ = st.Send(wire.Pause{})
	}
}

// Detach ends the attachment because its viewer leaves; the session continues.
func (a *Attachment) Detach() {
	a.leave(func(st *link.Stream) {
		_ = st.SetDeadline(time.Now().Add(detachTimeout))
		_ = st.Send(wire.Detach{}) // if this fails, the supervisor counts the viewer as lost
	})
}

// Close ends the attachment of a viewer that was lost and may come back. The session continues.
func (a *Attachment) Close() { a.leave(func(*link.Stream) {}) }

// leave calls send and closes the stream, once. All callers return when that is done.
func (a *Attachment) leave(send func(*link.Stream)) {
	a.leaving.Do(func() {
		a.mu.Lock()
		st := a.st
		a.closed = true
		a.mu.Unlock()
		a.end()
		if st != nil {
			send(st)
			st.Abort() // the supervisor notices the close
		}
	})
}
