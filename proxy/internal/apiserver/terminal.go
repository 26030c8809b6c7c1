package apiserver

import (
	"context"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/proxy/policy"
)

// The terminal.* messages are for clients that use text only. A client opens a session for a task,
// receives its output as base64, and names the session only by its id.

// firstTerminal is the first number of attachments made by terminal.open. Clients that also attach
// by number must use smaller numbers.
const firstTerminal = 1 << 31

// terminalOpen starts a session for a task, attaches to it and answers the request.
func (c *conn) terminalOpen(ctx context.Context, q *request, m *api.TerminalOpen) error {
	// Reserve the attachment first, because a session that cannot be shown must not be started.
	a, err := c.reserveTerminal()
	if err != nil {
		c.send(terminalError(m.Request, "", err))
		return nil
	}
	if id, err := c.openTerminal(ctx, q, a, m); err != nil {
		c.attachments.remove(a)
		close(a.ended)
		if ctx.Err() == nil {
			c.send(terminalError(m.Request, id, err))
		}
	}
	return nil
}

// openTerminal starts the session and the attachment. It returns the session's id even if attaching
// fails.
func (c *conn) openTerminal(ctx context.Context, q *request, a *attachment, m *api.TerminalOpen) (protocol.SessionID, error) {
	create := wire.Create{}
	var err error
	if create.SpawnSpec, err = c.resolve(ctx, m); err != nil {
		return "", err
	}
	if err := c.authorizeSpawn(ctx, &create); err != nil {
		return "", err
	}
	if err := c.s.applyLabels(&create); err != nil {
		return "", err
	}
	if err := c.authorize(ctx, policy.Access{Verb: policy.VerbType, Labels: create.Labels}); err != nil {
		return "", err // refuse before the session exists
	}
	info, err := c.spawn(ctx, q, create, nil)
	if err != nil {
		return "", err
	}
	la, attached, err := c.s.cfg.Link.Attach(a.ctx, a.number, protocol.AttachSpec{SessionID: info.ID, Client: c.hello.Client, Answers: true})
	if err != nil {
		return info.ID, err
	}
	c.observe(policy.Event{Kind: policy.EventAttached, SessionID: string(info.ID), Labels: info.Labels})
	c.begin(a, la, attached, true, func() {
		c.send(api.TerminalOpened{Request: m.Request, SessionID: info.ID, WorkDir: info.Cwd, Shell: info.Argv[0]})
	})
	return info.ID, nil
}

// reserveTerminal reserves the first free number for an attachment of terminal.open.
func (c *conn) reserveTerminal() (*attachment, error) {
	for n := uint32(firstTerminal); ; n++ {
		a, err := c.reserve(n)
		if protocol.CodeOf(err) != protocol.CodeInvalidArgument {
			return a, err
		}
	}
}

// terminalData sends input to the session.
func (c *conn) terminalData(m *api.TerminalData) {
	a := c.attachments.terminal(m.SessionID)
	if a == nil {
		c.send(terminalError(protocol.Request{}, m.SessionID, noTerminal(m.SessionID)))
		return
	}
	if a.isReadOnly {
		c.send(terminalError(protocol.Request{}, m.SessionID, protocol.Errorf(protocol.CodePermissionDenied, "a read-only attachment cannot send input")))
		return
	}
	if n := a.typist.Add(m.Data); n < len(m.Data) {
		c.send(terminalError(protocol.Request{}, m.SessionID, protocol.Errorf(protocol.CodeInputFull,
			"the session accepts no more input now: the last %d of %d bytes were dropped; send them again later", len(m.Data)-n, len(m.Data))))
	}
}

// terminalResize sends the size of the client's window.
func (c *conn) terminalResize(m *api.TerminalResize) {
	resize := wire.Resize{Cols: m.Cols, Rows: m.Rows}
	a, err := c.attachments.terminal(m.SessionID), resize.Validate()
	switch {
	case a == nil:
		c.send(terminalError(protocol.Request{}, m.SessionID, noTerminal(m.SessionID)))
	case err != nil:
		c.send(terminalError(protocol.Request{}, m.SessionID, err))
	default:
		a.link.Send(resize)
	}
}

func noTerminal(id protocol.SessionID) error {
	return protocol.Errorf(protocol.CodeSessionNotFound, "this connection has no terminal %s", id)
}

// terminalClose terminates the session. It answers only if that fails.
func (c *conn) terminalClose(ctx context.Context, _ *request, m *api.TerminalClose) error {
	l, err := c.authorizeSession(ctx, policy.VerbTerminate, m.SessionID)
	if err == nil {
		_, err = c.s.cfg.Link.Call(ctx, wire.Terminate{SessionID: l.id, Instance: l.instance, Reason: m.Reason, Asker: c.asker()})
		err = l.asNotFound(err)
	}
	if err == nil {
		c.observe(policy.Event{Kind: policy.EventTerminated, SessionID: string(l.id)})
	}
	if err != nil && protocol.CodeOf(err) != protocol.CodeSessionExited && ctx.Err() == nil {
		c.send(terminalError(protocol.Request{}, m.SessionID, err))
	}
	return nil
}

// terminalError returns the terminal.error message for err.
func terminalError(req protocol.Request, id protocol.SessionID, err error) protocol.Message {
	e := protocol.AsError(err)
	code := e.Code
	if e.Cause == protocol.CodeUnsupportedOS {
		code = e.Cause // text clients know this one cause by name
	}
	return api.TerminalError{Request: req, SessionID: id, Code: code, Message: e.Message, Cause: e.Cause}
}
