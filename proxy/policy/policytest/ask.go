package policytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/proxy/policy"
)

const patience = 10 * time.Second

// reporter is what the checks need of a *testing.T, so that tests of the checks
// themselves can have another.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// An asker asks, and reports what no answer may be: an error, a panic, none at
// all, a refusal with a code of another question. Its methods return the code of
// a refusal, "" of a yes, and false where they have reported.
type asker struct {
	reporter
	policy policy.Policy
}

func (q asker) authenticate(c policy.Credentials) (p policy.Principal, code string, ok bool) {
	q.Helper()
	code, ok = q.ask(credentials(c), func(ctx context.Context) (err error) {
		p, err = q.policy.Authenticate(ctx, c)
		return err
	}, policy.CodeUnauthorized)
	if ok && code == "" {
		ok = q.valid(credentials(c), p.Validate())
	}
	return p, code, ok
}

// resolve takes a task without a work dir for what it means: there is none.
func (q asker) resolve(r policy.TaskRequest) (t policy.Task, code string, ok bool) {
	q.Helper()
	code, ok = q.ask(task(r), func(ctx context.Context) (err error) {
		t, err = q.policy.ResolveTask(ctx, r)
		return err
	}, policy.CodeTaskNotFound, policy.CodeWorkspaceMismatch)
	if ok && code == "" {
		ok = q.valid(task(r), t.Validate())
		if t.WorkDir == "" {
			code = policy.CodeTaskNotFound
		}
	}
	return t, code, ok
}

func (q asker) authorize(a policy.Access) (code string, ok bool) {
	q.Helper()
	return q.ask(access(a), func(ctx context.Context) error { return q.policy.Authorize(ctx, a) }, policy.CodePermissionDenied)
}

func (q asker) observe(e policy.Event) (ok bool) {
	q.Helper()
	_, ok = q.ask(event(e), func(ctx context.Context) error { return q.policy.Observe(ctx, e) })
	return ok
}

func (q asker) ask(what string, call func(context.Context) error, may ...string) (code string, ok bool) {
	q.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err, ok := q.returns(ctx, what, call)
	var no *policy.Refusal
	switch {
	case !ok || err == nil:
		return "", ok
	case !errors.As(err, &no):
		q.Errorf("%s: got the error %v, want an answer", what, err)
		return "", false
	case !slices.Contains(may, no.Code):
		q.Errorf("%s: refused with the code %.80q, which may be %q", what, no.Code, may)
		return "", false
	}
	return no.Code, true
}

// returns reports a call that panics or does not come back.
func (q asker) returns(ctx context.Context, what string, call func(context.Context) error) (error, bool) {
	q.Helper()
	type result struct{ err, panicked any }
	done := make(chan result, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- result{panicked: p}
			}
		}()
		done <- result{err: call(ctx)}
	}()
	late := time.NewTimer(patience + time.Second) // of whom ctx's end does not stop
	defer late.Stop()
	select {
	case r := <-done:
		if r.panicked != nil {
			q.Errorf("%s: it panicked: %v", what, r.panicked)
			return nil, false
		}
		err, _ := r.err.(error)
		return err, true
	case <-late.C:
		q.Errorf("%s: no answer within %v", what, patience)
		return nil, false
	}
}

func (q asker) valid(what string, err error) bool {
	q.Helper()
	if err != nil {
		q.Errorf("%s: the answer is not valid: %s", what, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return err == nil
}

// How questions are named in complaints.

func credentials(c policy.Credentials) string {
	return fmt.Sprintf("authenticate token %.40q uid %d by %.20q", c.Token, c.UID, c.Transport)
}

func task(r policy.TaskRequest) string {
	return fmt.Sprintf("resolve task %.40q of workspace %.40q for %.40q", r.TaskID, r.WorkspaceID, r.Principal.User)
}

func access(a policy.Access) string {
	return fmt.Sprintf("authorize %.20q of session %.40q for %.40q", a.Verb, a.SessionID, a.Principal.User)
}

func event(e policy.Event) string { return fmt.Sprintf("observe %.20q", e.Kind) }
