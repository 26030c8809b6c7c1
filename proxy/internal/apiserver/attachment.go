package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
	"holdfast/proxy/policy"
)

// attachment is one of a connection's views of sessions.
type attachment struct {
	number   uint32
	ctx      context.Context // ended by detach, and with the connection
	cancel   context.CancelFunc
	begun    chan struct{} // closed when there is a link
	done     chan struct{} // closed when nothing more comes for the number
	session  protocol.SessionID
	link     *linkclient.Attachment
	text     bool // output goes as terminal.data
	readOnly bool
	size     protocol.Size        // last told, if any was; owned by the pump
	resume   *protocol.AttachSpec // where its client stopped taking output, of a connection that is moved; owned by the pump
	typist   *linkclient.Typist   // of a client that knows no offsets
	hush     context.CancelFunc   // ends the typist,
	hushed   chan struct{}        // which closes this
	left     atomic.Bool          // its client has detached, and was not lost
}

// leave ends the supervisor's side; the supervisor is told apart whether the
// viewer has left or may come back.
func (a *attachment) leave(la *linkclient.Attachment) {
	if a.left.Load() {
		la.Detach()
	} else {
		la.Close()
	}
}

// attachment returns the one of a number, nil if there is none. One that is being
// made is waited for: what its client sends behind the request is for it.
func (c *conn) attachment(number uint32) *attachment {
	c.mu.Lock()
	a := c.attachments[number]
	c.mu.Unlock()
	if a == nil {
		return nil
	}
	select {
	case <-a.begun:
		return a
	case <-a.done:
	case <-c.ctx.Done():
	}
	return nil
}

// reserve takes a number for an attachment that is being made.
func (c *conn) reserve(number uint32) (*attachment, error) {
	if c.from.Share != nil {
		c.s.seating.Lock()
		defer c.s.seating.Unlock()
		if c.s.linkAttachments(c.from.Share.key()) >= maxLinkAttachments {
			return nil, protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf("%d attachments by this share link", maxLinkAttachments))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.attachments[number] != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("attachment %d is in use on this connection", number))
	}
	if len(c.attachments) >= maxAttachments {
		return nil, protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf("%d attachments on this connection", maxAttachments))
	}
	a := &attachment{number: number, begun: make(chan struct{}), done: make(chan struct{})}
	a.ctx, a.cancel = context.WithCancel(c.ctx)
	c.attachments[number] = a
	return a, nil
}

// drop forgets an attachment; the number may be used again.
func (c *conn) drop(a *attachment) {
	a.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.attachments[a.number] == a {
		delete(c.attachments, a.number)
	}
	if c.terminals[a.session] == a {
		delete(c.terminals, a.session)
	}
}

// seat takes the number of an attach.
func (c *conn) seat(m *api.Attach) (*attachment, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return c.reserve(m.Attachment)
}

// attach makes an attachment and starts its pump. The answer is written before
// the pump's first frame. After an error the caller closes done, once it has said
// so: what was sent to the attachment meanwhile is answered behind that.
func (c *conn) attach(m *api.Attach, a *attachment) error {
	spec := m.AttachSpec
	spec.Move = 0 // the proxies' own
	if spec.Client == "" {
		spec.Client = c.hello.Client
	}
	if c.from.Share != nil {
		spec.Client, spec.Writer = sharedClient, sharedWriter(spec.Writer)
	}
	la, info, err := c.attachAllowed(a.ctx, m.Attachment, spec)
	if err != nil {
		c.drop(a)
		return err
	}
	c.begin(a, la, info, m.Text, func() {
		told := *info
		told.Session = c.shown(info.Session)
		c.addForeground(&told.Session)
		c.send(api.Attached{Request: m.Request, Attachment: m.Attachment, AttachInfo: told})
	})
	return nil
}

