package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/foreground"
	"holdfast/proxy/policy"
	"holdfast/shared/logging"
)

// request answers one request. Those with their own way of answering come
// first, then those that are one question to the supervisor.
func (c *conn) request(ctx context.Context, q *request, m protocol.Message, requestID string) {
	var err error
	switch m := m.(type) {
	case *api.Attach:
		if err = q.refused; err == nil {
			err = c.attach(m, q.attachment)
		}
	case *api.Events:
		err = c.events(ctx, m)
	case *api.List:
		err = c.list(ctx, q, m)
	case *api.Detach:
		c.detach(m.Attachment)
		c.send(api.Detached{Request: m.Request, Attachment: m.Attachment})
	case *api.TerminalOpen:
		c.terminalOpen(ctx, m)
	case *api.TerminalClose:
		c.terminalClose(ctx, m)
	default:
		var reply protocol.Message
		if reply, err = c.ask(ctx, m); err == nil && c.claim(q) {
			c.send(reply)
		}
	}
	if protocol.CodeOf(err) == protocol.CodeUnsupported && requestID == "" {
		return // no request, and nobody waits for an answer
	}
	if err != nil && ctx.Err() == nil && c.claim(q) {
		c.fail(requestID, nil, err)
	}
	if err != nil && q.attachment != nil {
		close(q.attachment.done)
	}
}

// ask answers the requests that have one reply.
func (c *conn) ask(ctx context.Context, m protocol.Message) (protocol.Message, error) {
	switch m := m.(type) {
	case *api.Spawn:
		create := wire.Create{SessionID: m.SessionID, SpawnSpec: m.SpawnSpec, Token: m.Token}
		if m.Argv == nil { // an empty one is refused, as it is in reopen
			create.Argv = loginShell()
		} else if len(m.Argv) == 0 {
			return nil, protocol.Errorf(protocol.CodeInvalidArgument, "argv is empty; without it the login shell is started")
		}
		if err := c.maySpawn(ctx, &create); err != nil {
			return nil, err
		}
		var err error
		if create.DefaultLimits, err = c.s.defaultLimits(create.Labels); err != nil {
			return nil, err
		}
		create.Env = c.followAgent(create.Env)
		if m.ShellIntegration {
			c.integrate(&create.SpawnSpec)
		}
		return c.spawned(ctx, m.Request, m.EarlyExitMS, create)
	case *api.Reopen:
		reopen := wire.Reopen{RespawnSpec: m.RespawnSpec, Token: m.Token}
		l, err := c.mayReopen(ctx, m.SessionID, &reopen.RespawnSpec)
		if err != nil {
			return nil, err
		}
		reopen.SessionID, reopen.Instance = l.id, l.instance
		reply, err := c.spawned(ctx, m.Request, m.EarlyExitMS, reopen)
		return reply, l.gone(err)
	case *api.Status:
		report := c.status(ctx)
		report.Request = m.Request
		return report, nil
	case *api.Rename:
		if len(m.Title) > protocol.MaxTitle {
			return nil, protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf("a title has at most %d bytes", protocol.MaxTitle))
		}
	case *api.Ticket:
		if err := c.s.tickets.wait(ctx); err != nil {
			return nil, err
		}
		token, expires, err := c.s.tickets.issue(m.SessionID, c.recorded(), time.Now(), ticketLife)
		return api.TicketIssued{Request: m.Request, Ticket: token, ExpiresAt: expires}, err
	}
	if m, ok := m.(*api.Share); ok {
		return c.share(ctx, m)
	}
	verb, id, ok := access(m)
	if !ok {
		return nil, protocol.Errorf(protocol.CodeUnsupported, m.MessageType()+" is not a request")
	}
	l, err := c.allowed(ctx, verb, id)
	if err != nil {
		return nil, err
	}
	question, req, pinned := c.question(m, l)
	done, err := c.costs(ctx, m)
	if err != nil {
		return nil, err
	}
	defer done()
	answer, err := c.s.cfg.Link.Call(ctx, question)
	if err != nil {
		if pinned {
			err = l.gone(err)
		}
		if protocol.CodeOf(err) == protocol.CodeUnsupported && !c.s.saysOfCages(m) {
			err = unknownThere(m)
		}
		return nil, err
	}
	if _, ok := m.(*api.Terminate); ok {
		c.observe(policy.Event{Kind: policy.EventTerminated, SessionID: string(l.id)})
	}
	if s, ok := answer.(*wire.Session); ok {
		if !c.sees(&s.Session) { // it came in between
			return nil, notFound(l.asked)
		}
		s.Session = c.shown(s.Session)
		c.addForeground(&s.Session)
	}
	return reply(req, answer)
}

