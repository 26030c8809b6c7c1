package apiserver

import (
	"context"
	"slices"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/foreground"
	"holdfast/proxy/policy"
	"holdfast/shared/logging"
)

// attachRequest answers an attach request, whose attachment the reader of the connection has reserved.
func (c *conn) attachRequest(_ context.Context, q *request, m *api.Attach) error {
	if q.refused != nil {
		return q.refused
	}
	return c.attach(m, q.attachment)
}

// detachRequest answers a detach request.
func (c *conn) detachRequest(_ context.Context, _ *request, m *api.Detach) error {
	c.attachments.detach(m.Attachment)
	c.send(api.Detached{Request: m.Request, Attachment: m.Attachment})
	return nil
}

// spawnRequest starts the session that a client describes.
func (c *conn) spawnRequest(ctx context.Context, q *request, m *api.Spawn) error {
	create := wire.Create{SessionID: m.SessionID, SpawnSpec: m.SpawnSpec, Token: m.Token}
	if m.Argv == nil { // an empty argv is refused, as in reopen
		create.Argv = loginShell()
	} else if len(m.Argv) == 0 {
		return protocol.Errorf(protocol.CodeInvalidArgument, "argv is empty: name a command, or leave argv out to start the login shell")
	}
	if err := c.authorizeSpawn(ctx, &create); err != nil {
		return err
	}
	if err := c.s.applyLabels(&create); err != nil {
		return err
	}
	create.Env = c.followAgent(create.Env)
	if m.ShellIntegration {
		c.integrate(&create.SpawnSpec)
	}
	return c.spawnAndReply(ctx, q, m.Request, m.EarlyExitMS, create)
}

// reopenRequest starts an exited session again.
func (c *conn) reopenRequest(ctx context.Context, q *request, m *api.Reopen) error {
	reopen := wire.Reopen{RespawnSpec: m.RespawnSpec, Token: m.Token}
	l, err := c.authorizeReopen(ctx, m.SessionID, &reopen.RespawnSpec)
	if err != nil {
		return err
	}
	reopen.SessionID, reopen.Instance = l.id, l.instance
	return l.asNotFound(c.spawnAndReply(ctx, q, m.Request, m.EarlyExitMS, reopen))
}

// await answers an await request. If the request awaits a text and has no mark, it gets the inclusive mark of its beginning. With
// that, a repetition at another supervisor or by the next proxy finds also a line that has left the screen in the meantime.
func (c *conn) await(ctx context.Context, q *request, m *api.Await) error {
	reply, err := passOn(ctx, &c.caller, m, policy.VerbRead, func(p *passing, m *api.Await) protocol.Message {
		p.isInstanceChosen = len(m.Since) > 0 // a mark belongs to one instance
		if m.Text != "" && len(m.Since) == 0 {
			reply, err := c.s.cfg.Link.Call(ctx, wire.Mark{SessionID: p.id, Instance: p.instance})
			if marked, ok := reply.(*wire.Marked); ok && err == nil { // otherwise a repetition begins anew
				c.requests.setSince(m, marked.Inclusive)
			}
		}
		return wire.Await{AwaitSpec: m.AwaitSpec, TimeoutMS: m.TimeoutMS}
	}, func(p *passing, r *wire.Awaited) protocol.Message {
		return api.Awaited{Request: p.Request, AwaitedInfo: r.AwaitedInfo}
	})
	if err == nil && c.requests.claimReply(q) {
		c.send(reply)
	}
	return err
}

// ticketRequest issues a ticket.
func (c *caller) ticketRequest(ctx context.Context, m *api.Ticket) (protocol.Message, error) {
	if err := c.s.tickets.wait(ctx); err != nil {
		return nil, err
	}
	token, expires, err := c.s.tickets.issue(m.SessionID, c.recordedPrincipal(), time.Now(), ticketLife)
	return api.TicketIssued{Request: m.Request, Ticket: token, ExpiresAt: expires}, err
}

// rename changes the title of a session.
func (c *caller) rename(ctx context.Context, m *api.Rename) (protocol.Message, error) {
	if len(m.Title) > protocol.MaxTitle {
		return nil, protocol.TooLarge("a title has at most %d bytes", protocol.MaxTitle)
	}
	return passOn(ctx, c, m, policy.VerbType, func(_ *passing, m *api.Rename) protocol.Message {
		return wire.Relabel{Labels: map[string]string{protocol.LabelTitle: m.Title}}
	}, described)
}

// foregroundTime bounds how long a list request asks the operating system about the processes of
// sessions. One session takes about 50 µs.
const foregroundTime = 100 * time.Millisecond

// addForeground adds the foreground process of the session's terminal to i, unless the client uses
// a share link.
func (c *caller) addForeground(i *protocol.SessionInfo) {
	if c.from.Share == nil && (i.State == protocol.StateRunning || i.State == protocol.StateStarting) {
		i.Foreground = foreground.Of(i.PID)
	}
}

