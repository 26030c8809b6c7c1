package serve

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/proxy/internal/daemon"
	"holdfast/proxy/internal/installed"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/config"
	"holdfast/shared/keeperstate"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// linkClient returns the client of the link, which starts a supervisor if none runs.
func (o *Options) linkClient(dirs config.Dirs, secret string, log zerolog.Logger) *linkclient.Client {
	path := dirs.Socket(config.SupervisorSocket)
	instance := protocol.NewInstance()
	var started atomic.Pointer[daemon.Process]
	return linkclient.New(linkclient.Config{
		Dial: func(ctx context.Context) (net.Conn, error) {
			nc, _, err := socket.Dial(ctx, path)
			if err != nil {
				return nil, err
			}
			started.Store(nil) // it has served: if it dies now, another process takes its place
			return nc, nil
		},
		Start: func(ctx context.Context) error {
			p, err := o.startSupervisor(ctx, dirs, log)
			started.Store(p)
			return err
		},
		Held: func() error {
			if p := started.Load(); p != nil && hasFailed(p, dirs) && started.CompareAndSwap(p, nil) { // the next attempt starts another one
				return fmt.Errorf("the supervisor that was started has ended: %w; %s may tell why", p.Err(), filepath.Join(dirs.State, "supervisor.log"))
			}
			return keeperstate.CheckHeld(dirs.Runtime)
		},
		Hello: func() link.Hello {
			return link.Hello{
				Protocol: protocol.Supported(), PID: os.Getpid(), Version: version.String(),
				Instance: instance, Name: o.Proxy, Secret: secret,
			}
		},
		Log: log,
	})
}

// managerTime is how long the proxy waits for a service manager to restart the supervisor of its
// service. That supervisor may have the sessions, which a new one would not have.
const managerTime = 5 * time.Second

// managerStarts waits for the service manager, and reports whether a supervisor runs.
func managerStarts(ctx context.Context, dirs config.Dirs) bool {
	if !keeperstate.IsManaged(dirs.Runtime) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, managerTime)
	defer cancel()
	for {
		if held, err := socket.Locked(dirs.Socket(config.SupervisorSocket)); held || err != nil {
			return held
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
}

// hasFailed reports whether a supervisor that was started has ended, and not because another one runs.
func hasFailed(p *daemon.Process, dirs config.Dirs) bool {
	if p.Err() == nil {
		return false
	}
	keeper, err := keeperstate.PID(dirs.Runtime)
	return keeper == 0 && err == nil
}

// startSupervisor starts the supervisor in the background, unless a service manager does so. Then it returns no process.
func (o *Options) startSupervisor(ctx context.Context, dirs config.Dirs, log zerolog.Logger) (*daemon.Process, error) {
	if managerStarts(ctx, dirs) {
		return nil, nil
	}
	path, err := installed.Supervisor()
	if err != nil {
		return nil, err
	}
	args := []string{"--background"}
	if o.Dir != "" {
		abs, err := filepath.Abs(o.Dir)
		if err != nil {
			return nil, err
		}
		args = append(args, "--dir", abs)
	}
	args = append(args, config.SupervisorArgs(o.Flags)...)
	p, err := daemon.Start(ctx, daemon.Spec{Path: path, Args: args, Env: config.DaemonEnv(os.Environ())}) // the environment has no notify socket, which belongs to this process
	if err == nil {
		log.Info().Int("supervisor_pid", p.PID).Msg("supervisor started")
	}
	return p, err
}
