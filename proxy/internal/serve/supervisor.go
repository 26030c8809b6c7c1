package serve

import (
	"context"
	"net"
	"os"
	"path/filepath"
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
	return linkclient.New(linkclient.Config{
		Dial: func(ctx context.Context) (net.Conn, error) {
			nc, _, err := socket.Dial(ctx, path)
			if err != nil {
				return nil, err
			}
			return nc, nil
		},
		Start: func(ctx context.Context) error { return o.startSupervisor(ctx, dirs, log) },
		Held:  func() error { return keeperstate.CheckHeld(dirs.Runtime) },
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

// startSupervisor starts the supervisor in the background, unless a service manager does so.
func (o *Options) startSupervisor(ctx context.Context, dirs config.Dirs, log zerolog.Logger) error {
	if managerStarts(ctx, dirs) {
		return nil
	}
	path, err := installed.Supervisor()
	if err != nil {
		return err
	}
	args := []string{"--background"}
	if o.Dir != "" {
		abs, err := filepath.Abs(o.Dir)
		if err != nil {
			return err
		}
		args = append(args, "--dir", abs)
	}
	args = append(args, config.SupervisorArgs(o.Flags)...)
	p, err := daemon.Start(ctx, daemon.Spec{Path: path, Args: args, Env: config.DaemonEnv(os.Environ())}) // the environment has no notify socket, which belongs to this process
	if err == nil {
		log.Info().Int("supervisor_pid", p.PID).Msg("supervisor started")
	}
	return err
}
