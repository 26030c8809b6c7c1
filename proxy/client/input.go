package client

import (
	"bytes"
	"context"
	"io"
	"math"
	"strconv"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/resend"
)

// An inputBuffer holds the input that was written and not yet acknowledged, so that it can be
// sent again over another connection. It is guarded by the attachment's mu.
type inputBuffer struct {
	resend.Buffer
	freed chan struct{} // closed when there is room again; nil if nothing waits for room
}

// accepted drops the input before offset, because the session has acknowledged it.
func (b *inputBuffer) accepted(offset uint64) {
	if b.Accept(offset) {
		b.free()
	}
}

// resume sets the offset of the next byte to send to the offset that the session expects. first tells that this is a new
// attachment, which begins at that offset, too.
func (b *inputBuffer) resume(offset uint64, first bool) {
	if first {
		b.Renumber(offset)
		return
	}
	b.Resume(offset)
	b.free()
}

func (b *inputBuffer) free() {
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// isAcknowledged reports whether all written input was acknowledged.
func (b *inputBuffer) isAcknowledged() bool { return b.Len() == 0 }

// next returns a copy of the next bytes to send, and their offset.
func (b *inputBuffer) next() ([]byte, uint64) {
	p, offset := b.Next(frame.MaxData, math.MaxInt)
	return bytes.Clone(p), offset
}

// Write sends p as input. It returns when p is in the buffer, from which each byte will arrive
// once, even if the proxy is replaced meanwhile. It waits while too much input is unacknowledged.
// Its errors are permission_denied if the attachment is read-only, and io.ErrClosedPipe after the end of the attachment.
// The latter also matches the reason, unless Detach was called: session_exited, ErrStolen, or the error of the
// message Failed.
func (a *Attachment) Write(p []byte) (int, error) {
	if a.spec.Mode == protocol.ModeReadOnly {
		return 0, protocol.Errorf(protocol.CodePermissionDenied, "a read-only attachment does not type")
	}
	n := 0
	for n < len(p) {
		k, wait, err := a.buffer(p[n:])
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

// buffer appends as much of p to the input buffer as the window allows. If the window is full,
// buffer returns a channel that is closed when it has room again.
func (a *Attachment) buffer(p []byte) (int, <-chan struct{}, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hasEnded() {
		return 0, nil, a.endError()
	}
	n := min(len(p), inputWindow-a.in.Len())
	if a.in.Len() == 0 {
		a.unackedSince = time.Now()
		a.watchSilence()
	}
	if n <= 0 {
		if a.in.freed == nil {
			a.in.freed = make(chan struct{})
		}
		return 0, a.in.freed, nil
	}
	a.in.Add(p[:n])
	return n, nil, nil
}

// flush sends the input and settings that this connection does not have yet, and the end if Detach
// was called. If the connection breaks, run connects again.
func (a *Attachment) flush() {
	a.sendMu.Lock()
	defer a.sendMu.Unlock()
	a.mu.Lock()
	detaching := a.isDetaching
	a.mu.Unlock()
	if detaching { // nothing may follow the end
		_ = a.leave()
		return
	}
	a.sendAll()
}

// retry sends input again that the session did not accept, because its queue was full.
func (a *Attachment) retry() {
	a.mu.Lock()
	a.isFull = false
	a.mu.Unlock()
	a.flush()
}

// sendAll does the work of flush; a.sendMu must be held.
func (a *Attachment) sendAll() {
	for {
		a.mu.Lock()
		conn := a.conn
		if conn == nil {
			a.mu.Unlock()
			return
		}
		size, appearance := a.resize, a.appearance
		a.resize, a.appearance = nil, nil
		if size != nil {
			a.unconfirmed = size
			a.resizes++
		}
		id := resizeID(a.resizes)
		var p []byte
		var offset uint64
		if !a.isFull || a.isDetaching { // otherwise retry sends it
			p, offset = a.in.next()
		}
		a.mu.Unlock()
		if !a.sendTerminal(conn, id, size, appearance) {
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

// endError returns the error for calls after the end of the attachment: io.ErrClosedPipe, with the reason, unless Detach was
// called. a.mu must be held.
func (a *Attachment) endError() error {
	if a.why == nil {
		return io.ErrClosedPipe
	}
	return failed(io.ErrClosedPipe, a.why)
}

// hasEnded returns whether the attachment takes no more input; a.mu must be held.
func (a *Attachment) hasEnded() bool {
	return a.ended || a.isDetaching || a.ctx.Err() != nil
}

// resizeID returns the request id of the n-th size that is sent.
func resizeID(n int) string { return "size-" + strconv.Itoa(n) }

// confirm notes that the proxy has taken the size that was sent with the given request id. A size that the proxy does
// not confirm is sent again over the next connection.
func (a *Attachment) confirm(requestID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if requestID == resizeID(a.resizes) {
		a.unconfirmed = nil
	}
}

// sendTerminal sends the size, with a request id, and the appearance of the viewer's terminal. A value that could not
// be sent is kept, unless there is a newer one.
func (a *Attachment) sendTerminal(conn *conn, id string, size *protocol.Size, appearance *protocol.Appearance) bool {
	n := uint32(number)
	if size != nil && conn.send(api.Resize{Request: protocol.Request{RequestID: id}, Attachment: &n, Cols: size.Cols, Rows: size.Rows}) == nil {
		size = nil
	}
	if appearance != nil && size == nil && conn.send(api.Appearance{Attachment: n, Appearance: *appearance}) == nil {
		appearance = nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.resize == nil {
		a.resize = size
	}
	if a.appearance == nil {
		a.appearance = appearance
	}
	return size == nil && appearance == nil
}

// Resize sets this viewer's size, and sends it now or when there is a connection again. The error is invalid_argument if
// a number is negative.
func (a *Attachment) Resize(cols, rows int) error {
	if cols < 0 || rows < 0 {
		return protocol.Errorf(protocol.CodeInvalidArgument, "columns and rows must not be negative, but they are %d and %d", cols, rows)
	}
	return a.update(func() {
		size := protocol.Size{Cols: cols, Rows: rows}
		old, _ := a.spec.OwnSize()
		normalized := size.Normalize()
		a.needsSnapshot = a.needsSnapshot || a.spec.View == protocol.ViewOwn && normalized != old
		a.spec.Cols, a.spec.Rows = normalized.Cols, normalized.Rows // for the next connection
		a.resize = &size
	})
}

// SetAppearance sets the appearance of this viewer's terminal, and sends it now or when there is
// a connection again. It replaces the whole earlier appearance.
func (a *Attachment) SetAppearance(appearance protocol.Appearance) error {
	if err := appearance.Validate(); err != nil {
		return err
	}
	return a.update(func() { a.appearance, a.spec.Appearance = &appearance, &appearance })
}

// update calls set while it holds a.mu, and then sends the changed values.
func (a *Attachment) update(set func()) error {
	a.mu.Lock()
	if a.hasEnded() {
		defer a.mu.Unlock()
		return a.endError()
	}
	set()
	a.mu.Unlock()
	a.flush()
	return nil
}

// Stalled returns how long the proxy has owed an answer: since the connection was lost or, while
// input is unacknowledged, since that input was written or the last frame came. Through one of several gates, an answer is
// also due to a ping, which is sent after 15 s of silence. It returns 0 if no answer is due.
func (a *Attachment) Stalled() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stalled()
}

// watchSilence lets leaveSilent look at the connection after silentTime. a.mu must be held.
func (a *Attachment) watchSilence() {
	if a.silence != nil {
		a.silence.Reset(silentTime)
	}
}

// stalled is Stalled if a.mu is held.
func (a *Attachment) stalled() time.Duration {
	if a.ended || a.ctx.Err() != nil {
		return 0
	}
	since := a.lost
	if a.conn != nil {
		if since = a.unackedSince; a.in.isAcknowledged() {
			since = a.conn.silence.unanswered()
		}
	}
	if since.IsZero() {
		return 0
	}
	if a.lastFrame.After(since) {
		since = a.lastFrame
	}
	return time.Since(since)
}

// Repaint requests a new snapshot of the screen, by reconnecting. A viewer should call it after
// it has drawn over the screen.
func (a *Attachment) Repaint() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.needsSnapshot = true
	if a.conn != nil {
		_ = a.conn.Close() // run connects again
		return
	}
	a.repaint = true
}

// Interrupt sends SIGINT to the session's foreground process group.
func (a *Attachment) Interrupt(ctx context.Context) error {
	return a.c.Interrupt(ctx, a.spec.SessionID)
}

// Unacknowledged returns how many bytes of the written input the session has not acknowledged. After the end of the
// attachment, these bytes may not have reached the session.
func (a *Attachment) Unacknowledged() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.in.Len()
}

// Flush waits until the session has accepted all written input. If the attachment ends first, the error is that of Write
// after the end.
func (a *Attachment) Flush(ctx context.Context) error {
	for {
		a.mu.Lock()
		isAcknowledged, err := a.in.isAcknowledged(), a.endError()
		isOver := a.ended || a.ctx.Err() != nil
		a.mu.Unlock()
		if isAcknowledged {
			return nil
		}
		if isOver {
			return err
		}
		if err := pause(ctx, backoffMin); err != nil {
			return err
		}
	}
}
