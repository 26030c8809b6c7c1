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

// The policy decides which user a client is, what a task is, and which requests are permitted. The
// code in access.go decides which sessions belong to a workspace.

// hasPolicy reports whether a policy must be asked and notified. The built-in policy Allow permits
// its user everything, so it is not asked about each request.
func (s *Server) hasPolicy() bool {
	_, all := s.cfg.Policy.(policy.Allow)
	return !all
}

// maxRefusal bounds the text of a policy's refusal that the client receives, in bytes.
const maxRefusal = 1 << 10

// policyError converts the error of a policy into the error for the client. A refusal keeps its
// code. Any failure of the policy becomes policy_unavailable, so the request is refused until the
// policy works.
func policyError(err error) error {
	var no *policy.Refusal
	var e *protocol.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &no):
		return protocol.Errorf(protocol.Code(no.Code), "%s", no.Message[:min(len(no.Message), maxRefusal)])
	case errors.As(err, &e), errors.Is(err, context.Canceled):
		return err
	}
	return &protocol.Error{Code: protocol.CodePolicyUnavailable, Message: "the policy failed, try again later: " + err.Error(), Retryable: true, RetryAfterMS: 1000}
}

// authenticate checks the credentials of the client and asks the policy which user it is. The
// credentials are in the hello, unless the client presented a ticket or a cookie before.
func (c *caller) authenticate(ctx context.Context, hello *api.Hello) error {
	cfg := &c.s.cfg
	own := isSameSecret(hello.Token, cfg.Token) // only this user can read the token
	vouched := c.from.Trusted || own
	reason := ""
	switch {
	case !vouched && (hello.Token == "" || !c.s.hasPolicy()):
		reason = "the token is missing or wrong"
	case cfg.Secret != "" && !c.from.Cookie && !isSameSecret(hello.Secret, cfg.Secret):
		reason = "the secret is missing or wrong"
	case c.from.Principal != nil: // the ticket or the cookie contains it
		return nil
	}
	err := error(protocol.Errorf(protocol.CodeUnauthorized, "%s", reason))
	if reason == "" {
		shown := policy.Credentials{Token: hello.Token, Transport: c.from.Transport, PID: c.from.PID, Client: hello.Client}
		if own {
			shown.Token = ""
		}
		c.from.Principal, err = c.s.principal(ctx, shown, vouched)
	}
	if err != nil {
		c.reportRejected(err)
	}
	return err
}

// vouch makes the client the one that a gate has established. The proxy's policy does not see the client's
// credentials, but decides about its requests. So a proxy without a policy must refuse such a client.
func (c *caller) vouch(m *api.Vouch) error {
	principal := policy.Principal(m.Principal)
	reason := ""
	switch {
	case !c.s.hasPolicy():
		reason = "the gate of this host has a policy, but the proxy of the host has none that could decide about requests; set the setting policy there"
	case !c.from.Trusted || !isSameSecret(m.Token, c.s.cfg.Token) || c.from.Principal != nil || c.from.Share != nil:
		reason = "only the agent of this host may name the user of a client"
	case principal.Validate() != nil:
		reason = "the user that the gate names is not valid"
	}
	if reason != "" {
		err := protocol.Errorf(protocol.CodeUnauthorized, "%s", reason)
		c.reportRejected(err)
		return err
	}
	c.from.Principal = &principal
	return nil
}

// principal asks the policy which user has the given credentials. vouched tells that the
// credentials prove that the client runs as this user.
func (s *Server) principal(ctx context.Context, shown policy.Credentials, vouched bool) (*policy.Principal, error) {
	shown.UID = -1
	if vouched {
		shown.UID = max(0, os.Getuid()) // Getuid returns -1 on Windows
	}
	principal, err := s.cfg.Policy.Authenticate(ctx, shown)
	if err != nil {
		return nil, policyError(err)
	}
	return &principal, nil
}

// identify asks the policy for the principal of a client that comes from another proxy, if the
// other proxy had no policy. Such a client runs as this user.
func (c *caller) identify(ctx context.Context) (err error) {
	if c.hello == nil || c.from.Principal != nil {
		return nil
	}
	shown := policy.Credentials{Transport: c.from.Transport, PID: c.from.PID, Client: c.hello.Client}
	if c.from.Principal, err = c.s.principal(ctx, shown, true); err != nil {
		c.reportRejected(err)
	}
	return err
}

