package policyhost

import (
	"context"
	"os/exec"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"holdfast/proxy/policy"
)

// maxLate is how many late answers in a row, with no timely answer between them, make a program
// count as hung.
const maxLate = 3

// A run is one run of the program, from a start to its end.
type run struct {
	policy  policy.Policy
	program *program
	client  *plugin.Client
	link    *link
	since   time.Time
	took    time.Duration // duration of the start

	mu      sync.Mutex
	late    int           // late answers in a row
	countAt time.Time     // a question that was asked later may count as the next late answer
	hung    chan struct{} // closed when late is maxLate
}

// launch starts the program once. If it returns an error, no process or file of the program is
// left.
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
		// The library uses TempDir only with a RunnerFunc, and SecureConfig only without one.
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: h.cfg.Dir},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
			r.program.prepare(cmd.Env, dir)
			return r.program, nil
		},
	})
	// At several points the library waits for the program without a limit. All of these waits end
	// when the program is dead.
	limit, cancel := context.WithTimeout(ctx, h.cfg.StartTime)
	defer cancel()
	stop := context.AfterFunc(limit, func() { _ = r.program.Kill(limit) })
	err := r.connect()
	if !stop() && err == nil { // the time limit has just killed it
		err = limit.Err()
	}
	if err != nil {
		r.kill() // afterwards its exit status is known
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

// kill ends the program at once, and releases the library's resources.
func (r *run) kill() {
	_ = r.program.Kill(context.Background())
	r.program.join()
	r.client.Kill() // returns at once, because the program is dead
	r.program.remove()
}

// end asks the program to end, sends SIGTERM after a quarter of grace, and kills it after grace.
func (r *run) end(grace time.Duration) {
	term := time.AfterFunc(grace/4, r.program.terminate) // some programs do not know the request
	kill := time.AfterFunc(grace, func() { _ = r.program.Kill(context.Background()) })
	r.client.Kill()
	term.Stop()
	kill.Stop()
	r.kill()
}

// isGone reports whether the program has ended.
func (r *run) isGone() bool { return r.program.ctx.Err() != nil }

// endTime is how long a question waits after its connection broke, to find out whether the
// program has ended: its process may end a little later than its connection.
const endTime = 50 * time.Millisecond

// isBroken reports whether the program has ended. If its connection is broken, isBroken waits
// endTime for the process to end.
func (r *run) isBroken(ctx context.Context, err error) bool {
	if status.Code(err) == codes.Unavailable {
		ctx, cancel := context.WithTimeout(ctx, endTime)
		defer cancel()
		select {
		case <-r.program.ctx.Done():
		case <-ctx.Done():
		}
	}
	return r.isGone()
}

// inTime resets the count of late answers, because an answer came within its deadline.
func (r *run) inTime() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late, r.countAt = 0, time.Now()
}

// tooLate counts a late answer to a question that was asked at the given time. Questions that were asked together count
// once, and those that were asked before an answer in time do not count, because they do not show that the program hangs:
// it may have too much to do. Neither does a question that waited for its turn for most of its time.
func (r *run) tooLate(asked time.Time, deadline time.Duration) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if asked.Before(r.countAt) || now.Sub(asked) < deadline/2 {
		return
	}
	r.countAt = now
	if r.late++; r.late == maxLate && !r.isHung() {
		close(r.hung)
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
