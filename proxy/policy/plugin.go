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

// Handshake is what a program shows that it was started as a policy. It is a
// courtesy to whoever starts one by hand, and proves nothing.
var Handshake = plugin.HandshakeConfig{MagicCookieKey: "HOLDFAST_POLICY", MagicCookieValue: "holdfast.policy"}

// Version counts incompatible meanings of the questions, not releases.
//   - 1: 2026-11: first
const Version = 1

// PluginName is what the host dispenses.
const PluginName = "policy"

// MaxMessageBytes is the longest question and the longest answer. What a client
// may say is bounded well below.
const MaxMessageBytes = 1 << 20

// Plugins are the versions that this package speaks, for both ends of
// go-plugin. The host gives nil, and what it dispenses as PluginName is a
// Policy: a *Refusal is the policy's no, another error a policy that does not
// work.
func Plugins(p Policy) map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{Version: {PluginName: &grpcPlugin{policy: p}}}
}

// Serve answers the questions of the proxy that started this program, and
// returns when that asks for the end, or has ended itself. It is what main of a
// policy calls. Log to what os.Stderr was before, best with hclog in JSON, and
// the lines come to the proxy's log; keep off stdout.
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
			go orphaned(s, stop)
			return s
		},
	})
}

func newServer(options []grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(options, grpc.MaxRecvMsgSize(MaxMessageBytes), grpc.MaxSendMsgSize(MaxMessageBytes))...)
}

// orphaned stops a server whose proxy was killed: go-plugin does not notice
// that, and the program would stay for good. Where a parent that has gone is
// still named (Windows) it stays.
func orphaned(s *grpc.Server, stop <-chan struct{}) {
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

// grpcPlugin is both ends for go-plugin; policy and log are of the server's.
type grpcPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	policy Policy
	log    hclog.Logger
}

func (p *grpcPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	if p.policy == nil {
		return errors.New("there is no policy to serve")
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
