package apiserver

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
	"holdfast/proxy/policy"
)

// attachment is a connection's view of one session.
type attachment struct {
	number        uint32
	ctx           context.Context // ends with detach, and with the connection
	cancel        context.CancelFunc
	started       chan struct{} // closed when link is set
	ended         chan struct{} // closed when no further message has this number
	session       protocol.SessionID
	link          *linkclient.Attachment
	isText        bool // output is sent as terminal.data
	isReadOnly    bool
	sentSize      protocol.Size        // the size that was sent to the client last, or zero; owned by the pump
	frozenAt      *protocol.AttachSpec // the position at which a frozen client stopped receiving output, or nil; owned by the pump
	typist        *linkclient.Typist   // sends the input of a client that uses no offsets, or nil
	stopTypist    context.CancelFunc   // ends the typist
	typistStopped chan struct{}        // closed when the typist has ended
	pausing       sync.Once            // sends the request to pause
	hasDetached   atomic.Bool          // the client has detached, so it will not resume
}

// endLink ends the supervisor's side of the attachment. It tells the supervisor whether the viewer
// has detached or may resume.
func (a *attachment) endLink(la *linkclient.Attachment) {
	if a.hasDetached.Load() {
		la.Detach()
	} else {
		la.Close()
	}
}

// reserve reserves a number for an attachment that is being made. It fails if the number is in use,
// or if the connection or its share link has the maximum number of attachments.
func (c *conn) reserve(number uint32) (*attachment, error) {
	if c.from.Share != nil {
		c.s.shareMu.Lock()
		defer c.s.shareMu.Unlock()
		if c.s.linkAttachments(c.from.Share.key()) >= maxLinkAttachments {
			return nil, protocol.Errorf(protocol.CodeLimitExceeded, "this share link already has %d attachments, which is the limit", maxLinkAttachments)
		}
	}
	return c.attachments.reserve(c.ctx, number)
}

// reserveFor checks an attach request and reserves the number that it asks for.
func (c *conn) reserveFor(m *api.Attach) (*attachment, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if m.Attachment >= firstTerminal {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "attachment must be below %d, but it is %d", firstTerminal, m.Attachment)
	}
	return c.reserve(m.Attachment)
}

// attach makes an attachment and starts its pump. The answer to the request is written before the
// first frame of output. If attach fails, the caller must close a.ended after it has sent the
// error, so that messages that the client sent to the attachment meanwhile are answered after the
// error.
func (c *conn) attach(m *api.Attach, a *attachment) error {
	spec := m.AttachSpec
	spec.Move = 0 // only proxies use this field
	if spec.Client == "" {
		spec.Client = c.hello.Client
	}
	if c.from.Share != nil {
		spec.Client, spec.Writer = sharedClient, sharedWriter(spec.Writer)
	}
	la, info, err := c.attachAllowed(a.ctx, m.Attachment, spec)
	if err != nil {
		c.attachments.remove(a)
		if a.hasDetached.Load() && errors.Is(err, context.Canceled) {
			return protocol.Errorf(protocol.CodeNotAttached, "attachment %d was detached before it was made", a.number)
		}
		return err
	}
	c.begin(a, la, info, m.Text, func() {
		shown := *info
		shown.Session = c.clientView(info.Session)
		c.addForeground(&shown.Session)
		c.send(api.Attached{Request: m.Request, Attachment: m.Attachment, AttachInfo: shown})
	})
	return nil
}

// attachAllowed attaches to the session of spec, if the client has the permission for the mode of
// spec.
func (c *caller) attachAllowed(ctx context.Context, number uint32, spec protocol.AttachSpec) (*linkclient.Attachment, *protocol.AttachInfo, error) {
	l, err := c.authorizeSession(ctx, attachVerb(spec.Mode), spec.SessionID)
	if err != nil {
		return nil, nil, err
	}
	spec.SessionID = l.id
	la, info, err := c.s.cfg.Link.Attach(ctx, number, spec)
	if err != nil {
		return nil, nil, err
	}
	if l.instance != "" && info.Session.Instance != l.instance && !c.canSee(&info.Session) { // another session took the id meanwhile
		la.Detach()
		return nil, nil, notFound(l.requestedID)
	}
	if spec.Mode != protocol.ModeReadOnly {
		c.followAgent(spec.Env)
	}
	c.observe(policy.Event{Kind: policy.EventAttached, SessionID: string(l.id), Labels: info.Session.Labels})
	return la, info, nil
}

// begin makes an attachment usable, calls announce to notify the client, and starts the pump.
func (c *conn) begin(a *attachment, la *linkclient.Attachment, info *protocol.AttachInfo, text bool, announce func()) {
	if text || c.isBare() {
		a.typist = linkclient.NewTypist(la, info.InputOffset)
		var typistCtx context.Context
		typistCtx, a.stopTypist = context.WithCancel(a.ctx)
		a.typistStopped = make(chan struct{})
		c.wg.Go(func() { defer close(a.typistStopped); a.typist.Run(typistCtx) })
	}
	c.attachments.open(a, la, info.Session.ID, text)
	if c.life.is(phasePausing) { // pause may have run before this attachment was usable
		go a.pause()
	}
	stop := context.AfterFunc(a.ctx, func() { a.endLink(la) }) // this ends the pump
	c.wg.Go(func() {
		defer close(a.ended)
		announce()
		if c.pump(a) {
			return // the connection has been frozen, and its record describes the attachment
		}
		stop()
		a.endLink(la)
		c.attachments.remove(a)
		c.observe(policy.Event{Kind: policy.EventDetached, SessionID: string(a.session), Labels: info.Session.Labels})
	})
}

