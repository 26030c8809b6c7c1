package apiserver

import (
	"context"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/foreground"
	"holdfast/proxy/policy"
)

// A handler answers the requests of one type. Its error is sent to the client.
type handler func(ctx context.Context, c *conn, q *request, m protocol.Message) error

// handlers contains the handler of each request, by type. A message that takes effect in the order
// of its connection has a handler in orderedHandlers.
var handlers = make(handlerTable).
	add(own((*conn).attachRequest)).
	add(own((*conn).detachRequest)).
	add(own((*conn).list)).
	add(own((*conn).events)).
	add(own((*conn).terminalOpen)).
	add(own((*conn).terminalClose)).
	add(own((*conn).spawnRequest)).
	add(own((*conn).reopenRequest)).
	add(single((*conn).rename)).
	add(single((*conn).share)).
	add(single((*conn).status)).
	add(single((*conn).ticketRequest)).
	add(forward(policy.VerbList, func(*passing, *api.Info) protocol.Message { return wire.Info{} }, described)).
	add(forward(policy.VerbList,
		func(p *passing, m *api.Wait) protocol.Message {
			p.isInstanceChosen = m.Instance != ""
			return wire.Wait{Instance: m.Instance, TimeoutMS: m.TimeoutMS}
		},
		func(p *passing, r *wire.Exited) protocol.Message {
			return api.Waited{Request: p.Request, SessionID: r.SessionID, Instance: r.Instance, Exit: r.Exit}
		})).
	add(forward(policy.VerbRead,
		func(_ *passing, m *api.Scrollback) protocol.Message {
			return wire.Read{Offset: m.Offset, MaxBytes: m.MaxBytes, Past: m.Past}
		},
		func(p *passing, r *wire.Data) protocol.Message {
			return api.ScrollbackData{Request: p.Request, Instance: r.Instance, Offset: r.Offset, End: r.End, Data: r.Data, Times: r.Times, Sizes: r.Sizes}
		})).
	add(forward(policy.VerbRead,
		func(_ *passing, m *api.Screen) protocol.Message { return wire.Screen{ScreenSpec: m.ScreenSpec} },
		func(p *passing, r *wire.ScreenContent) protocol.Message {
			return api.ScreenContent{Request: p.Request, ScreenContent: r.ScreenContent}
		})).
	add(forward(policy.VerbRead,
		func(_ *passing, m *api.History) protocol.Message { return wire.History{HistorySpec: m.HistorySpec} },
		func(p *passing, r *wire.HistoryContent) protocol.Message {
			return api.HistoryContent{Request: p.Request, HistoryContent: r.HistoryContent}
		})).
	add(forward(policy.VerbRead,
		func(p *passing, m *api.Changes) protocol.Message {
			p.isInstanceChosen = len(m.Since) > 0 // a mark belongs to one instance
			return wire.Changes{ChangesSpec: m.ChangesSpec}
		},
		func(p *passing, r *wire.ChangesContent) protocol.Message {
			return api.ChangesContent{Request: p.Request, ChangesContent: r.ChangesContent}
		})).
	add(forward(policy.VerbRead,
		func(*passing, *api.Commands) protocol.Message { return wire.Commands{} },
		func(p *passing, r *wire.CommandsContent) protocol.Message {
			return api.CommandsContent{Request: p.Request, CommandsContent: r.CommandsContent}
		})).
	add(forward(policy.VerbRead,
		func(_ *passing, m *api.Search) protocol.Message { return wire.Search{SearchSpec: m.SearchSpec} },
		func(p *passing, r *wire.SearchContent) protocol.Message {
			return api.SearchContent{Request: p.Request, SearchContent: r.SearchContent}
		})).
	add(forward(policy.VerbRead,
		func(_ *passing, m *api.Past) protocol.Message { return wire.Past{PastSpec: m.PastSpec} },
		func(p *passing, r *wire.PastContent) protocol.Message {
			return api.PastContent{Request: p.Request, PastContent: r.PastContent}
		})).
	add(forward(policy.VerbRead,
		func(_ *passing, m *api.SearchPast) protocol.Message {
			return wire.SearchPast{PastSearchSpec: m.PastSearchSpec}
		},
		func(p *passing, r *wire.SearchPastContent) protocol.Message {
			return api.SearchPastContent{Request: p.Request, PastSearchContent: r.PastSearchContent}
		})).
	add(forward(policy.VerbRead,
		func(*passing, *api.Away) protocol.Message { return wire.Away{} },
		func(p *passing, r *wire.AwayContent) protocol.Message {
			return api.AwayContent{Request: p.Request, AwayInfo: r.AwayInfo}
		})).
	add(forward(policy.VerbRead,
		func(*passing, *api.Mark) protocol.Message { return wire.Mark{} },
		func(p *passing, r *wire.Marked) protocol.Message {
			return api.Marked{Request: p.Request, MarkInfo: r.MarkInfo}
		})).
	add(own((*conn).await)).
	// The environment belongs to another viewer, so reading the session is not enough.
	add(forward(policy.VerbType,
		func(*passing, *api.Environment) protocol.Message { return wire.Environment{} },
		func(p *passing, r *wire.EnvironmentContent) protocol.Message {
			return api.EnvironmentContent{Request: p.Request, Env: r.Env}
		})).
	add(forward(policy.VerbType,
		func(_ *passing, m *api.Input) protocol.Message {
			return wire.Write{Data: m.Data, Writer: m.Writer, Offset: m.Offset, Paste: m.Paste, Keys: m.Keys, HoldMS: m.HoldMS}
		},
		func(p *passing, r *wire.Accepted) protocol.Message {
			return api.Accepted{Request: p.Request, Offset: r.Offset}
		})).
	add(forward(policy.VerbType, func(_ *passing, m *api.Resize) protocol.Message { return wire.Resize{Cols: m.Cols, Rows: m.Rows} }, done)).
	add(forward(policy.VerbType, func(_ *passing, m *api.SizePolicy) protocol.Message {
		return wire.SizePolicy{Policy: m.Policy, Cols: m.Cols, Rows: m.Rows}
	}, done)).
	add(forward(policy.VerbType, func(_ *passing, m *api.Clear) protocol.Message { return wire.Clear{Screen: m.Screen} }, done)).
	add(forward(policy.VerbType, func(*passing, *api.Interrupt) protocol.Message { return wire.Interrupt{} }, done)).
	add(forward(policy.VerbTerminate, func(p *passing, m *api.Signal) protocol.Message {
		return wire.Signal{Signal: m.Signal, Asker: p.asker()}
	}, done)).
	add(forward(policy.VerbTerminate, func(p *passing, m *api.Limit) protocol.Message {
		p.isAboutCage = true
		return wire.Limit{Limits: m.Limits}
	}, described)).
	add(forward(policy.VerbTerminate, func(p *passing, m *api.Freeze) protocol.Message {
		p.isAboutCage = true
		return wire.Freeze{Frozen: m.Frozen}
	}, done)).
	add(forward(policy.VerbTerminate,
		func(p *passing, m *api.Terminate) protocol.Message {
			p.isAboutCage, p.isInstanceChosen = true, m.Instance != ""
			return wire.Terminate{Instance: m.Instance, GraceMS: m.GraceMS, SoftSignal: m.SoftSignal, Reason: m.Reason, All: m.All, Asker: p.asker()}
		},
		func(p *passing, r *wire.OK) protocol.Message {
			p.observe(policy.Event{Kind: policy.EventTerminated, SessionID: string(p.id)})
			return done(p, r)
		})).
	add(forward(policy.VerbTerminate, func(p *passing, m *api.Forget) protocol.Message {
		p.isInstanceChosen = m.Instance != ""
		return wire.Forget{Instance: m.Instance, Restore: m.Restore}
	}, done))

