package apiserver

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/proxy/policy"
	"holdfast/shared/config"
	"holdfast/shared/logging"
)

// A policy decides who a client is, what a task is, and what may be done. What
// belongs to whom is looked after here: see access.go.

// watched reports whether there is a policy to be asked, and told. The built-in
// one lets its user do everything: it is not asked about each request.
func (s *Server) watched() bool {
	_, all := s.cfg.Policy.(policy.Allow)
	return !all
}

// maxRefusal bounds what a policy says to a client's user, in bytes.
const maxRefusal = 1 << 10

// decided turns what a policy answers into what a client is told. Whatever is
// neither a yes nor a no is a no for now.
func decided(err error) error {
	var no *policy.Refusal
	var e *protocol.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &no):
		return protocol.Errorf(protocol.Code(no.Code), no.Message[:min(len(no.Message), maxRefusal)])
	case errors.As(err, &e), errors.Is(err, context.Canceled):
		return err
	}
	return &protocol.Error{Code: protocol.CodePolicyUnavailable, Message: "the policy does not work: " + err.Error(), Retryable: true, RetryAfterMS: 1000}
}

// authenticate finds out who the client is, by what it says in its hello, or has
// shown before.
func (c *conn) authenticate(ctx context.Context, hello *api.Hello) error {
	cfg := &c.s.cfg
	own := same(hello.Token, cfg.Token) // which only this user can read
	vouched := c.from.Trusted || own
	reason := ""
	switch {
	case !vouched && (hello.Token == "" || !c.s.watched()):
		reason = "the token is missing or wrong"
	case cfg.Secret != "" && !c.from.Cookie && !same(hello.Secret, cfg.Secret):
		reason = "the secret is missing or wrong"
	case c.from.Principal != nil: // by its ticket, or its cookie
		return nil
	}
	err := error(protocol.Errorf(protocol.CodeUnauthorized, reason))
	if reason == "" {
		shown := policy.Credentials{Token: hello.Token, Transport: c.from.Transport, PID: c.from.PID, Client: hello.Client}
		if own {
			shown.Token = ""
		}
		c.from.Principal, err = c.s.principal(ctx, shown, vouched)
	}
	if err != nil {
		c.refusedEntry(err)
	}
	return err
}

// principal asks who it is that shows something; vouched says that it is this
// user's.
func (s *Server) principal(ctx context.Context, shown policy.Credentials, vouched bool) (*policy.Principal, error) {
	shown.UID = -1
	if vouched {
		shown.UID = max(0, os.Getuid()) // -1 where there are none
	}
	who, err := s.cfg.Policy.Authenticate(ctx, shown)
	if err != nil {
		return nil, decided(err)
	}
	return &who, nil
}

// identified finds out who the client is that comes from another proxy, where
// none was asked there: then it is this user's.
func (c *conn) identified(ctx context.Context) (err error) {
	if c.hello == nil || c.from.Principal != nil {
		return nil
	}
	shown := policy.Credentials{Transport: c.from.Transport, PID: c.from.PID, Client: c.hello.Client}
	if c.from.Principal, err = c.s.principal(ctx, shown, true); err != nil {
		c.refusedEntry(err)
	}
	return err
}

// recorded is who the client is for those who go on with what it has; nil where
// no policy was asked, so that they ask their own.
func (c *conn) recorded() *policy.Principal {
	if !c.s.watched() && c.from.Principal != nil && c.from.Principal.All {
		return nil
	}
	return c.from.Principal
}

// asker is who the client is for those who see what it has done to a session. A
// client's name is its own choice; its user is known where a policy says so.
func (c *conn) asker() protocol.Asker {
	a := protocol.Asker{By: c.hello.Client}
	if c.s.watched() {
		a.ByUser = c.from.Principal.User
	}
	return a.Cut()
}

// refusedEntry tells of a client that is not let in.
func (c *conn) refusedEntry(err error) {
	e := protocol.AsError(err)
	c.s.refusals.Of(c.log).Warn().Bool(logging.Security, true).Str(logging.Code, string(e.Code)).Str("why", e.Message).Msg("client refused")
	c.observe(policy.Event{Kind: policy.EventRefused, Code: string(e.Code)})
}