// pump carries the output of an attachment to the client until the session, the attachment or the
// connection ends. It returns true if it stopped because the connection is being frozen; the
// attachment must then be described in the record of the connection.
func (c *conn) pump(a *attachment) (isFrozen bool) {
	for {
		if a.frozenAt == nil && c.isStuck() {
			// The client takes no more output. The pump reads the remaining messages up to Paused,
			// but does not write them: the next proxy continues from this position.
			spec := a.link.Resumption()
			a.frozenAt = &spec
		}
		item, err := a.link.Next(a.ctx)
		switch {
		case errors.Is(err, io.EOF) || a.ctx.Err() != nil:
			return a.frozenAt != nil
		case err != nil:
			c.sendLast(a, a.errorMessage(err))
			return false
		case item.Raw == nil:
			if p, ok := item.Message.(*wire.Paused); ok {
				a.finishPause(p.InputOffset)
				return true
			}
			if _, ok := item.Message.(*wire.Typed); ok || a.frozenAt == nil { // echoed input is not repeated when the attachment resumes
				c.relayMessage(a, item.Message)
			}
		case a.frozenAt != nil:
		case a.isText:
			c.sendText(a, item.Raw)
		default:
			c.write(item.Raw)
		}
	}
}

func (c *conn) sendText(a *attachment, raw []byte) {
	_, _, data, err := frame.ParseData(raw[frame.HeaderLen:])
	if err == nil { // the reader of the link has already checked the frame
		c.send(api.TerminalData{SessionID: a.session, Data: data})
	}
}

// relayMessage turns a message of the attachment's link into a message of the api, and sends it.
func (c *conn) relayMessage(a *attachment, m protocol.Message) {
	if a.typist != nil && a.typist.HandleReply(m) {
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
		if size == a.sentSize { // the client knows this size from before the connection was moved
			return
		}
		a.sentSize = size
		c.send(api.Resized{Attachment: n, Cols: m.Cols, Rows: m.Rows})
	case *wire.Typed:
		c.send(api.Typed{Attachment: n, At: m.At, Offset: m.Offset, Data: m.Data, Masked: m.Masked})
	case *wire.Stolen:
		c.sendLast(a, api.Stolen{Attachment: n, StolenBy: m.StolenBy, Detached: m.Detached})
	case *wire.Exited:
		c.sendLast(a, c.exitMessage(m, &n, 0))
	case *wire.Error:
		c.relayError(a, &m.Error)
	}
}

// relayError sends an error of an attachment to the client. An error about input does not end the
// attachment. If the session has ended, relayError sends no error, because the exit follows. Any
// other error ends the attachment.
func (c *conn) relayError(a *attachment, e *protocol.Error) {
	switch e.Code {
	case protocol.CodeSessionNotFound, protocol.CodeSessionExited:
		return
	case protocol.CodeInputFull, protocol.CodeInputGap, protocol.CodePermissionDenied, protocol.CodeLineTooLong:
		c.send(a.errorMessage(e))
	default:
		a.hasDetached.Store(true)
		c.sendLast(a, a.errorMessage(e))
	}
}

// errorMessage returns the message that reports err for this attachment: terminal.error for an
// attachment made by terminal.open, and error for any other.
func (a *attachment) errorMessage(err error) protocol.Message {
	if a.number >= firstTerminal {
		return terminalError(protocol.Request{}, a.session, err)
	}
	return api.Error{Attachment: &a.number, Error: *protocol.AsError(err)}
}

// exitMessage returns the end of a session in the form that the client asked for in its hello.
func (c *caller) exitMessage(m *wire.Exited, attachment *uint32, seq uint64) protocol.Message {
	if c.from.Share != nil {
		i := c.clientView(protocol.SessionInfo{Labels: m.Labels, Exit: &m.Exit})
		m = &wire.Exited{SessionID: m.SessionID, Instance: m.Instance, Labels: i.Labels, Exit: *i.Exit}
	}
	if c.hello.Capabilities.Has(protocol.CapTerminalExit) {
		return api.TerminalExit{
			SessionID: m.SessionID, ExitCode: m.Exit.ExitCode, Reason: m.Exit.Reason, Attachment: attachment, Seq: seq,
			ExitedAt: m.Exit.ExitedAt,
		}
	}
	return ptyExited(m, attachment, seq)
}

// ptyExited returns the pty.exited message, with the fields that it takes from labels. The
// supervisor does not interpret labels.
func ptyExited(m *wire.Exited, attachment *uint32, seq uint64) api.PTYExited {
	out := api.PTYExited{
		SessionID: m.SessionID, PaneID: string(m.SessionID), Instance: m.Instance,
		ExitCode: m.Exit.ExitCode, LastLines: m.Exit.LastLines, TimedOut: m.Exit.TimedOut,
		Reason: m.Exit.Reason, Signal: m.Exit.Signal, Outcome: m.Exit.Outcome,
		SessionTitle: m.Labels[protocol.LabelTitle], SessionDescription: m.Labels[protocol.LabelDescription],
		Attachment: attachment, Seq: seq, ExitedAt: m.Exit.ExitedAt,
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