// attachAllowed attaches, if the client may.
func (c *conn) attachAllowed(ctx context.Context, number uint32, spec protocol.AttachSpec) (*linkclient.Attachment, *protocol.AttachInfo, error) {
	l, err := c.allowed(ctx, attachVerb(spec.Mode), spec.SessionID)
	if err != nil {
		return nil, nil, err
	}
	spec.SessionID = l.id
	la, info, err := c.s.cfg.Link.Attach(ctx, number, spec)
	if err != nil {
		return nil, nil, err
	}
	if l.instance != "" && info.Session.Instance != l.instance && !c.sees(&info.Session) { // it came in between
		la.Detach()
		return nil, nil, notFound(l.asked)
	}
	if spec.Mode != protocol.ModeReadOnly {
		c.followAgent(spec.Env)
	}
	c.observe(policy.Event{Kind: policy.EventAttached, SessionID: string(l.id), Labels: info.Session.Labels})
	return la, info, nil
}

// begin makes an attachment usable, says so, and pumps.
func (c *conn) begin(a *attachment, la *linkclient.Attachment, info *protocol.AttachInfo, text bool, announce func()) {
	c.mu.Lock()
	a.link, a.session, a.text, a.readOnly = la, info.Session.ID, text, la.Resumption().Mode == protocol.ModeReadOnly
	if text || c.bare() {
		a.typist = linkclient.NewTypist(la, info.InputOffset)
		var typing context.Context
		typing, a.hush = context.WithCancel(a.ctx)
		a.hushed = make(chan struct{})
		c.wg.Go(func() { defer close(a.hushed); a.typist.Run(typing) })
	}
	if text {
		c.terminals[a.session] = a
	}
	paused := c.paused
	c.mu.Unlock()
	close(a.begun)
	if paused { // without this one
		go a.pause()
	}
	stop := context.AfterFunc(a.ctx, func() { a.leave(la) }) // which ends the pump
	c.wg.Go(func() {
		defer close(a.done)
		announce()
		if c.pump(a) {
			return // whoever goes on with it has it
		}
		stop()
		a.leave(la)
		c.drop(a)
		c.observe(policy.Event{Kind: policy.EventDetached, SessionID: string(a.session), Labels: info.Session.Labels})
	})
}

// pump brings an attachment's output to the client until either ends, or until it
// rests because the connection is being moved.
func (c *conn) pump(a *attachment) (rests bool) {
	for {
		if a.resume == nil && c.isStuck() {
			// What comes now is read for the sake of the pause behind it.
			spec := a.link.Resumption()
			a.resume = &spec
		}
		item, err := a.link.Next(a.ctx)
		switch {
		case errors.Is(err, io.EOF) || a.ctx.Err() != nil:
			return a.resume != nil
		case err != nil:
			c.sendLast(a, a.failure(err))
			return false
		case item.Raw == nil:
			if p, ok := item.Message.(*wire.Paused); ok {
				a.rest(p.InputOffset)
				return true
			}
			if _, ok := item.Message.(*wire.Typed); ok || a.resume == nil { // what was typed does not come again
				c.tell(a, item.Message)
			}
		case a.resume != nil:
		case a.text:
			c.sendText(a, item.Raw)
		default:
			c.write(item.Raw)
		}
	}
}

func (c *conn) sendText(a *attachment, raw []byte) {
	_, _, data, err := frame.ParseData(raw[frame.HeaderLen:])
	if err == nil { // else the link's reader would have said so
		c.send(api.TerminalData{SessionID: a.session, Data: data})
	}
}

