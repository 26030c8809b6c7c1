package linkclient

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
)

// resumeTimeout is how long an attachment waits for a lost link before it
// gives up and lets its client come back by itself.
const resumeTimeout = 30 * time.Second

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
	spec   protocol.AttachSpec
	ctx    context.Context // ended by Close
	end    context.CancelFunc

	pos   protocol.Position // owned by Next's goroutine
	queue []Item            // the same: made here, not yet returned

	mu     sync.Mutex
	st     *link.Stream
	closed bool
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
	a.spec.Writer = info.Writer
	a.spec.Steal = false // who took this one's place while there was no link keeps it
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
	a.pos.Attached(attached.AttachInfo)
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
			a.note(m)
			return Item{Message: m}, err
		case frame.Output, frame.Snapshot:
			_, offset, data, err := frame.ParseData(payload)
			if err != nil {
				return Item{}, err
			}
			if kind == frame.Output {
				a.pos.Output(offset, len(data))
			} else {
				a.pos.Snapshot(len(data))
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
		a.pos.Resync(m.Offset, m.SnapshotBytes)
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
	a.mu.Unlock()
	backoff := backoffMin
	for {
		info, err := a.attach(ctx, a.pos.Resume(a.spec))
		if err == nil {
			a.queueResumed(info)
			return nil
		}
		if protocol.CodeOf(err) != protocol.CodeSupervisorUnreachable && ctx.Err() == nil {
			return fmt.Errorf("resume %s: %w", a.spec.SessionID, err)
		}
		select {
		case <-time.After(backoff):
			backoff = min(2*backoff, backoffMax)
		case <-ctx.Done():
			return unreachable(err)
		}
	}
}

func (a *Attachment) queueResumed(info *protocol.AttachInfo) {
	if info.Replay == protocol.ReplaySnapshot {
		a.queue = append(a.queue, Item{Message: &wire.Resync{
			Offset: info.Offset, BytesMissed: info.BytesMissed, SnapshotBytes: info.SnapshotBytes,
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

// Send sends a control message, best effort as SendRaw does.
func (a *Attachment) Send(m protocol.Message) {
	a.mu.Lock()
	st := a.st
	a.mu.Unlock()
	_ = st.Send(m)
}

// Close detaches; the session lives on.
func (a *Attachment) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.closed = true
	a.end()
	if a.st != nil {
		a.st.Abort() // the supervisor sees the close; nothing more is read here
	}
}