// list answers with the sessions that the client can see, in as many messages as necessary.
func (c *conn) list(ctx context.Context, q *request, m *api.List) error {
	if err := c.authorizeList(ctx); err != nil {
		return err
	}
	all, err := c.s.cfg.Link.List(ctx, m.Originator)
	if err != nil || !c.requests.claimReply(q) {
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
	for part, more := range protocol.SplitSessions(shown) {
		c.send(api.Sessions{Request: m.Request, Sessions: part, More: more})
	}
	return nil
}

// spawnAndReply starts a session, watches it for an early exit, and sends the reply.
func (c *conn) spawnAndReply(ctx context.Context, q *request, req protocol.Request, earlyMS *int64, create protocol.Message) error {
	info, err := c.spawn(ctx, q, create, earlyMS)
	if err == nil && c.requests.claimReply(q) {
		c.send(api.Spawned{Request: req, SessionID: info.ID, PID: info.PID, CreatedAt: info.CreatedAt, Session: c.clientView(*info)})
	}
	return err
}

// spawn starts a session and watches it for earlyMS milliseconds, or for the configured time if
// earlyMS is nil. It returns the session together with an error if the session ended in that time.
func (c *conn) spawn(ctx context.Context, q *request, create protocol.Message, earlyMS *int64) (*protocol.SessionInfo, error) {
	s := c.s
	window := s.cfg.EarlyExit
	if earlyMS != nil {
		if *earlyMS > maxEarlyExit.Milliseconds() {
			return nil, protocol.Errorf(protocol.CodeInvalidArgument, "the time for an early exit must be at most %v", maxEarlyExit)
		}
		window = time.Duration(max(0, *earlyMS)) * time.Millisecond
	}
	if reopen, ok := create.(wire.Reopen); ok {
		reopen.EarlyExitMS = window.Milliseconds()
		create = reopen
	}
	asked := time.Now()
	made, err := wire.ReplyAs[*wire.Session](s.cfg.Link.Call(ctx, create))
	if err != nil {
		return nil, err
	}
	c.observe(policy.Event{Kind: policy.EventSpawned, SessionID: string(made.Session.ID), Labels: made.Session.Labels})
	return &made.Session, c.checkEarly(ctx, q, &made.Session, window, asked)
}

// applyLabels completes a spawn by its labels, and by the limits of the settings.
func (s *Server) applyLabels(create *wire.Create) (err error) {
	if label, ok := create.Labels[protocol.LabelDurable]; ok && create.Durable == "" {
		create.Durable = protocol.Durable(label)
		if err := create.Durable.Validate(); err != nil {
			return err
		}
	}
	create.DefaultLimits, err = s.defaultLimits(create.Labels)
	return err
}

// defaultLimits returns the limits of the settings, each replaced by the label of that name if
// there is one.
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

// integrate changes spec so that a shell starts with shell integration. The session stores the
// changed command, so a reopened session has shell integration, too. If integration fails, the
// shell starts without it, because a shell without it is better than none.
func (c *caller) integrate(spec *protocol.SpawnSpec) {
	if c.s.cfg.Integrate == nil {
		return
	}
	argv, env, err := c.s.cfg.Integrate(spec.Argv, spec.Env)
	if err != nil {
		c.log.Warn().Err(err).Msg("shell started without shell integration")
		return
	}
	spec.Argv, spec.Env = argv, env
}

const maxEarlyExit = time.Minute

// checkTime is how long the supervisor may take to answer the check for an early exit, in addition
// to the time for which the child is watched.
const checkTime = 2 * time.Second

// checkEarly waits for the end of the session until window has passed since its child was started.
// If the session ends in that time, checkEarly returns exited_early with the exit record, and
// removes the session; if the session had replaced an ended one, the record of that one is
// restored. If the supervisor cannot be asked or does not answer, checkEarly returns nil, because
// the session exists.
//
// A request that is repeated after a lost connection finds a session that was started before asked.
// The client may already have had an answer to the first request, so the session's exit record
// stays.
func (c *conn) checkEarly(ctx context.Context, q *request, info *protocol.SessionInfo, window time.Duration, asked time.Time) error {
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
	reply, err := c.s.cfg.Link.Call(ctx, wire.Wait{SessionID: info.ID, Instance: info.Instance, TimeoutMS: &ms})
	if err != nil {
		if protocol.CodeOf(err) != protocol.CodeTimeout {
			c.s.cfg.Log.Warn().Err(err).Str(logging.Session, string(info.ID)).Msg("session not checked for an early exit")
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
	if !c.requests.claimReply(q) { // the next proxy repeats the request, and would start a removed session again
		return nil
	}
	if _, err := c.s.cfg.Link.Call(ctx, wire.Forget{SessionID: info.ID, Instance: info.Instance, Restore: true}); err != nil {
		c.s.cfg.Log.Warn().Err(err).Str(logging.Session, string(info.ID)).Msg("session exited early and was not removed")
	}
	return protocol.ExitedEarly(info.ID, &exited.Exit)
}