// tell turns a message of the link's attachment into the client's.
func (c *conn) tell(a *attachment, m protocol.Message) {
	if a.typist != nil && a.typist.Told(m) {
		return
	}
	n := a.number
	switch m := m.(type) {
	case *wire.Accepted:
		c.send(api.Accepted{Attachment: &n, Offset: m.Offset})
	case *wire.Resync:
		c.send(api.Resync{
			Attachment: n, Offset: m.Offset, BytesMissed: m.BytesMissed, SnapshotBytes: m.SnapshotBytes, View: m.View, ScreenOnly: m.ScreenOnly,
		})
	case *wire.Resized:
		size := protocol.Size{Cols: m.Cols, Rows: m.Rows}
		if size == a.size { // as it was before the connection was moved
			return
		}
		a.size = size
		c.send(api.Resized{Attachment: n, Cols: m.Cols, Rows: m.Rows})
	case *wire.Typed:
		c.send(api.Typed{Attachment: n, At: m.At, Offset: m.Offset, Data: m.Data, Masked: m.Masked})
	case *wire.Stolen:
		c.sendLast(a, api.Stolen{Attachment: n, StolenBy: m.StolenBy})
	case *wire.Exited:
		c.sendLast(a, c.exited(m, &n, 0))
	case *wire.Error:
		c.tellError(a, &m.Error)
	}
}

// tellError tells what went wrong on an attachment. Errors about input leave
// it as it is; typing into a session that has ended says nothing new, for its
// end follows; any other ends it.
func (c *conn) tellError(a *attachment, e *protocol.Error) {
	switch e.Code {
	case protocol.CodeSessionNotFound, protocol.CodeSessionExited:
		return
	case protocol.CodeInputFull, protocol.CodeInputGap, protocol.CodePermissionDenied, protocol.CodeLineTooLong:
		c.send(a.failure(e))
	default:
		a.left.Store(true)
		c.sendLast(a, a.failure(e))
	}
}

// failure tells what went wrong on an attachment, in words that its client
// knows.
func (a *attachment) failure(err error) protocol.Message {
	if a.number >= firstTerminal {
		return terminalError(protocol.Request{}, a.session, err)
	}
	return api.Error{Attachment: &a.number, Error: *protocol.AsError(err)}
}

// exited tells a session's end in the form the client asked for.
func (c *conn) exited(m *wire.Exited, attachment *uint32, seq uint64) protocol.Message {
	if c.from.Share != nil {
		i := c.shown(protocol.SessionInfo{Labels: m.Labels, Exit: &m.Exit})
		m = &wire.Exited{SessionID: m.SessionID, Instance: m.Instance, Labels: i.Labels, Exit: *i.Exit}
	}
	if c.hello.Capabilities.Has(protocol.CapTerminalExit) {
		return api.TerminalExit{
			SessionID: m.SessionID, ExitCode: m.Exit.ExitCode, Reason: m.Exit.Reason, Attachment: attachment, Seq: seq,
		}
	}
	return ptyExited(m, attachment, seq)
}

// ptyExited reads what the labels mean; the supervisor does not know.
func ptyExited(m *wire.Exited, attachment *uint32, seq uint64) api.PTYExited {
	out := api.PTYExited{
		SessionID: m.SessionID, PaneID: string(m.SessionID), Instance: m.Instance,
		ExitCode: m.Exit.ExitCode, LastLines: m.Exit.LastLines, TimedOut: m.Exit.TimedOut,
		Reason: m.Exit.Reason, Signal: m.Exit.Signal, Outcome: m.Exit.Outcome,
		SessionTitle: m.Labels[protocol.LabelTitle], SessionDescription: m.Labels[protocol.LabelDescription],
		Attachment: attachment, Seq: seq,
	}
	if out.LastLines == nil {
		out.LastLines = []string{}
	}
	if pane := m.Labels[protocol.LabelPane]; protocol.ValidID(pane) {
		out.PaneID = pane
	}
	if agent, ok := m.Labels[protocol.LabelParentAgent]; ok {
		out.ParentAgent = &agent
	}
	return out
}

// detach ends an attachment, also one that is still being made, and answers
// when nothing more comes for its number.
func (c *conn) detach(number uint32) {
	c.mu.Lock()
	a := c.attachments[number]
	c.mu.Unlock()
	if a != nil {
		a.left.Store(true)
		a.cancel()
		<-a.done
	}
}
