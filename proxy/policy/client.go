package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"holdfast/proxy/policy/policypb"
)

// A client asks a policy that runs as another program.
//
// Text in gRPC must be UTF-8, but a client of the proxy may send other bytes. That is no failure
// of the policy, so such a question is refused without asking. The bytes must not be replaced,
// because the policy would then decide about another name than the one that is used afterwards.
// In an event they are replaced.
type client struct{ rpc policypb.PolicyClient }

// Authenticate implements Policy.
func (c *client) Authenticate(ctx context.Context, cr Credentials) (Principal, error) {
	q := &policypb.AuthenticateRequest{
		Token: cr.Token, Transport: cr.Transport, Uid: int64(cr.UID), Pid: int64(cr.PID), Client: cr.Client,
	}
	if reason := unsendable(q); reason != "" {
		return Principal{}, Refuse(CodeUnauthorized, reason)
	}
	a, err := c.rpc.Authenticate(ctx, q)
	switch {
	case err != nil:
		return Principal{}, failed(ctx, "authenticate", err)
	case a.GetRefusal() != nil:
		return Principal{}, refused("authenticate", a.Refusal, CodeUnauthorized)
	case a.GetPrincipal() == nil:
		return Principal{}, errors.New("authenticate: the answer has neither a principal nor a refusal")
	}
	return fromPrincipal(a.Principal), nil
}

// ResolveTask implements Policy.
func (c *client) ResolveTask(ctx context.Context, r TaskRequest) (Task, error) {
	q := &policypb.ResolveTaskRequest{
		Principal: toPrincipal(r.Principal), TaskId: r.TaskID, WorkspaceId: r.WorkspaceID, UserId: r.UserID,
	}
	if reason := unsendable(q); reason != "" {
		return Task{}, Refuse(CodeTaskNotFound, reason)
	}
	a, err := c.rpc.ResolveTask(ctx, q)
	switch {
	case err != nil:
		return Task{}, failed(ctx, "resolve task", err)
	case a.GetRefusal() != nil:
		return Task{}, refused("resolve task", a.Refusal, CodeTaskNotFound, CodeWorkspaceMismatch)
	}
	return fromTask(a), nil
}

// Authorize implements Policy.
func (c *client) Authorize(ctx context.Context, x Access) error {
	q := &policypb.AuthorizeRequest{
		Principal: toPrincipal(x.Principal), Verb: string(x.Verb), SessionId: x.SessionID, Labels: x.Labels, Argv: x.Argv, WorkDir: x.WorkDir,
	}
	if reason := unsendable(q); reason != "" {
		return Refuse(CodePermissionDenied, reason)
	}
	a, err := c.rpc.Authorize(ctx, q)
	switch {
	case err != nil:
		return failed(ctx, "authorize", err)
	case a.GetRefusal() != nil:
		return refused("authorize", a.Refusal, CodePermissionDenied)
	}
	return nil
}

// Observe implements Policy.
func (c *client) Observe(ctx context.Context, e Event) error {
	q := toEvent(e)
	if proto.Size(q) > MaxMessageBytes { // an incomplete event is better for an audit than none
		q.Labels = nil
	}
	if _, err := c.rpc.Observe(ctx, q); err != nil {
		return failed(ctx, "observe", err)
	}
	return nil
}

// unsendable returns the reason why a question cannot be sent, or "". The gRPC runtime would find
// text that is not UTF-8 as well, but its error would look like that of a policy that does not
// work.
func unsendable(q proto.Message) string {
	b, err := proto.Marshal(q)
	switch {
	case err != nil:
		return "it contains text that is not UTF-8"
	case len(b) > MaxMessageBytes:
		return fmt.Sprintf("it is longer than %d bytes", MaxMessageBytes)
	}
	return ""
}

// failed wraps the error of a call. If the caller's context has ended, the error matches the
// context's error.
func failed(ctx context.Context, question string, err error) error {
	switch status.Code(err) {
	case codes.Canceled:
		err = cmp.Or(ctx.Err(), err)
	case codes.DeadlineExceeded: // the policy's timer may fire before the timer of ctx
		if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
			err = context.DeadlineExceeded
		}
	}
	return fmt.Errorf("%s: %w", question, err)
}

// refused returns the policy's refusal, or another error if its code is not one of allowed.
func refused(question string, r *policypb.Refusal, allowed ...string) error {
	if !slices.Contains(allowed, r.Code) {
		return fmt.Errorf("%s: the refusal's code is %.80q, but must be one of %s", question, r.Code, strings.Join(allowed, ", "))
	}
	return Refuse(r.Code, r.Message)
}