// orderedHandlers contains the handlers of messages that take effect at once, in the order in which
// they arrived. A handler returns false if its message is a request that need not be ordered.
var orderedHandlers = make(orderedTable).
	add(ordered(func(c *conn, m *api.Ping) bool { // must not wait for other requests
		c.send(api.OK{Request: m.Request})
		return true
	})).
	add(ordered(func(c *conn, m *api.Resize) bool {
		if m.Attachment == nil {
			return false
		}
		resize := wire.Resize{Cols: m.Cols, Rows: m.Rows}
		if err := resize.Validate(); err != nil {
			c.fail(m.RequestID, nil, err) // without the number, because this error does not end the attachment
			return true
		}
		c.forward(m.RequestID, *m.Attachment, resize)
		return true
	})).
	add(ordered(func(c *conn, m *api.Interrupt) bool {
		if m.Attachment == nil {
			return false
		}
		c.forward(m.RequestID, *m.Attachment, wire.Interrupt{})
		return true
	})).
	add(ordered(func(c *conn, m *api.Appearance) bool {
		if err := m.Validate(); err != nil {
			c.fail(m.RequestID, nil, err) // without the number, because this error does not end the attachment
			return true
		}
		c.forward(m.RequestID, m.Attachment, wire.Appearance{Appearance: m.Appearance})
		return true
	})).
	add(ordered(func(c *conn, m *api.TerminalData) bool { c.terminalData(m); return true })).
	add(ordered(func(c *conn, m *api.TerminalResize) bool { c.terminalResize(m); return true }))

type handlerTable map[string]handler

func (t handlerTable) add(typ string, h handler) handlerTable {
	t[typ] = h
	return t
}

type orderedTable map[string]func(*conn, protocol.Message) bool

func (t orderedTable) add(typ string, h func(*conn, protocol.Message) bool) orderedTable {
	t[typ] = h
	return t
}

// typeOf returns the type of message M.
func typeOf[M protocol.Message]() string {
	var m M
	return m.MessageType()
}

