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
	// resumeTimeout is how long an attachment waits for a lost link before it
	// gives up and lets its client come back by itself.
	resumeTimeout = 30 * time.Second
	// detachTimeout is how long Detach tries to say so to a supervisor that does
	// not read.
	detachTimeout = time.Second
	// unsure is how long before the loss of a link a size that was sent may not have
	// been heard: a supervisor that becomes another program hears nothing in its last
	// moments. More than once it changes nothing.
	unsure = 5 * time.Second
)

// An Item is one thing from the supervisor: a whole data frame, with the
// attachment's number in it, or a control message.
type Item struct {
	Raw     []byte // valid until the next call of Next; nil for a message
	Message protocol.Message
}

// An Attachment is a view of a session that survives the link's loss: it goes
// on at its offset over the next one.
//
// Next belongs to one goroutine; the other methods may be called from any.
type Attachment struct {
	c      *Client
	number uint32
	ctx    context.Context // ended by Close
	end    context.CancelFunc

	pos   protocol.Position // owned by Next's goroutine
	queue []Item            // the same: made here, not yet returned

	leaving sync.Once
	telling sync.Mutex // held while a message is sent, so that the last one sent is the last one given

	mu         sync.Mutex
	spec       protocol.AttachSpec // as this viewer is now
	st         *link.Stream
	closed     bool
	resize     *wire.Resize     // the last one given, until it is sent
	appearance *wire.Appearance // the same
	unheard    *wire.Resize     // the last one sent, until something says that it was heard
	sentAt     time.Time        // when that was
	repeats    bool             // resize is what was unheard
	pausing    bool             // it is to be paused, over whichever link
	reshaped   bool             // its own view had another size when it was shown last
}

// Attach attaches. number is put into the data frames of both directions.
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
	a.spec.Steal = false // who took this one's place while there was no link keeps it
	a.mu.Unlock()
	return a, info, nil
}

func (a *Attachment) attach(ctx context.Context, spec protocol.AttachSpec) (*protocol.AttachInfo, error) {
	st, reply, err := a.c.Open(ctx, wire.Attach{Attachment: a.number, AttachSpec: spec})
	if err != nil {
		return nil, err
	}
	attached, ok := reply.(*wire.Attached)
	if !ok {
		st.Abort()
		return nil, protocol.Errorf(protocol.CodeInternal, "attach answered by "+reply.MessageType())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		st.Abort()
		return nil, io.EOF
	}
	a.st = st
	a.reshaped = a.spec.View == protocol.ViewOwn && (a.spec.Cols != spec.Cols || a.spec.Rows != spec.Rows)
	a.pos.Attached(attached.AttachInfo, spec.Resume)
	return &attached.AttachInfo, nil
}

// Next returns what comes next. After an Exited, a Stolen, or Close it returns
// io.EOF. A lost link is made again first; what the client has to be told of
// that comes as messages: Resync where output was missed, and input_gap with
// the offset from which the client's input is wanted again. ctx bounds the making
// of a lost link; Close ends a Next that waits.
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
				time.AfterFunc(linkEnd, st.Abort) // where there is to be no other link it is time to resume over this one
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

// note keeps the position by the messages that change it, and closes after
// those that are the last.
func (a *Attachment) note(m protocol.Message) {
	switch m := m.(type) {
	case *wire.Resync:
		a.pos.Resync(m.Offset, m.BytesMissed, m.SnapshotBytes, m.View)
		a.mu.Lock()
		a.reshaped, a.unheard = false, nil
		a.mu.Unlock()
	case *wire.Resized:
		a.mu.Lock()
		a.unheard = nil
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
	if a.resize == nil && time.Since(a.sentAt) < unsure {
		a.resize, a.repeats = a.unheard, a.unheard != nil
	}
	a.unheard = nil
	a.mu.Unlock()
	pid := a.c.Welcome().PID
	backoff := backoffMin
	for {
		info, screenOnly, err := a.attachAgain(ctx)
		if err == nil {
			if a.c.Welcome().PID != pid {
				a.forgetUnheard() // the supervisor before may have died of it
			}
			a.queueResumed(info, screenOnly)
			a.tellAgain()
			return nil
		}
		if (protocol.CodeOf(err) != protocol.CodeSupervisorUnreachable || errors.Is(err, errDied)) && ctx.Err() == nil {
			return fmt.Errorf("resume: %w", err)
		}
		select {
		case <-time.After(backoff):
			backoff = min(2*backoff, backoffMax)
		case <-ctx.Done():
			return unreachable(err)
		}
	}
}

// forgetUnheard drops a size that may not have been heard. The attachment itself has it,
// and it counts when its viewer types.
func (a *Attachment) forgetUnheard() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.repeats {
		a.resize, a.repeats = nil, false
	}
}

