package policy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"holdfast/proxy/policy/policypb"
)

// client asks a policy that is another program.
//
// Text in gRPC is UTF-8, and a client of the proxy may say other bytes. That is
// no fault of the policy: such a question is refused here without asking, and
// not asked with the bytes replaced, since the policy would decide about another
// name than what is then used. An event is told with the bytes replaced.
type client struct{ rpc policypb.PolicyClient }

// Authenticate implements Policy.
func (c *client) Authenticate(ctx context.Context, cr Credentials) (Principal, error) {
	q := &policypb.AuthenticateRequest{
		Token: cr.Token, Transport: cr.Transport, Uid: int64(cr.UID), Pid: int64(cr.PID), Client: cr.Client,
	}
	if why := unsendable(q); why != "" {
		return Principal{}, Refuse(CodeUnauthorized, why)
	}
	a, err := c.rpc.Authenticate(ctx, q)
	switch {
	case err != nil:
		return Principal{}, failed(ctx, "authenticate", err)
	case a.GetRefusal() != nil:
		return Principal{}, refused("authenticate", a.Refusal, CodeUnauthorized)
	case a.GetPrincipal() == nil:
		return Principal{}, fmt.Errorf("authenticate: the answer has neither a principal nor a refusal")
	}
	return fromPrincipal(a.Principal), nil
}

// ResolveTask implements Policy.
func (c *client) ResolveTask(ctx context.Context, r TaskRequest) (Task, error) {
	q := &policypb.ResolveTaskRequest{
		Principal: toPrincipal(r.Principal), TaskId: r.TaskID, WorkspaceId: r.WorkspaceID, UserId: r.UserID,
	}
	if why := unsendable(q); why != "" {
		return Task{}, Refuse(CodeTaskNotFound, why)
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
	if why := unsendable(q); why != "" {
		return Refuse(CodePermissionDenied, why)
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
	if proto.Size(q) > MaxMessageBytes { // an audit had rather have the rest than nothing
		q.Labels = nil
	}
	if _, err := c.rpc.Observe(ctx, q); err != nil {
		return failed(ctx, "observe", err)
	}
	return nil
}

// unsendable says why a question cannot be asked, or "". All but the size is
// what the runtime would find out when it sends it, as an error like that of a
// policy that does not work.
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

// failed wraps what went wrong, so that a caller who gave up finds its own reason.
func failed(ctx context.Context, what string, err error) error {
	switch status.Code(err) {
	case codes.Canceled:
		err = cmp.Or(ctx.Err(), err)
	case codes.DeadlineExceeded: // the far side's clock may tell sooner than ctx does
		if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
			err = context.DeadlineExceeded
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// refused returns a refusal as such, if its code is one of those that the
// question may be answered with.
func refused(what string, r *policypb.Refusal, may ...string) error {
	if !slices.Contains(may, r.Code) {
		return fmt.Errorf("%s: the refusal's code is %.80q, and may be %s", what, r.Code, strings.Join(may, ", "))
	}
	return Refuse(r.Code, r.Message)
}