// saysOfCages reports whether the request is about cages, and the supervisor knows of
// them: then it says itself why it is unsupported.
func (s *Server) saysOfCages(m protocol.Message) bool {
	switch m.(type) {
	case *api.Limit, *api.Freeze, *api.Terminate:
		w := s.cfg.Link.Welcome()
		return w != nil && w.Capabilities.Has(protocol.CapCage)
	}
	return false
}

// unknownThere is what is answered where the supervisor is older than the request.
func unknownThere(m protocol.Message) error {
	return protocol.Errorf(protocol.CodeUnsupported, fmt.Sprintf("the supervisor that runs does not know %s; upgrade it (supervisor upgrade)", m.MessageType()))
}

// question turns a request into the link's. pinned says that the life of the
// session is not of the client's choice.
func (c *conn) question(m protocol.Message, l life) (q protocol.Message, req protocol.Request, pinned bool) {
	switch m := m.(type) {
	case *api.Info:
		return wire.Info{SessionID: l.id}, m.Request, false
	case *api.Scrollback:
		return wire.Read{SessionID: l.id, Instance: l.instance, Offset: m.Offset, MaxBytes: m.MaxBytes}, m.Request, true
	case *api.Screen:
		q := wire.Screen{ScreenSpec: m.ScreenSpec, Instance: l.instance}
		q.SessionID = l.id
		return q, m.Request, true
	case *api.History:
		q := wire.History{HistorySpec: m.HistorySpec, Instance: l.instance}
		q.SessionID = l.id
		return q, m.Request, true
	case *api.Search:
		q := wire.Search{SearchSpec: m.SearchSpec, Instance: l.instance}
		q.SessionID = l.id
		return q, m.Request, true
	case *api.Environment:
		return wire.Environment{SessionID: l.id, Instance: l.instance}, m.Request, true
	case *api.Away:
		return wire.Away{SessionID: l.id, Instance: l.instance}, m.Request, true
	case *api.SizePolicy:
		return wire.SizePolicy{SessionID: l.id, Instance: l.instance, Policy: m.Policy, Cols: m.Cols, Rows: m.Rows}, m.Request, true
	case *api.Clear:
		return wire.Clear{SessionID: l.id, Instance: l.instance, Screen: m.Screen}, m.Request, true
	case *api.Rename:
		return wire.Relabel{SessionID: l.id, Instance: l.instance, Labels: map[string]string{protocol.LabelTitle: m.Title}}, m.Request, true
	case *api.Limit:
		return wire.Limit{SessionID: l.id, Instance: l.instance, Limits: m.Limits}, m.Request, true
	case *api.Freeze:
		return wire.Freeze{SessionID: l.id, Instance: l.instance, Frozen: m.Frozen}, m.Request, true
	case *api.Resize:
		return wire.Resize{SessionID: l.id, Instance: l.instance, Cols: m.Cols, Rows: m.Rows}, m.Request, true
	case *api.Interrupt:
		return wire.Interrupt{SessionID: l.id, Instance: l.instance}, m.Request, true
	case *api.Signal:
		return wire.Signal{SessionID: l.id, Instance: l.instance, Signal: m.Signal, Asker: c.asker()}, m.Request, true
	case *api.Terminate:
		return wire.Terminate{
			SessionID: l.id, Instance: l.instance, GraceMS: m.GraceMS, SoftSignal: m.SoftSignal, Reason: m.Reason,
			All: m.All, Asker: c.asker(),
		}, m.Request, true
	case *api.Forget:
		return wire.Forget{SessionID: l.id, Instance: cmp.Or(m.Instance, l.instance), Restore: m.Restore}, m.Request, m.Instance == ""
	case *api.Wait:
		return wire.Wait{SessionID: l.id, Instance: cmp.Or(m.Instance, l.instance), TimeoutMS: m.TimeoutMS}, m.Request, m.Instance == ""
	case *api.Mark:
		return wire.Mark{SessionID: l.id, Instance: l.instance}, m.Request, true
	case *api.Await:
		q := wire.Await{AwaitSpec: m.AwaitSpec, Instance: l.instance, TimeoutMS: m.TimeoutMS}
		q.SessionID = l.id
		return q, m.Request, len(m.Since) == 0 // which is of one life
	case *api.Input:
		return wire.Write{SessionID: l.id, Instance: l.instance, Data: m.Data, Writer: m.Writer, Offset: m.Offset, Paste: m.Paste, Keys: m.Keys}, m.Request, true
	}
	panic("no question for " + m.MessageType()) // access knows it, and this does not
}

