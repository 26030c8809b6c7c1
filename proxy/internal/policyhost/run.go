package policyhost

import (
	"context"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"holdfast/proxy/policy"
)

// maxLate is how many answers in a row, none in time between, make a program one
// that hangs.
const maxLate = 3

// A run is the program from one start to its end.
type run struct {
	policy  policy.Policy
	program *program
	client  *plugin.Client
	link    *link
	since   time.Time
	took    time.Duration // to start

	late     atomic.Int32
	hangOnce sync.Once
	hung     chan struct{}
}

// launch starts the program once. With an error nothing of it is left.
func (h *Host) launch(ctx context.Context) (*run, error) {
	began := time.Now()
	if err := h.cfg.allowed(); err != nil {
		return nil, err
	}
	r := &run{program: newProgram(h.cfg, h.says), link: &link{}, hung: make(chan struct{})}
	r.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  policy.Handshake,
		VersionedPlugins: policy.Plugins(nil),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     h.cfg.StartTime,
		GRPCDialOptions:  r.link.options(),
		Logger:           chatter(h.log),
		SyncStdout:       h.says.lines(),
		SyncStderr:       h.says.lines(),
		// TempDir counts with a RunnerFunc alone, and SecureConfig with none.
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: h.cfg.Dir},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
			r.program.prepare(cmd.Env, dir)
			return r.program, nil
		},
	})
	// The library waits for a program without end in places; it returns from all
	// of them when the program is dead.
	limit, cancel := context.WithTimeout(ctx, h.cfg.StartTime)
	defer cancel()
	stop := context.AfterFunc(limit, func() { _ = r.program.Kill(limit) })
	err := r.connect()
	if !stop() && err == nil { // killed just now
		err = limit.Err()
	}
	if err != nil {
		r.kill() // then it is known how it ended
		return nil, r.explain(ctx, h.cfg, err)
	}
	r.since = time.Now()
	r.took = r.since.Sub(began)
	return r, nil
}

func (r *run) connect() error {
	client, err := r.client.Client()
	if err != nil {
		return err
	}
	if r.link.err != nil {
		return r.link.err
	}
	dispensed, err := client.Dispense(policy.PluginName)
	if err != nil {
		return err
	}
	r.policy = dispensed.(policy.Policy)
	return nil
}

// kill ends the program at once, and what the library has of it.
func (r *run) kill() {
	_ = r.program.Kill(context.Background())
	r.program.join()
	r.client.Kill() // with a dead program it does not wait
	r.program.remove()
}

// end asks the program to end, then tells it to, then ends it.
func (r *run) end(grace time.Duration) {
	term := time.AfterFunc(grace/4, r.program.terminate) // not all know how to be asked
	kill := time.AfterFunc(grace, func() { _ = r.program.Kill(context.Background()) })
	r.client.Kill()
	term.Stop()
	kill.Stop()
	r.kill()
}

// gone reports whether the program has ended.
func (r *run) gone() bool { return r.program.ctx.Err() != nil }

// ending is how long a program may take from the end of its connection to its
// own, for a question to know that it is the end.
const ending = 50 * time.Millisecond

// broke reports whether the program has ended, or is about to.
func (r *run) broke(ctx context.Context, err error) bool {
	if status.Code(err) == codes.Unavailable {
		ctx, cancel := context.WithTimeout(ctx, ending)
		defer cancel()
		select {
		case <-r.program.ctx.Done():
		case <-ctx.Done():
		}
	}
	return r.gone()
}

// inTime and tooLate are told of each answer.
func (r *run) inTime() { r.late.Store(0) }

func (r *run) tooLate() {
	if r.late.Add(1) >= maxLate {
		r.hangOnce.Do(func() { close(r.hung) })
	}
}

func (r *run) isHung() bool {
	select {
	case <-r.hung:
		return true
	default:
		return false
	}
}