func ordered[M protocol.Message](f func(*conn, *M) bool) (string, func(*conn, protocol.Message) bool) {
	return typeOf[M](), func(c *conn, m protocol.Message) bool { return f(c, any(m).(*M)) }
}

// own returns the handler of a request that f answers itself. If f returns an error, the request gets
// that error as its answer.
func own[M protocol.Message](f func(*conn, context.Context, *request, *M) error) (string, handler) {
	return typeOf[M](), func(ctx context.Context, c *conn, q *request, m protocol.Message) error {
		return f(c, ctx, q, any(m).(*M))
	}
}

// single returns the handler of a request that has one reply.
func single[M protocol.Message](f func(*conn, context.Context, *M) (protocol.Message, error)) (string, handler) {
	return own(func(c *conn, ctx context.Context, q *request, m *M) error {
		reply, err := f(c, ctx, m)
		if err == nil && c.requests.claimReply(q) {
			c.send(reply)
		}
		return err
	})
}

// forward returns the handler of a request about one session that is passed on to the supervisor. See
// passOn.
func forward[M, R protocol.Message](verb policy.Verb, to func(*passing, *M) protocol.Message, from func(*passing, R) protocol.Message) (string, handler) {
	return single(func(c *conn, ctx context.Context, m *M) (protocol.Message, error) {
		return passOn(ctx, &c.caller, m, verb, to, from)
	})
}

// A passing is a request about one session that is passed on to the supervisor.
type passing struct {
	*caller
	target
	protocol.Request // has the id of the client's request

	isInstanceChosen bool // the client has chosen the instance, so it must learn of a mismatch
	isAboutCage      bool // the supervisor may refuse the request because the session has no cage
}

// passOn passes a request about one session on to the supervisor, if the policy permits verb. The
// function to makes the link's request, to which passOn adds the id and the instance of the session,
// and from makes the reply to the client.
func passOn[M, R protocol.Message](ctx context.Context, c *caller, m *M, verb policy.Verb, to func(*passing, *M) protocol.Message, from func(*passing, R) protocol.Message) (protocol.Message, error) {
	request := any(m).(protocol.Message)
	l, err := c.authorizeSession(ctx, verb, protocol.SessionOf(request))
	if err != nil {
		return nil, err
	}
	p := &passing{caller: c, target: l, Request: protocol.Request{RequestID: requestID(request)}}
	question := protocol.About(to(p, m), l.id, l.instance)
	answered, err := c.acquireAsk(ctx)
	if err != nil {
		return nil, err
	}
	defer answered()
	leave, err := c.acquireCostly(ctx, request)
	if err != nil {
		return nil, err
	}
	defer leave()
	answer, err := wire.ReplyAs[R](c.s.cfg.Link.Call(ctx, question))
	if err != nil {
		return nil, p.explain(request, err)
	}
	if s, ok := any(answer).(*wire.Session); ok && !c.canSee(&s.Session) { // another session took the id meanwhile
		return nil, notFound(l.requestedID)
	}
	return from(p, answer), nil
}

// requestID returns the id of a request, or "" if messages of this type have none.
func requestID(m protocol.Message) string {
	if r, ok := m.(interface{ ID() string }); ok {
		return r.ID()
	}
	return ""
}

// explain returns the error for the client if the supervisor has answered with err.
func (p *passing) explain(m protocol.Message, err error) error {
	if !p.isInstanceChosen {
		err = p.asNotFound(err)
	}
	if protocol.CodeOf(err) != protocol.CodeUnsupported {
		return err
	}
	if p.isAboutCage {
		return err // the supervisor's own error tells why
	}
	return protocol.Errorf(protocol.CodeUnsupported, "the running supervisor does not know %s: upgrade it with proxy upgrade", m.MessageType())
}

// done is the reply to a request that has no result.
func done(p *passing, _ *wire.OK) protocol.Message { return api.OK{Request: p.Request} }

// described is the reply with the description of a session, as the client may see it.
func described(p *passing, r *wire.Session) protocol.Message {
	info := p.clientView(r.Session)
	p.addForeground(&info)
	if info.Foreground != nil { // not for a list, because it takes as long as the remainder of the description
		info.Foreground.Reads = foreground.Reads(info.PID, info.Foreground)
	}
	return api.Session{Request: p.Request, Session: info}
}

// request answers one request.
func (c *conn) request(ctx context.Context, q *request, m protocol.Message, requestID string) {
	err := error(protocol.Errorf(protocol.CodeUnsupported, "%s is not a request", m.MessageType()))
	if answer, ok := handlers[m.MessageType()]; ok {
		err = answer(ctx, c, q, m)
	}
	if protocol.CodeOf(err) == protocol.CodeUnsupported && requestID == "" {
		return // the message is no request, and the client does not wait for an answer
	}
	if err != nil && ctx.Err() == nil && c.requests.claimReply(q) {
		c.fail(requestID, nil, err)
	}
	if err != nil && q.attachment != nil {
		close(q.attachment.ended)
	}
}
