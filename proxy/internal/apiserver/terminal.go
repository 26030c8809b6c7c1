package apiserver

import (
	"context"
	"fmt"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/proxy/policy"
)

// The terminal.* messages are for clients that speak text only: a session is
// opened for a task, its output comes as base64, and its id is the only name.

// firstTerminal is where the numbers of attachments made by terminal.open
// begin; clients that also attach by number stay below.
const firstTerminal = 1 << 31

func (c *conn) terminalOpen(ctx context.Context, m *api.TerminalOpen) {
	// A place first: a session that could not be shown would be nobody's.
	a, err := c.reserveTerminal()
	if err != nil {
		c.send(terminalError(m.Request, "", err))
		return
	}
	if id, err := c.openTerminal(ctx, a, m); err != nil {
		c.drop(a)
		close(a.done)
		if ctx.Err() == nil {
			c.send(terminalError(m.Request, id, err))
		}
	}
}

// openTerminal returns the session's id as soon as there is one.
func (c *conn) openTerminal(ctx context.Context, a *attachment, m *api.TerminalOpen) (protocol.SessionID, error) {
	create := wire.Create{}
	var err error
	if create.SpawnSpec, err = c.resolve(ctx, m); err != nil {
		return "", err
	}
	if err := c.maySpawn(ctx, &create); err != nil {
		return "", err
	}
	if create.DefaultLimits, err = c.s.defaultLimits(create.Labels); err != nil {
		return "", err
	}
	if err := c.may(ctx, policy.Access{Verb: policy.VerbType, Labels: create.Labels}); err != nil {
		return "", err // before there is a session that could not be shown
	}
	info, err := c.spawn(ctx, create, nil)
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

// reserveTerminal takes the first free number for a terminal.
func (c *conn) reserveTerminal() (*attachment, error) {
	for n := uint32(firstTerminal); ; n++ {
		a, err := c.reserve(n)
		if protocol.CodeOf(err) != protocol.CodeInvalidArgument {
			return a, err
		}
	}
}

func (c *conn) terminal(id protocol.SessionID) *attachment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.terminals[id]
}

func (c *conn) terminalData(m *api.TerminalData) {
	a := c.terminal(m.SessionID)
	if a == nil {
		c.send(terminalError(protocol.Request{}, m.SessionID, noTerminal(m.SessionID)))
		return
	}
	if n := a.typist.Add(m.Data); n < len(m.Data) {
		c.send(terminalError(protocol.Request{}, m.SessionID, protocol.Errorf(protocol.CodeInputFull,
			fmt.Sprintf("the session takes no more input now: the last %d bytes of %d were dropped", len(m.Data)-n, len(m.Data)))))
	}
}

func (c *conn) terminalResize(m *api.TerminalResize) {
	if a := c.terminal(m.SessionID); a != nil {
		a.link.Send(wire.Resize{Cols: m.Cols, Rows: m.Rows})
		return
	}
	c.send(terminalError(protocol.Request{}, m.SessionID, noTerminal(m.SessionID)))
}

func noTerminal(id protocol.SessionID) error {
	return protocol.Errorf(protocol.CodeSessionNotFound, "no terminal "+string(id)+" on this connection")
}

func (c *conn) terminalClose(ctx context.Context, m *api.TerminalClose) {
	l, err := c.allowed(ctx, policy.VerbTerminate, m.SessionID)
	if err == nil {
		_, err = c.s.cfg.Link.Call(ctx, wire.Terminate{SessionID: l.id, Instance: l.instance, Reason: m.Reason, Asker: c.asker()})
		err = l.gone(err)
	}
	if err == nil {
		c.observe(policy.Event{Kind: policy.EventTerminated, SessionID: string(l.id)})
	}
	if err != nil && protocol.CodeOf(err) != protocol.CodeSessionExited && ctx.Err() == nil {
		c.send(terminalError(protocol.Request{}, m.SessionID, err))
	}
}

func terminalError(req protocol.Request, id protocol.SessionID, err error) protocol.Message {
	e := protocol.AsError(err)
	code := e.Code
	if e.Cause == protocol.CodeUnsupportedOS {
		code = e.Cause // the one cause that text clients know by name
	}
	return api.TerminalError{Request: req, SessionID: id, Code: code, Message: e.Message, Cause: e.Cause}
}
