package linkserver

import (
	"context"
	"errors"
	"io"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/supervisor/internal/session"
)

// attach serves an attachment. This goroutine sends events to the viewer, and a second one
// receives the viewer's messages. If the viewer leaves while the session is busy, no attachment is made:
// clients that attach and leave again and again would fill the session otherwise.
func (s *Server) attach(ctx context.Context, st *link.Stream, m *wire.Attach) error {
	if err := m.Validate(); err != nil {
		return err
	}
	ss, err := s.cfg.Sessions.Get(m.SessionID)
	if err != nil {
		return err
	}
	attach := ss.Attach
	if m.Shadow {
		attach = ss.Shadow
	}
	waits, leave := context.WithCancel(ctx)
	defer leave()
	made, done := make(chan *session.Attachment, 1), make(chan struct{})
	defer close(made)
	go func() {
		defer close(done)
		first, end := st.Next()
		if end != nil {
			leave()
		}
		a := <-made
		if a == nil {
			return
		}
		receiveMessages(st, a, m.Attachment, first, end)
		a.Close()  // the viewer has gone, so Next returns io.EOF
		st.Abort() // ends a write that waits for the stream's window
	}()
	a, info, err := attach(waits, m.AttachSpec)
	if waits.Err() != nil { // nobody waits for the reply
		if a != nil {
			a.Detach()
		}
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	defer a.Close()
	made <- a
	s.viewers.Add(1)
	defer s.viewers.Add(-1)
	if err := st.Send(wire.Attached{AttachInfo: info}); err != nil {
		return err
	}
	s.overtaken(info.BytesMissed)
	err = s.sendItems(ctx, st, ss, a, m.Attachment)
	_ = st.Close()
	if err != nil {
		st.Abort()
	}
	<-done // the viewer closes its side after it has read the end
	return nil
}

// dataFrames has the kind of the frame that carries an item's data.
var dataFrames = [...]frame.Kind{session.ItemOutput: frame.Output, session.ItemSnapshot: frame.Snapshot, session.ItemView: frame.View}

// sendItems sends the attachment's items to the viewer until the attachment ends.
func (s *Server) sendItems(ctx context.Context, st *link.Stream, ss *session.Session, a *session.Attachment, number uint32) error {
	const head = frame.HeaderLen + frame.DataHeadLen
	buf := make([]byte, head+frame.MaxData)
	for {
		item, err := a.Next(ctx, buf[head:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch item.Kind {
		case session.ItemOutput, session.ItemSnapshot, session.ItemView:
			frame.PutDataHeader(buf, dataFrames[item.Kind], number, item.Offset, len(item.Data))
			err = st.SendRaw(buf[:head+len(item.Data)])
		case session.ItemPaused:
			err = st.Send(wire.Paused{InputOffset: item.Offset})
		case session.ItemAccepted:
			err = st.Send(wire.Accepted{Offset: item.Offset})
		case session.ItemInput:
			err = st.Send(wire.Typed{At: item.At, Offset: item.Offset, Data: item.Data, Masked: item.Masked})
		case session.ItemResized:
			err = st.Send(wire.Resized{Cols: item.Size.Cols, Rows: item.Size.Rows})
		case session.ItemResync:
			s.overtaken(item.Missed)
			err = st.Send(wire.Resync{
				Offset: item.Offset, BytesMissed: item.Missed, SnapshotBytes: item.Bytes, View: item.View, ScreenOnly: item.ScreenOnly,
			})
		case session.ItemStolen:
			err = st.Send(wire.Stolen{StolenBy: item.By, Detached: item.Detached})
		case session.ItemExited:
			err = st.Send(exited(ss))
		}
		if err != nil {
			return err
		}
	}
}

// receiveMessages handles the viewer's messages until the viewer closes its side. raw and end are what
// its stream has returned first. If a message fails, the viewer receives an error and the attachment continues.
func receiveMessages(st *link.Stream, a *session.Attachment, number uint32, raw []byte, end error) {
	// After a gap, a sender still sends input until it has read of the gap; one error is enough
	// for it. A full queue is reported each time, because it concerns exactly the bytes that
	// are needed next, and the sender must send them again.
	isGapReported := false
	for ; end == nil; raw, end = st.Next() {
		var err error
		kind, payload := frame.Kind(raw[4]), raw[frame.HeaderLen:]
		switch kind {
		case frame.Input:
			err = acceptInput(a, number, payload)
			if isGapReported && protocol.CodeOf(err) == protocol.CodeInputGap {
				continue
			}
			isGapReported = session.Incomplete(err)
		case frame.Control:
			err = handleControl(a, payload)
			if errors.Is(err, errDetach) {
				a.Detach()
				return
			}
		}
		if protocol.CodeOf(err) == protocol.CodeNotAttached {
			continue // the attachment has ended, and the next item tells why
		}
		if err != nil && st.Fail(err) != nil {
			return
		}
	}
}

func acceptInput(a *session.Attachment, number uint32, payload []byte) error {
	n, offset, data, err := frame.ParseData(payload)
	if err != nil {
		return err
	}
	if n != number {
		return protocol.Errorf(protocol.CodeBadFrame, "input frame names another attachment than its stream")
	}
	return a.Type(offset, data)
}

var errDetach = errors.New("detach")

func handleControl(a *session.Attachment, payload []byte) error {
	m, _, err := wire.Messages.Decode(payload)
	if err != nil {
		if protocol.CodeOf(err) == protocol.CodeUnsupported {
			return nil // unknown messages are ignored
		}
		return err
	}
	switch m := m.(type) {
	case *wire.Resize:
		return a.Resize(protocol.Size{Cols: m.Cols, Rows: m.Rows})
	case *wire.Pause:
		a.Pause()
	case *wire.Unpause:
		a.Unpause()
	case *wire.Appearance:
		return a.Appear(m.Appearance)
	case *wire.Interrupt:
		return a.Interrupt()
	case *wire.Detach:
		return errDetach
	}
	return nil
}

// events sends events to a subscriber until the subscriber closes the stream.
func (s *Server) events(ctx context.Context, st *link.Stream, m *wire.Events) error {
	hub := s.cfg.Sessions.Events()
	after := hub.Seq()
	if m.Instance == s.instance && m.After <= after {
		after = m.After
	}
	if err := st.Send(wire.Subscribed{Instance: s.instance, Seq: after}); err != nil {
		return err
	}
	ctx, cancel := untilPeerCloses(ctx, st)
	defer cancel()
	for {
		events, missed, err := hub.Next(ctx, after)
		if err != nil {
			return err
		}
		if missed > 0 {
			if err := st.Send(wire.Event{Seq: after + missed, Event: protocol.EventMissed, At: events[0].At, Missed: missed}); err != nil {
				return err
			}
		}
		for _, e := range events {
			if err := st.Send(wire.Event{Seq: e.Seq, Event: e.Kind, At: e.At, Session: e.Session, Notification: e.Notification}); err != nil {
				return err
			}
			after = e.Seq
		}
	}
}
