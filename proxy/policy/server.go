package policy

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"holdfast/proxy/policy/policypb"
)

// A server answers the questions of a client, in the policy's own program.
type server struct {
	policypb.UnimplementedPolicyServer
	policy Policy
	log    hclog.Logger
}

func (s *server) Authenticate(ctx context.Context, q *policypb.AuthenticateRequest) (a *policypb.AuthenticateResponse, err error) {
	defer s.recovered(&err)
	p, err := s.policy.Authenticate(ctx, Credentials{
		Token: q.Token, Transport: q.Transport, UID: int(q.Uid), PID: int(q.Pid), Client: q.Client,
	})
	if err != nil {
		no, err := refusal(err)
		return &policypb.AuthenticateResponse{Refusal: no}, err
	}
	return &policypb.AuthenticateResponse{Principal: toPrincipal(p)}, nil
}

func (s *server) ResolveTask(ctx context.Context, q *policypb.ResolveTaskRequest) (a *policypb.ResolveTaskResponse, err error) {
	defer s.recovered(&err)
	t, err := s.policy.ResolveTask(ctx, TaskRequest{
		Principal: fromPrincipal(q.Principal), TaskID: q.TaskId, WorkspaceID: q.WorkspaceId, UserID: q.UserId,
	})
	if err != nil {
		no, err := refusal(err)
		return &policypb.ResolveTaskResponse{Refusal: no}, err
	}
	return toTask(t), nil
}

func (s *server) Authorize(ctx context.Context, q *policypb.AuthorizeRequest) (a *policypb.AuthorizeResponse, err error) {
	defer s.recovered(&err)
	err = s.policy.Authorize(ctx, Access{
		Principal: fromPrincipal(q.Principal), Verb: Verb(q.Verb), SessionID: q.SessionId, Labels: q.Labels, Argv: q.Argv, WorkDir: q.WorkDir,
	})
	if err != nil {
		no, err := refusal(err)
		return &policypb.AuthorizeResponse{Refusal: no}, err
	}
	return &policypb.AuthorizeResponse{}, nil
}

func (s *server) Observe(ctx context.Context, q *policypb.ObserveRequest) (a *policypb.ObserveResponse, err error) {
	defer s.recovered(&err)
	if err := s.policy.Observe(ctx, fromEvent(q)); err != nil {
		return nil, broken(err)
	}
	return &policypb.ObserveResponse{}, nil
}

// recovered turns a panic into an error, so that a panic affects only one question and not all
// clients.
func (s *server) recovered(err *error) {
	if p := recover(); p != nil {
		s.log.Error("the policy panicked", "panic", p, "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "the policy panicked: %v", p)
	}
}

// refusal returns the Refusal of an error for the answer, or a gRPC status if the error is not a
// Refusal.
func refusal(err error) (*policypb.Refusal, error) {
	var no *Refusal
	if errors.As(err, &no) {
		return &policypb.Refusal{Code: no.Code, Message: no.Message}, nil
	}
	return nil, broken(err)
}

func broken(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unknown, err.Error())
}