// recordedPrincipal returns the client's principal for records and tickets. It returns nil if no
// policy was asked, so that a proxy with a policy will ask its own.
func (c *caller) recordedPrincipal() *policy.Principal {
	if !c.s.hasPolicy() && c.from.Principal != nil && c.from.Principal.All {
		return nil
	}
	return c.from.Principal
}

// asker returns the name of the client as other viewers of a session see it. The client chooses its
// name itself; its user is known only if there is a policy.
func (c *caller) asker() protocol.Asker {
	a := protocol.Asker{By: c.hello.Client}
	if c.s.hasPolicy() {
		a.ByUser = c.from.Principal.User
	}
	return a.Cut()
}

// reportRejected logs that the client was not authenticated, and notifies the policy.
func (c *caller) reportRejected(err error) {
	e := protocol.AsError(err)
	c.s.refusals.Of(c.log).Warn().Bool(logging.Security, true).Str(logging.Code, string(e.Code)).Str("why", e.Message).Msg("client refused")
	c.observe(policy.Event{Kind: policy.EventRefused, Code: string(e.Code)})
}

// reportRefusal logs that a request of the client was refused, and notifies the policy.
func (c *caller) reportRefusal(a policy.Access, err error) {
	c.s.refusals.Of(c.log).Info().Bool(logging.Security, true).Str(logging.Code, string(protocol.CodeOf(err))).Str("verb", string(a.Verb)).
		Str(logging.Session, a.SessionID).Str("user", c.from.Principal.User).Msg("request refused")
	c.observe(policy.Event{
		Kind: policy.EventRefused, SessionID: a.SessionID, Labels: a.Labels, Verb: a.Verb, Code: string(protocol.CodeOf(err)),
	})
}

// observe notifies the policy of an event of this client.
func (c *caller) observe(e policy.Event) {
	if c.from.Principal != nil {
		e.Principal = *c.from.Principal
	}
	c.s.observe(e)
}

// observe notifies the policy of an event.
func (s *Server) observe(e policy.Event) {
	if !s.hasPolicy() {
		return
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	_ = s.cfg.Policy.Observe(context.Background(), e) // Observe does not wait, and its error has no consequence
}

// Observe notifies the policy of the ends of sessions behind a position of events until ctx is done.
func (s *Server) Observe(ctx context.Context, from wire.Events) {
	if !s.hasPolicy() {
		return
	}
	s.cfg.Link.Watch(ctx, from, func(e *wire.Event) {
		if i := e.Session; e.Event == protocol.EventExited && i != nil && i.Exit != nil {
			s.observe(policy.Event{At: e.At, Kind: policy.EventExited, SessionID: string(i.ID), Labels: i.Labels, ExitCode: i.Exit.ExitCode})
		}
	})
}

// resolve asks the policy what the task is, and returns the session to start for it.
func (c *caller) resolve(ctx context.Context, m *api.TerminalOpen) (spec protocol.SpawnSpec, err error) {
	principal := c.from.Principal
	defer func() {
		if err != nil && ctx.Err() == nil {
			labels := map[string]string{protocol.LabelTask: m.TaskID, protocol.LabelWorkspace: m.WorkspaceID}
			c.reportRefusal(policy.Access{Verb: policy.VerbSpawn, Labels: labels}, err)
		}
	}()
	r := policy.TaskRequest{Principal: *principal, TaskID: m.TaskID, WorkspaceID: m.WorkspaceID, UserID: m.UserID}
	if !principal.All {
		if r.WorkspaceID = cmp.Or(m.WorkspaceID, principal.Workspace); r.WorkspaceID != principal.Workspace {
			return protocol.SpawnSpec{}, otherWorkspace()
		}
		r.UserID = cmp.Or(principal.User, m.UserID)
	}
	task, err := c.s.cfg.Policy.ResolveTask(ctx, r)
	if err != nil {
		return protocol.SpawnSpec{}, policyError(err)
	}
	return taskSpec(r, task, protocol.Size{Cols: m.Cols, Rows: m.Rows})
}

// taskSpec converts a task into the session to start.
func taskSpec(r policy.TaskRequest, task policy.Task, size protocol.Size) (protocol.SpawnSpec, error) {
	if task.WorkDir == "" {
		return protocol.SpawnSpec{}, protocol.Errorf(protocol.CodeTaskNotFound, "task %s has no work_dir: the policy must return one", r.TaskID)
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

// loginShell returns the command of the user's login shell.
func loginShell() []string { return []string{config.LoginShell(), "-l"} }

// taskEnv returns the environment variables that describe the task to the child. Unknown values are
// omitted.
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
