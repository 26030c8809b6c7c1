package apiserver

import (
	"context"
	"maps"
	"slices"
	"sync"

	"holdfast/protocol"
	"holdfast/proxy/internal/linkclient"
)

// attachmentTable holds the attachments of a connection, including those that are being made.
type attachmentTable struct {
	mu        sync.Mutex
	byNumber  map[uint32]*attachment
	terminals map[protocol.SessionID]*attachment // the attachments that terminal.* messages refer to
}

func newAttachmentTable() attachmentTable {
	return attachmentTable{byNumber: make(map[uint32]*attachment), terminals: make(map[protocol.SessionID]*attachment)}
}

// reserve adds an attachment that is being made, and that ends with ctx. It fails if the number is
// in use, or if the connection has the maximum number of attachments.
func (t *attachmentTable) reserve(ctx context.Context, number uint32) (*attachment, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byNumber[number] != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "attachment %d is in use on this connection", number)
	}
	if len(t.byNumber) >= maxAttachments {
		return nil, protocol.Errorf(protocol.CodeLimitExceeded, "this connection already has %d attachments, which is the limit", maxAttachments)
	}
	a := &attachment{number: number, started: make(chan struct{}), ended: make(chan struct{})}
	a.ctx, a.cancel = context.WithCancel(ctx)
	t.byNumber[number] = a
	return a, nil
}

// open makes a reserved attachment usable.
func (t *attachmentTable) open(a *attachment, la *linkclient.Attachment, session protocol.SessionID, isText bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.link, a.session, a.isText, a.isReadOnly = la, session, isText, la.Resumption().Mode == protocol.ModeReadOnly
	if isText {
		t.terminals[session] = a
	}
	close(a.started)
}

// remove ends an attachment, so that its number may be used again.
func (t *attachmentTable) remove(a *attachment) {
	a.cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byNumber[a.number] == a {
		delete(t.byNumber, a.number)
	}
	if t.terminals[a.session] == a {
		delete(t.terminals, a.session)
	}
}

// get returns the attachment with the given number, or nil if there is none.
func (t *attachmentTable) get(number uint32) *attachment {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byNumber[number]
}

// await returns the attachment with the given number, or nil if there is none. If the attachment is
// still being made, await waits, because a client may send input right after its attach request.
func (t *attachmentTable) await(ctx context.Context, number uint32) *attachment {
	a := t.get(number)
	if a == nil {
		return nil
	}
	select {
	case <-a.started:
		return a
	case <-a.ended:
	case <-ctx.Done():
	}
	return nil
}

// terminal returns the attachment that shows the session to a text client, or nil.
func (t *attachmentTable) terminal(id protocol.SessionID) *attachment {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.terminals[id]
}

// detach ends the attachment with the given number, even if it is still being made. It returns when
// no further message has that number.
func (t *attachmentTable) detach(number uint32) {
	if a := t.get(number); a != nil {
		a.hasDetached.Store(true)
		a.cancel()
		<-a.ended
	}
}

// markDetached marks all attachments as detached, because the client has disconnected and cannot
// resume.
func (t *attachmentTable) markDetached() {
	for _, a := range t.all() {
		a.hasDetached.Store(true)
	}
}

// all returns all attachments.
func (t *attachmentTable) all() []*attachment {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byNumber))
}

// usable returns the attachments that have been made.
func (t *attachmentTable) usable() []*attachment {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(t.byNumber)), func(a *attachment) bool { return a.link == nil })
}

// count returns the number of attachments.
func (t *attachmentTable) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byNumber)
}