// attachAgain makes the link first: that may take long, and the viewer may have
// another size by then.
func (a *Attachment) attachAgain(ctx context.Context) (info *protocol.AttachInfo, screenOnly bool, err error) {
	if _, err := a.c.Conn(ctx); err != nil {
		return nil, false, err
	}
	spec := a.Resumption()
	info, err = a.attach(ctx, spec)
	return info, spec.ScreenOnly, err
}

// Resumption is the attach that goes on from here. It is called by whoever calls
// Next, or when nobody does any more.
func (a *Attachment) Resumption() protocol.AttachSpec {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pos.Resume(a.spec, a.reshaped)
}

func (a *Attachment) queueResumed(info *protocol.AttachInfo, screenOnly bool) {
	if info.Replay == protocol.ReplaySnapshot {
		a.queue = append(a.queue, Item{Message: &wire.Resync{
			Offset: info.Offset, BytesMissed: info.BytesMissed, SnapshotBytes: info.SnapshotBytes, View: info.View, ScreenOnly: screenOnly,
		}})
	}
	gap := &protocol.Error{Code: protocol.CodeInputGap, Message: "the link was made again", Retryable: true, Offset: &info.InputOffset}
	a.queue = append(a.queue, Item{Message: &wire.Error{Error: *gap}})
}

func (a *Attachment) isClosed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// SendRaw passes on a whole frame of input. One that is lost with the link is
// asked for again after the resume.
func (a *Attachment) SendRaw(raw []byte) {
	a.mu.Lock()
	st := a.st
	a.mu.Unlock()
	_ = st.SendRaw(raw)
}

// Send sends a control message, best effort as SendRaw does. The viewer's last
// size and appearance are kept: the resumed attachment has them, and where they
// could not be sent they are sent again.
func (a *Attachment) Send(m protocol.Message) {
	a.telling.Lock()
	defer a.telling.Unlock()
	a.mu.Lock()
	switch m := m.(type) {
	case wire.Resize:
		a.resized(m)
	case wire.Appearance:
		a.spec.Appearance, a.appearance = &m.Appearance, &m
	case wire.Pause:
		a.pausing = true
	}
	st := a.st
	a.mu.Unlock()
	if st.Send(m) == nil {
		a.told(m)
	}
}

// resized is called with mu held.
func (a *Attachment) resized(m wire.Resize) {
	size := protocol.Size{Cols: m.Cols, Rows: m.Rows}.Normalize()
	old, _ := a.spec.OwnSize()
	a.reshaped = a.reshaped || a.spec.View == protocol.ViewOwn && size != old
	a.spec.Cols, a.spec.Rows, a.resize, a.repeats = size.Cols, size.Rows, &m, false
}

// told notes that a message was sent; telling is held, so it is the last.
func (a *Attachment) told(m protocol.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch m := m.(type) {
	case wire.Resize:
		a.resize, a.repeats, a.unheard, a.sentAt = nil, false, &m, time.Now()
	case wire.Appearance:
		a.appearance = nil
	}
}

// tellAgain sends what there was no link for. That the resumed attachment has
// the size is not enough: it changes nothing by itself.
func (a *Attachment) tellAgain() {
	a.telling.Lock()
	defer a.telling.Unlock()
	a.mu.Lock()
	st, resize, appearance, pausing := a.st, a.resize, a.appearance, a.pausing
	a.mu.Unlock()
	if resize != nil && st.Send(*resize) == nil {
		a.told(*resize)
	}
	if appearance != nil && st.Send(*appearance) == nil {
		a.told(*appearance)
	}
	if pausing {
		_ = st.Send(wire.Pause{})
	}
}

// Detach ends the attachment because its viewer leaves; the session lives on.
func (a *Attachment) Detach() {
	a.leave(func(st *link.Stream) {
		_ = st.SetDeadline(time.Now().Add(detachTimeout))
		_ = st.Send(wire.Detach{}) // where that fails the viewer counts as lost
	})
}

// Close ends the attachment of a viewer that was lost, and may come back. The
// session lives on.
func (a *Attachment) Close() { a.leave(func(*link.Stream) {}) }

// leave says good-bye and closes, once; it returns when that is done.
func (a *Attachment) leave(goodBye func(*link.Stream)) {
	a.leaving.Do(func() {
		a.mu.Lock()
		st := a.st
		a.closed = true
		a.mu.Unlock()
		a.end()
		if st != nil {
			goodBye(st)
			st.Abort() // the supervisor sees the close; nothing more is read here
		}
	})
}