// tellRefused tells the policy, and the log, what the client was not allowed to
// do.
func (c *conn) tellRefused(a policy.Access, err error) {
	c.s.refusals.Of(c.log).Info().Bool(logging.Security, true).Str(logging.Code, string(protocol.CodeOf(err))).Str("verb", string(a.Verb)).
		Str(logging.Session, a.SessionID).Str("user", c.from.Principal.User).Msg("request refused")
	c.observe(policy.Event{
		Kind: policy.EventRefused, SessionID: a.SessionID, Labels: a.Labels, Verb: a.Verb, Code: string(protocol.CodeOf(err)),
	})
}

// observe tells the policy what the client did.
func (c *conn) observe(e policy.Event) {
	if c.from.Principal != nil {
		e.Principal = *c.from.Principal
	}
	c.s.observe(e)
}

func (s *Server) observe(e policy.Event) {
	if !s.watched() {
		return
	}
	e.At = time.Now()
	_ = s.cfg.Policy.Observe(context.Background(), e) // which does not wait, and has nothing to say
}

// Observe tells the policy of the ends of sessions, until ctx is done.
func (s *Server) Observe(ctx context.Context) {
	if !s.watched() {
		return
	}
	s.cfg.Link.Watch(ctx, func(e *wire.Event) {
		if i := e.Session; e.Event == protocol.EventExited && i != nil && i.Exit != nil {
			s.observe(policy.Event{Kind: policy.EventExited, SessionID: string(i.ID), Labels: i.Labels, ExitCode: i.Exit.ExitCode})
		}
	})
}

// resolve returns what the policy says that a task is.
func (c *conn) resolve(ctx context.Context, m *api.TerminalOpen) (spec protocol.SpawnSpec, err error) {
	who := c.from.Principal
	defer func() {
		if err != nil && ctx.Err() == nil {
			labels := map[string]string{protocol.LabelTask: m.TaskID, protocol.LabelWorkspace: m.WorkspaceID}
			c.tellRefused(policy.Access{Verb: policy.VerbSpawn, Labels: labels}, err)
		}
	}()
	r := policy.TaskRequest{Principal: *who, TaskID: m.TaskID, WorkspaceID: m.WorkspaceID, UserID: m.UserID}
	if !who.All {
		if r.WorkspaceID = cmp.Or(m.WorkspaceID, who.Workspace); r.WorkspaceID != who.Workspace {
			return protocol.SpawnSpec{}, otherWorkspace()
		}
		r.UserID = cmp.Or(who.User, m.UserID)
	}
	task, err := c.s.cfg.Policy.ResolveTask(ctx, r)
	if err != nil {
		return protocol.SpawnSpec{}, decided(err)
	}
	return taskSpec(r, task, protocol.Size{Cols: m.Cols, Rows: m.Rows})
}

// taskSpec turns a task into what the supervisor starts.
func taskSpec(r policy.TaskRequest, task policy.Task, size protocol.Size) (protocol.SpawnSpec, error) {
	if task.WorkDir == "" {
		return protocol.SpawnSpec{}, protocol.Errorf(protocol.CodeTaskNotFound, "task "+r.TaskID+" has no work dir")
	}
	labels := map[string]string{
		protocol.LabelTask: r.TaskID, protocol.LabelWorkspace: r.WorkspaceID, protocol.LabelUser: r.UserID,
	}
	maps.Copy(labels, task.Labels)
	spec := protocol.SpawnSpec{
		Argv: task.Argv, Cwd: task.WorkDir, Env: append(taskEnv(r, task), task.Env...), Labels: labels,
		Cols: size.Cols, Rows: size.Rows,
	}
	if len(spec.Argv) == 0 {
		spec.Argv = loginShell()
	}
	return spec, nil
}

func loginShell() []string { return []string{config.LoginShell(), "-l"} }

// taskEnv is what a child is told of its task; what is not known is left out.
func taskEnv(r policy.TaskRequest, task policy.Task) (env []string) {
	for _, v := range [][2]string{
		{"HOLDFAST_WORKSPACE_ID", r.WorkspaceID}, {"HOLDFAST_TASK_ID", r.TaskID}, {"HOLDFAST_ISSUE_ID", task.IssueID},
		{"HOLDFAST_USER_ID", r.UserID}, {"HOLDFAST_PRIOR_AGENT_SESSION_ID", task.PriorAgentSessionID},
	} {
		if v[1] != "" {
			env = append(env, v[0]+"="+v[1])
		}
	}
	return env
}
