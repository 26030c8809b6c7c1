//go:build unix

package policyhost

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"strings"
	"sync"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"holdfast/proxy/policy"
	"holdfast/proxy/policy/policypb"
)

// An actor is a policy whose answers depend on the questions.
type actor struct {
	policypb.UnimplementedPolicyServer
	mu   sync.Mutex
	out  *json.Encoder
	once sync.Once
	gate chan struct{}
}

func (a *actor) report(r report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.out != nil {
		_ = a.out.Encode(r)
	}
}

// listen opens the gate at the first line.
func (a *actor) listen(conn net.Conn) {
	for in := bufio.NewScanner(conn); in.Scan(); {
		a.once.Do(func() { close(a.gate) })
	}
}

// watch reports the end of standard input, which shows the end of the proxy if no signal does.
func (a *actor) watch() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	a.report(report{What: "told", Event: "input ended"})
}

func (a *actor) serve(set map[int]plugin.PluginSet) {
	plugin.Serve(&plugin.ServeConfig{HandshakeConfig: policy.Handshake, VersionedPlugins: set, GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
		return grpc.NewServer(append(o, grpc.MaxSendMsgSize(1<<30))...)
	}})
}

type rawPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	a *actor
}

func (p rawPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	policypb.RegisterPolicyServer(s, rawServer{a: p.a})
	return nil
}

func (rawPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("no client")
}

type netRPC struct{}

func (netRPC) Server(*plugin.MuxBroker) (any, error)              { return nil, nil }
func (netRPC) Client(*plugin.MuxBroker, *rpc.Client) (any, error) { return nil, nil }

// The methods of a proper policy.

func (a *actor) Authenticate(ctx context.Context, c policy.Credentials) (policy.Principal, error) {
	switch what, rest, _ := strings.Cut(c.Token, " "); what {
	case "refuse":
		return policy.Principal{}, policy.Refuse(policy.CodeUnauthorized, "no such token")
	case "wait":
		a.report(report{What: "asked"})
		<-a.gate
	case "exit":
		os.Exit(3)
	case "print":
		_, _ = io.WriteString(stderr, rest)
	case "stdout": // uses the stream of the library
		fmt.Print(rest)
	}
	return policy.Principal{User: "u", Workspace: c.Client, Roles: []string{c.Transport}}, nil
}

// stderr is the real one, because the library replaces os.Stderr.
var stderr = os.Stderr

func (a *actor) ResolveTask(_ context.Context, r policy.TaskRequest) (policy.Task, error) {
	if r.TaskID == "none" {
		return policy.Task{}, policy.Refuse(policy.CodeTaskNotFound, "no such task")
	}
	return policy.Task{WorkDir: "/w/" + r.TaskID, Argv: []string{"sh"}, Labels: map[string]string{"user": r.Principal.User}}, nil
}

func (a *actor) Authorize(_ context.Context, x policy.Access) error {
	if x.Verb == policy.VerbType {
		return policy.Refuse(policy.CodePermissionDenied, "read only")
	}
	return nil
}

func (a *actor) Observe(_ context.Context, e policy.Event) error {
	a.report(report{What: "told", Event: e.SessionID})
	return nil
}

// rawServer sends replies that policy.Serve would not send.
type rawServer struct {
	policypb.UnimplementedPolicyServer
	a *actor
}

func (s rawServer) Authenticate(_ context.Context, q *policypb.AuthenticateRequest) (*policypb.AuthenticateResponse, error) {
	user := func(u string) (*policypb.AuthenticateResponse, error) {
		return &policypb.AuthenticateResponse{Principal: &policypb.Principal{User: u}}, nil
	}
	switch q.Token {
	case "error":
		return nil, status.Error(codes.Internal, "out of order")
	case "empty":
		return &policypb.AuthenticateResponse{}, nil
	case "foreign refusal":
		return &policypb.AuthenticateResponse{Refusal: &policypb.Refusal{Code: policy.CodeTaskNotFound}}, nil
	case "long":
		return user(strings.Repeat("u", policy.MaxNameBytes+1))
	case "large":
		return user(strings.Repeat("u", policy.MaxMessageBytes+1))
	case "long error":
		return nil, status.Error(codes.Internal, strings.Repeat("e", maxHeader+1))
	case "wait":
		<-s.a.gate
	}
	return user("u")
}

func (s rawServer) ResolveTask(_ context.Context, q *policypb.ResolveTaskRequest) (*policypb.ResolveTaskResponse, error) {
	switch q.TaskId {
	case "relative":
		return &policypb.ResolveTaskResponse{WorkDir: "w"}, nil
	case "foreign refusal":
		return &policypb.ResolveTaskResponse{Refusal: &policypb.Refusal{Code: policy.CodeUnauthorized}}, nil
	}
	return &policypb.ResolveTaskResponse{WorkDir: "/w"}, nil
}

func (s rawServer) Authorize(_ context.Context, q *policypb.AuthorizeRequest) (*policypb.AuthorizeResponse, error) {
	if q.SessionId == "foreign refusal" {
		return &policypb.AuthorizeResponse{Refusal: &policypb.Refusal{Code: "other"}}, nil
	}
	return &policypb.AuthorizeResponse{}, nil
}
