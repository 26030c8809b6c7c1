package client

import (
	"context"
	"io"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
)

// inputBuffer keeps what was written and not yet acknowledged, so that it can
// be sent again over another connection. It is guarded by the attachment's mu.
type inputBuffer struct {
	data  []byte
	base  uint64 // offset of data[0]: everything before was acknowledged
	sent  uint64 // offset of the next byte to send on this connection
	freed chan struct{}
}

func (b *inputBuffer) end() uint64 { return b.base + uint64(len(b.data)) }

// accepted drops what was acknowledged.
func (b *inputBuffer) accepted(offset uint64) {
	if offset <= b.base {
		return
	}
	n := min(offset, b.end()) - b.base
	if b.data = b.data[n:]; len(b.data) == 0 {
		b.data = nil
	}
	b.base += n
	b.sent = max(b.sent, b.base)
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// resume begins to send at offset, where the session left off. A fresh
// attachment of a known writer begins there too. An offset before base is that
// of a session which has forgotten this writer: what was acknowledged stays
// typed, and the rest goes on under the new numbers.
func (b *inputBuffer) resume(offset uint64, first bool) {
	if first || offset < b.base {
		b.base, b.sent = offset, offset
		return
	}
	b.accepted(offset)
	b.sent = max(b.base, min(offset, b.end()))
}

// settled reports whether everything written was acknowledged.
func (b *inputBuffer) settled() bool { return len(b.data) == 0 }

// next returns a copy of what is to be sent next, and its offset.
func (b *inputBuffer) next() ([]byte, uint64) {
	from := b.sent - b.base
	n := min(uint64(len(b.data))-from, frame.MaxData)
	b.sent += n
	return append([]byte(nil), b.data[from:from+n]...), b.sent - n
}

// Write types p. It returns when p is kept here and will arrive once, even if
// the proxy is replaced meanwhile; it waits while too much is unacknowledged.
// Errors: io.ErrClosedPipe after the session's or the attachment's end,
// permission_denied for a read-only attachment.
func (a *Attachment) Write(p []byte) (int, error) {
	if a.spec.Mode == protocol.ModeReadOnly {
		return 0, protocol.Errorf(protocol.CodePermissionDenied, "a read-only attachment does not type")
	}
	n := 0
	for n < len(p) {
		k, wait, err := a.keep(p[n:])
		n += k
		if err != nil {
			return n, err
		}
		if k > 0 {
			a.flush()
			continue
		}
		select {
		case <-wait:
		case <-a.ctx.Done():
		case <-a.done:
		}
	}
	return n, nil
}

// keep takes as much of p as the window allows, else returns what to wait for.
func (a *Attachment) keep(p []byte) (int, <-chan struct{}, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || a.ctx.Err() != nil {
		return 0, nil, io.ErrClosedPipe
	}
	n := min(len(p), inputWindow-len(a.in.data))
	if len(a.in.data) == 0 {
		a.asked = time.Now()
	}
	if n <= 0 {
		if a.in.freed == nil {
			a.in.freed = make(chan struct{})
		}
		return 0, a.in.freed, nil
	}
	a.in.data = append(a.in.data, p[:n]...)
	return n, nil, nil
}

// flush sends what this connection has not been sent yet. A connection that
// breaks is resumed by run.
func (a *Attachment) flush() {
	a.sendMu.Lock()
	defer a.sendMu.Unlock()
	for {
		a.mu.Lock()
		conn := a.conn
		if conn == nil {
			a.mu.Unlock()
			return
		}
		size, looks := a.resize, a.appearance
		a.resize, a.appearance = nil, nil
		p, offset := a.in.next()
		a.mu.Unlock()
		if !a.tell(conn, size, looks) {
			return
		}
		if len(p) == 0 {
			return
		}
		if conn.write(frame.AppendData(nil, frame.Input, number, offset, p)) != nil {
			return
		}
	}
}

// tell sends what there is to say of the viewer's terminal. What could not be
// sent is kept, unless there is a newer.
func (a *Attachment) tell(conn *conn, size *protocol.Size, looks *protocol.Appearance) bool {
	n := uint32(number)
	if size != nil && conn.send(api.Resize{Attachment: &n, Cols: size.Cols, Rows: size.Rows}) == nil {
		size = nil
	}
	if looks != nil && size == nil && conn.send(api.Appearance{Attachment: n, Appearance: *looks}) == nil {
		looks = nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.resize == nil {
		a.resize = size
	}
	if a.appearance == nil {
		a.appearance = looks
	}
	return size == nil && looks == nil
}

// Resize tells this viewer's size, now or when there is a connection again.
func (a *Attachment) Resize(cols, rows int) error {
	return a.say(func() {
		size := protocol.Size{Cols: cols, Rows: rows}
		old, _ := a.spec.OwnSize()
		now := size.Normalize()
		a.reshaped = a.reshaped || a.spec.View == protocol.ViewOwn && now != old
		a.spec.Cols, a.spec.Rows = now.Cols, now.Rows // of the next connection
		a.resize = &size
	})
}

// SetAppearance tells what this viewer's terminal looks like, now or when there
// is a connection again. It takes the place of all that was told before.
func (a *Attachment) SetAppearance(looks protocol.Appearance) error {
	if err := looks.Validate(); err != nil {
		return err
	}
	return a.say(func() { a.appearance, a.spec.Appearance = &looks, &looks })
}

// say notes what to tell, with mu held, and sends it.
func (a *Attachment) say(note func()) error {
	a.mu.Lock()
	if a.ended || a.ctx.Err() != nil {
		a.mu.Unlock()
		return io.ErrClosedPipe
	}
	note()
	a.mu.Unlock()
	a.flush()
	return nil
}

// Stalled returns for how long an answer has been outstanding: since the connection was
// lost, or since something was typed or the last message came while input is not
// acknowledged. 0 is a link of which nothing is expected, or that answers.
func (a *Attachment) Stalled() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || a.ctx.Err() != nil || a.conn != nil && a.in.settled() {
		return 0
	}
	since := a.lost
	if a.conn != nil {
		since = a.asked
	}
	if a.heard.After(since) {
		since = a.heard
	}
	return time.Since(since)
}

// Repaint has the session send its screen anew, as after a lost connection: for a viewer
// that has written something of its own over it.
func (a *Attachment) Repaint() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reshaped = true
	if a.conn != nil {
		_ = a.conn.Close() // run connects again
	}
}

// Interrupt sends SIGINT to the session's foreground process group.
func (a *Attachment) Interrupt(ctx context.Context) error {
	return a.c.Interrupt(ctx, a.spec.SessionID)
}

// Flush waits until everything written has been accepted by the session.
func (a *Attachment) Flush(ctx context.Context) error {
	for {
		a.mu.Lock()
		settled, ended := a.in.settled(), a.ended
		a.mu.Unlock()
		if settled {
			return nil
		}
		if ended || a.ctx.Err() != nil {
			return io.ErrClosedPipe
		}
		if err := pause(ctx, backoffMin); err != nil {
			return err
		}
	}
}
