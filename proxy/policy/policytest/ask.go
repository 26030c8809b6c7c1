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

const answerTime = 10 * time.Second

// A reporter has the methods of *testing.T that the checks need, so that the checks themselves
// can be tested.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// An asker asks the policy, and reports invalid answers: an error, a panic, no answer, or a
// refusal with the code of another question. Its methods return the code of a refusal, or "" if
// the policy has allowed the request. They return false if they have reported something.
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

// resolve returns task_not_found for a task without a work dir, because that is its meaning.
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

func (q asker) ask(question string, call func(context.Context) error, allowed ...string) (code string, ok bool) {
	q.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	err, ok := q.returns(ctx, question, call)
	var no *policy.Refusal
	switch {
	case !ok || err == nil:
		return "", ok
	case !errors.As(err, &no):
		q.Errorf("%s: got the error %v, want an answer", question, err)
		return "", false
	case !slices.Contains(allowed, no.Code):
		q.Errorf("%s: refused with the code %.80q, but it must be one of %q", question, no.Code, allowed)
		return "", false
	}
	return no.Code, true
}

// returns reports a call that panics or does not return.
func (q asker) returns(ctx context.Context, question string, call func(context.Context) error) (error, bool) {
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
	late := time.NewTimer(answerTime + time.Second) // for a call that ignores the end of ctx
	defer late.Stop()
	select {
	case r := <-done:
		if r.panicked != nil {
			q.Errorf("%s: it panicked: %v", question, r.panicked)
			return nil, false
		}
		err, _ := r.err.(error)
		return err, true
	case <-late.C:
		q.Errorf("%s: no answer within %v", question, answerTime)
		return nil, false
	}
}

func (q asker) valid(question string, err error) bool {
	q.Helper()
	if err != nil {
		q.Errorf("%s: the answer is not valid: %s", question, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return err == nil
}

// These functions return the names of questions in reports.

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