// reply turns the link's reply into the client's.
func reply(req protocol.Request, m protocol.Message) (protocol.Message, error) {
	switch m := m.(type) {
	case *wire.OK:
		return api.OK{Request: req}, nil
	case *wire.Session:
		return api.Session{Request: req, Session: m.Session}, nil
	case *wire.Data:
		return api.ScrollbackData{Request: req, Instance: m.Instance, Offset: m.Offset, End: m.End, Data: m.Data}, nil
	case *wire.ScreenContent:
		return api.ScreenContent{Request: req, ScreenContent: m.ScreenContent}, nil
	case *wire.HistoryContent:
		return api.HistoryContent{Request: req, HistoryContent: m.HistoryContent}, nil
	case *wire.SearchContent:
		return api.SearchContent{Request: req, SearchContent: m.SearchContent}, nil
	case *wire.EnvironmentContent:
		return api.EnvironmentContent{Request: req, Env: m.Env}, nil
	case *wire.AwayContent:
		return api.AwayContent{Request: req, AwayInfo: m.AwayInfo}, nil
	case *wire.Exited:
		return api.Waited{Request: req, SessionID: m.SessionID, Instance: m.Instance, Exit: m.Exit}, nil
	case *wire.Marked:
		return api.Marked{Request: req, MarkInfo: m.MarkInfo}, nil
	case *wire.Awaited:
		return api.Awaited{Request: req, AwaitedInfo: m.AwaitedInfo}, nil
	case *wire.Accepted:
		return api.Accepted{Request: req, Offset: m.Offset}, nil
	}
	return nil, protocol.Errorf(protocol.CodeInternal, "the supervisor answered with "+m.MessageType())
}

// foregroundTime is how long a list may ask the system about the sessions' processes. It
// takes some 50 µs for each.
const foregroundTime = 100 * time.Millisecond

// addForeground adds the process that a session's terminal serves.
func (c *conn) addForeground(i *protocol.SessionInfo) {
	if c.from.Share == nil && (i.State == protocol.StateRunning || i.State == protocol.StateStarting) {
		i.Foreground = foreground.Of(i.PID)
	}
}

func (c *conn) list(ctx context.Context, q *request, m *api.List) error {
	if err := c.mayList(ctx); err != nil {
		return err
	}
	all, err := c.s.cfg.Link.List(ctx, m.Originator)
	if err != nil || !c.claim(q) {
		return err
	}
	if len(m.Labels) > 0 {
		all = slices.DeleteFunc(all, func(i protocol.SessionInfo) bool { return !protocol.HasLabels(i.Labels, m.Labels) })
	}
	shown := c.visible(all)
	until := time.Now().Add(foregroundTime)
	for i := range shown {
		if time.Now().After(until) {
			break
		}
		c.addForeground(&shown[i])
	}
	parts := protocol.SplitSessions(shown)
	for i, part := range parts {
		c.send(api.Sessions{Request: m.Request, Sessions: part, More: i < len(parts)-1})
	}
	return nil
}

// spawned starts a session and watches it for a while.
func (c *conn) spawned(ctx context.Context, req protocol.Request, earlyMS *int64, create protocol.Message) (protocol.Message, error) {
	info, err := c.spawn(ctx, create, earlyMS)
	if err != nil {
		return nil, err
	}
	return api.Spawned{Request: req, SessionID: info.ID, PID: info.PID, CreatedAt: info.CreatedAt, Session: c.shown(*info)}, nil
}

func (c *conn) spawn(ctx context.Context, create protocol.Message, earlyMS *int64) (*protocol.SessionInfo, error) {
	s := c.s
	window := s.cfg.EarlyExit
	if earlyMS != nil {
		if *earlyMS > maxEarlyExit.Milliseconds() {
			return nil, protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("early_exit_ms is over %d", maxEarlyExit.Milliseconds()))
		}
		window = time.Duration(max(0, *earlyMS)) * time.Millisecond
	}
	if reopen, ok := create.(wire.Reopen); ok {
		reopen.EarlyExitMS = window.Milliseconds()
		create = reopen
	}
	asked := time.Now()
	reply, err := s.cfg.Link.Call(ctx, create)
	if err != nil {
		return nil, err
	}
	made, ok := reply.(*wire.Session)
	if !ok {
		return nil, protocol.Errorf(protocol.CodeInternal, "the supervisor answered with "+reply.MessageType())
	}
	c.observe(policy.Event{Kind: policy.EventSpawned, SessionID: string(made.Session.ID), Labels: made.Session.Labels})
	return &made.Session, s.checkEarly(ctx, &made.Session, window, asked)
}

