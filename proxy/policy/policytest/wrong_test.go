package policytest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"holdfast/proxy/policy"
)

// wrong are policies with one fault, the check that finds it, and a part of its complaint.
var wrong = []struct {
	name  string
	harm  func(*model)
	check string
	says  string
}{
	{"a token is another's", authenticates(func(_ policy.Credentials, p *policy.Principal, _ *error) { p.User = "bob" }), "authenticate/known tokens", "want {User:ann"},
	{"a role is lost", authenticates(func(_ policy.Credentials, p *policy.Principal, _ *error) { p.Roles = nil }), "authenticate/known tokens", "want {User:ann"},
	{"raw views are not let in", authenticates(func(c policy.Credentials, _ *policy.Principal, err *error) {
		if c.Transport == policy.TransportRaw {
			*err = policy.Refuse(policy.CodeUnauthorized, "")
		}
	}), "authenticate/known tokens", "refused with unauthorized"},
	{"the answer is too long", authenticates(func(_ policy.Credentials, p *policy.Principal, _ *error) {
		p.Workspace = strings.Repeat("w", policy.MaxNameBytes+1)
	}), "authenticate/known tokens", "not valid: workspace"},
	{"a uid has no user", authenticates(func(c policy.Credentials, p *policy.Principal, err *error) {
		if c.UID == 0 {
			*err = policy.Refuse(policy.CodeUnauthorized, "")
		}
	}), "authenticate/known uids", "refused with unauthorized"},
	{"tokens are trimmed", authenticates(func(c policy.Credentials, p *policy.Principal, err *error) {
		if strings.TrimSpace(c.Token) == "ann's token" {
			*p, *err = ann, nil
		}
	}), "authenticate/unknown tokens", "let in as {User:ann"},
	{"raw views are let in", authenticates(func(c policy.Credentials, p *policy.Principal, err *error) {
		if c.Transport == policy.TransportRaw {
			*p, *err = ann, nil
		}
	}), "authenticate/unknown tokens", "by \"raw\": let in"},
	{"a long token is let in", authenticates(func(c policy.Credentials, p *policy.Principal, err *error) {
		if len(c.Token) > 4096 {
			*p, *err = ann, nil
		}
	}), "authenticate/unknown tokens", "let in"},
	{"every uid is let in", authenticates(func(c policy.Credentials, p *policy.Principal, err *error) {
		if c.UID >= 0 {
			*p, *err = root, nil
		}
	}), "authenticate/unknown uids", "let in"},
	{"-1 is taken for a uid", authenticates(func(c policy.Credentials, p *policy.Principal, err *error) {
		if c.Token == "" && c.UID <= 0 {
			*p, *err = root, nil
		}
	}), "authenticate/no credentials", "let in"},
	{"a name is believed", authenticates(func(c policy.Credentials, p *policy.Principal, err *error) {
		if c.Client == "root" {
			*p, *err = root, nil
		}
	}), "authenticate/no credentials", "let in"},
	{"a stranger is an error", authenticates(func(_ policy.Credentials, _ *policy.Principal, err *error) {
		if *err != nil {
			*err = errors.New("who?")
		}
	}), "authenticate/unknown tokens", "got the error who?"},
	{"a stranger is denied", authenticates(func(_ policy.Credentials, _ *policy.Principal, err *error) {
		if *err != nil {
			*err = policy.Refuse(policy.CodePermissionDenied, "")
		}
	}), "authenticate/no credentials", "permission_denied"},

	{"a task loses its labels", resolves(func(_ policy.TaskRequest, t *policy.Task, _ *error) { t.Labels = nil }), "resolve/known tasks", "want {WorkDir:/src"},
	{"a task is refused", resolves(func(_ policy.TaskRequest, t *policy.Task, _ *error) { *t = policy.Task{} }), "resolve/known tasks", "refused with task_not_found"},
	{"a work dir is relative", resolves(func(_ policy.TaskRequest, t *policy.Task, _ *error) { t.WorkDir = "src" }), "resolve/known tasks", "not absolute"},
	{"an environment is none", resolves(func(_ policy.TaskRequest, t *policy.Task, _ *error) { t.Env = []string{"A"} }), "resolve/known tasks", "env[0]"},
	{"every task is there", resolves(func(_ policy.TaskRequest, t *policy.Task, _ *error) { t.WorkDir = "/" }), "resolve/unknown tasks", "want task_not_found"},
	{"no task is a task", resolves(func(r policy.TaskRequest, t *policy.Task, _ *error) {
		if r.TaskID == "" {
			t.WorkDir = "/"
		}
	}), "resolve/no task id", "want task_not_found"},
	{"a task is everyone's", resolves(func(r policy.TaskRequest, t *policy.Task, err *error) {
		if r.TaskID == "build" {
			*t, *err = subject.Tasks[0].Task, nil
		}
	}), "resolve/other workspace", "want workspace_mismatch"},
	{"a task is hidden", resolves(func(_ policy.TaskRequest, _ *policy.Task, err *error) { *err = nil }), "resolve/other workspace", "want workspace_mismatch"},

	{"no request is allowed", authorizes(func(policy.Access) error { return policy.Refuse(policy.CodePermissionDenied, "") }), "authorize/allowed", "want a yes"},
	{"all is allowed", authorizes(func(policy.Access) error { return nil }), "authorize/denied", "want permission_denied"},
	{"a no is an error", authorizes(func(policy.Access) error { return errors.New("no") }), "authorize/denied", "got the error no"},
	{"a no is unauthorized", authorizes(func(policy.Access) error { return policy.Refuse(policy.CodeUnauthorized, "") }), "authorize/denied", `"unauthorized", but it must be one of`},
	{"a verb is an error", authorizes(func(a policy.Access) error {
		if a.Verb == "policytest" {
			return errors.New("what?")
		}
		return nil
	}), "authorize/unknown verbs", "got the error what?"},
	{"a verb is a panic", authorizes(func(a policy.Access) error {
		if a.Verb == "" {
			panic("no verb")
		}
		return nil
	}), "authorize/unknown verbs", "panicked: no verb"},

	{"an event is unknown", observes(func(e policy.Event) error {
		if e.Kind == "policytest" {
			return errors.New("what?")
		}
		return nil
	}), "observe", "got the error what?"},
	{"an event is refused", observes(func(policy.Event) error { return policy.Refuse(policy.CodeUnauthorized, "") }), "observe", "refused with the code"},
	{"labels are too long", observes(func(e policy.Event) error {
		if len(e.Labels["policytest"]) > 1<<16 {
			return errors.New("too long")
		}
		return nil
	}), "observe", "too long"},

	{"odd text is a panic", resolves(func(r policy.TaskRequest, _ *policy.Task, _ *error) {
		if strings.Contains(r.WorkspaceID, "\xff") {
			panic("not UTF-8")
		}
	}), "odd text", "panicked: not UTF-8"},
	{"long text is an error", authorizes(func(a policy.Access) error {
		if len(a.SessionID) > 1024 {
			return errors.New("too long")
		}
		return nil
	}), "odd text", "got the error too long"},

	{"the answer changes", func(m *model) {
		var asked atomic.Int32
		m.authorize = func(context.Context, policy.Access) error {
			if asked.Add(1)%2 == 0 {
				return policy.Refuse(policy.CodePermissionDenied, "")
			}
			return nil
		}
	}, "same answer", "and before"},
	{"concurrent calls fail", func(m *model) {
		authorize, at := m.authorize, atomic.Int32{}
		m.authorize = func(ctx context.Context, a policy.Access) error {
			defer at.Add(-1)
			if at.Add(1) > 1 {
				return policy.Refuse(policy.CodePermissionDenied, "busy")
			}
			time.Sleep(time.Millisecond)
			return authorize(ctx, a)
		}
	}, "at the same time", "and alone"},
	{"calls never return", func(m *model) {
		m.resolve = func(ctx context.Context, r policy.TaskRequest) (policy.Task, error) {
			if ctx.Err() != nil { // hangs if the caller has canceled
				time.Sleep(24 * time.Hour)
			}
			return policy.Task{}, nil
		}
	}, "a caller that gave up", "no answer within"},
	{"a canceled call ends the policy", func(m *model) {
		observe, gone := m.observe, atomic.Bool{}
		m.observe = func(ctx context.Context, e policy.Event) error {
			gone.Store(gone.Load() || ctx.Err() != nil)
			return observe(ctx, e)
		}
		authorize := m.authorize
		m.authorize = func(ctx context.Context, a policy.Access) error {
			if gone.Load() {
				return errors.New("gone")
			}
			return authorize(ctx, a)
		}
	}, "a caller that gave up", "got the error gone"},
}

func authenticates(change func(policy.Credentials, *policy.Principal, *error)) func(*model) {
	return func(m *model) {
		right := m.authenticate
		m.authenticate = func(ctx context.Context, c policy.Credentials) (policy.Principal, error) {
			p, err := right(ctx, c)
			change(c, &p, &err)
			return p, err
		}
	}
}

func resolves(change func(policy.TaskRequest, *policy.Task, *error)) func(*model) {
	return func(m *model) {
		right := m.resolve
		m.resolve = func(ctx context.Context, r policy.TaskRequest) (policy.Task, error) {
			t, err := right(ctx, r)
			change(r, &t, &err)
			return t, err
		}
	}
}

func authorizes(f func(policy.Access) error) func(*model) {
	return func(m *model) { m.authorize = func(_ context.Context, a policy.Access) error { return f(a) } }
}

func observes(f func(policy.Event) error) func(*model) {
	return func(m *model) { m.observe = func(_ context.Context, e policy.Event) error { return f(e) } }
}
