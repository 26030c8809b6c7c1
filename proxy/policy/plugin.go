package policy

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"holdfast/proxy/policy/policypb"
)

// Handshake holds the environment variable by which a program sees that a proxy has started it as
// a policy. It is a hint for a person who starts the program by hand, and proves nothing.
var Handshake = plugin.HandshakeConfig{MagicCookieKey: "HOLDFAST_POLICY", MagicCookieValue: "holdfast.policy"}

// Version counts incompatible changes of the questions' meaning; releases do not change it.
//   - 1: 2026-11: first
const Version = 1

// PluginName is the name under which the host dispenses the policy.
const PluginName = "policy"

// MaxMessageBytes is the largest size of a question and of an answer. The limits on a client's
// messages are far below it.
const MaxMessageBytes = 1 << 20

// Plugins returns the plugin sets of the versions that this package speaks, for both ends of
// go-plugin. The host must pass nil; it then dispenses a Policy as PluginName. A *Refusal from
// that Policy is the policy's refusal. Any other error means that the policy does not work.
func Plugins(p Policy) map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{Version: {PluginName: &grpcPlugin{policy: p}}}
}

// Serve answers the questions of the proxy that started this program. It returns when the proxy
// asks for the end, or has ended itself. The main function of a policy should call it. The
// program should log to the os.Stderr that it had before Serve, best with hclog in JSON, because
// the proxy copies these lines to its log. It must not write to stdout.
func Serve(p Policy) {
	stop := make(chan struct{})
	defer close(stop)
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: os.Stderr, JSONFormat: true})
	set := Plugins(p)
	set[Version][PluginName].(*grpcPlugin).log = log
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  Handshake,
		VersionedPlugins: set,
		Logger:           log,
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			s := newServer(options)
			go stopOrphan(s, stop)
			return s
		},
	})
}

func newServer(options []grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(options, grpc.MaxRecvMsgSize(MaxMessageBytes), grpc.MaxSendMsgSize(MaxMessageBytes))...)
}

// stopOrphan stops the server when the proxy has been killed, because go-plugin does not notice
// that and the program would run for ever. On Windows it has no effect, because the parent's pid
// does not change there when the parent ends.
func stopOrphan(s *grpc.Server, stop <-chan struct{}) {
	parent, tick := os.Getppid(), time.NewTicker(time.Second)
	defer tick.Stop()
	for os.Getppid() == parent {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
	s.Stop()
}

// A grpcPlugin is either end of go-plugin; policy and log belong to the server's end.
type grpcPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	policy Policy
	log    hclog.Logger
}

func (p *grpcPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	if p.policy == nil {
		return errors.New("policy.Serve needs a policy, got nil")
	}
	if p.log == nil {
		p.log = hclog.NewNullLogger()
	}
	policypb.RegisterPolicyServer(s, &server{policy: p.policy, log: p.log})
	return nil
}

func (p *grpcPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return &client{policypb.NewPolicyClient(conn)}, nil
}