// defaultLimits are the settings' limits with those of the session's labels before them.
func (s *Server) defaultLimits(labels map[string]string) (protocol.Limits, error) {
	var l protocol.Limits
	for _, f := range protocol.LimitFields() {
		if text, ok := labels[f.Name]; ok {
			if err := f.Parse(&l, text); err != nil {
				return l, err
			}
		}
	}
	return l.Over(s.cfg.Limits), nil
}

// integrate has a shell tell of its prompts and commands. The session keeps how it was
// started, so that it is started again like that. A shell that cannot be made to tell is
// better than none.
func (c *conn) integrate(spec *protocol.SpawnSpec) {
	if c.s.cfg.Integrate == nil {
		return
	}
	argv, env, err := c.s.cfg.Integrate(spec.Argv, spec.Env)
	if err != nil {
		c.log.Warn().Err(err).Msg("shell started without its integration")
		return
	}
	spec.Argv, spec.Env = argv, env
}

const maxEarlyExit = time.Minute

// checkTime is how long the supervisor may take to answer the check for an early exit,
// beside the time that the child is watched.
const checkTime = 2 * time.Second

// checkEarly waits for the session's end, until window has passed since its child was
// started. An end within that is exited_early, with the exit record, and the session is
// removed; one that was started in another's place is followed by that one's record. If the
// supervisor cannot be asked, or does not answer, the creation stands.
//
// A request that is repeated after a lost connection finds a session that was started before
// it was asked. Of that the first request may have told, so that its record stays.
func (s *Server) checkEarly(ctx context.Context, info *protocol.SessionInfo, window time.Duration, asked time.Time) error {
	repeated := info.CreatedAt.Before(asked)
	left := window
	if repeated {
		left -= asked.Sub(info.CreatedAt)
	}
	if left <= 0 && (window <= 0 || info.Exit == nil) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(0, left)+checkTime)
	defer cancel()
	ms := max(0, left.Milliseconds())
	reply, err := s.cfg.Link.Call(ctx, wire.Wait{SessionID: info.ID, Instance: info.Instance, TimeoutMS: &ms})
	if err != nil {
		if protocol.CodeOf(err) != protocol.CodeTimeout {
			s.cfg.Log.Warn().Err(err).Str(logging.Session, string(info.ID)).Msg("early exit not checked")
		}
		return nil
	}
	exited, ok := reply.(*wire.Exited)
	if !ok || repeated && exited.Exit.ExitedAt.Sub(exited.Exit.StartedAt) > window {
		return nil
	}
	if repeated {
		return protocol.ExitedEarly(info.ID, &exited.Exit)
	}
	if _, err := s.cfg.Link.Call(ctx, wire.Forget{SessionID: info.ID, Instance: info.Instance, Restore: true}); err != nil {
		s.cfg.Log.Warn().Err(err).Str(logging.Session, string(info.ID)).Msg("session that exited early not removed")
	}
	return protocol.ExitedEarly(info.ID, &exited.Exit)
}

// events subscribes the connection. It goes on over a lost link after the last
// event told.
func (c *conn) events(ctx context.Context, m *api.Events) error {
	if err := c.mayList(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	twice := c.subscribed
	c.subscribed = true
	c.mu.Unlock()
	if twice {
		return protocol.Errorf(protocol.CodeInvalidArgument, "this connection is subscribed already")
	}
	err := c.follow(m.Instance, c.after(m.Instance, m.After), func(first *wire.Subscribed) {
		c.send(api.Subscribed{Request: m.Request, Instance: first.Instance, Seq: c.place(first.Seq)})
	})
	if err != nil {
		c.mu.Lock()
		c.subscribed = false
		c.mu.Unlock()
	}
	return err
}

func (c *conn) sendEvent(e *wire.Event) {
	missed := e.Missed
	if e.Event == protocol.EventMissed && !c.seesAll() {
		missed = 1 // or more, or none: others' are among them
	} else if e.Event != protocol.EventMissed && !c.seesAll() && (e.Session == nil || !c.sees(e.Session)) {
		return
	}
	if s := e.Session; e.Event == protocol.EventExited && s != nil && s.Exit != nil {
		c.send(c.exited(&wire.Exited{SessionID: s.ID, Instance: s.Instance, Labels: s.Labels, Exit: *s.Exit}, nil, c.place(e.Seq)))
		return
	}
	about := e.Session
	if about != nil {
		told := c.shown(*about)
		c.addForeground(&told)
		about = &told
	}
	c.send(api.Event{Seq: c.place(e.Seq), Event: e.Event, At: e.At, Session: about, Missed: missed, Notification: e.Notification})
}
