package operate

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/fleet/hostupgrade"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/config"
)

// beforeDir is the directory of the programs that ran before an upgrade, in the state directory.
const beforeDir = "before"

// fetchedDir is the directory of the programs that were downloaded, in the state directory.
const fetchedDir = "fetched"

// upgrader returns the part of the agent that upgrades this host for clients of the gate.
func (a *app) upgrader(dirs config.Dirs, log zerolog.Logger) *hostupgrade.Upgrader {
	return hostupgrade.New(hostupgrade.Options{
		Dir: filepath.Join(dirs.State, beforeDir), Fetched: filepath.Join(dirs.State, fetchedDir), Log: log,
		Permitted: func() ([]string, error) {
			cfg, err := a.Settings()
			return cfg.UpgradeFrom, err
		},
		Look:  a.look,
		Watch: a.watchEnds,
		Agent: func(ctx context.Context) (hostupgrade.Process, error) {
			agent, err := cli.AgentHere(ctx, dirs)
			if err == nil && agent == nil {
				err = errors.New("the agent of this host does not run")
			}
			if err != nil {
				return hostupgrade.Process{}, err
			}
			return hostupgrade.Process{PID: agent.PID, Version: agent.Version}, nil
		},
		Command: func(ctx context.Context, dir, command string, args ...string) (*exec.Cmd, error) {
			args, err := a.DaemonArgs(command, args...)
			if err != nil {
				return nil, err
			}
			cmd := exec.CommandContext(ctx, filepath.Join(dir, "proxy"), args...)
			cmd.Env = slices.DeleteFunc(config.DaemonEnv(os.Environ()), func(v string) bool {
				return strings.HasPrefix(v, "HOLDFAST_SUPERVISOR=") // it would be used instead of the supervisor in dir
			})
			return cmd, nil
		},
		Settle: handoff.Timeout + cli.Grace,
	})
}

// look returns the programs that run on this host.
func (a *app) look(ctx context.Context) (hostupgrade.Running, error) {
	if a.LeftInOrder() { // a user has stopped the proxy, or none has ever run
		return hostupgrade.Running{}, hostupgrade.ErrIdle
	}
	c, err := a.Connect(ctx, false)
	if errors.Is(err, cli.ErrNothingHere) {
		return hostupgrade.Running{}, hostupgrade.ErrIdle
	}
	if err != nil {
		return hostupgrade.Running{}, err
	}
	defer func() { _ = c.Close() }()
	s, err := c.Status(ctx)
	if err != nil {
		return hostupgrade.Running{}, err
	}
	if s.Supervisor == nil {
		return hostupgrade.Running{}, errors.New("the proxy is not connected to its supervisor")
	}
	list, err := c.List(ctx, "")
	return hostupgrade.Running{
		Supervisor: hostupgrade.Process{PID: s.Supervisor.PID, Version: s.Supervisor.Version},
		Proxy:      hostupgrade.Process{PID: s.Proxy.PID, Version: s.Proxy.Version}, Sessions: list,
	}, err
}

// watchEnds calls ended for each session that ends, or whose exit record is deleted, until ctx is done. The subscription
// continues when the proxy or the supervisor is replaced. If it is lost, or if events were missed, ends stay unknown.
func (a *app) watchEnds(ctx context.Context, ended func(protocol.SessionID, protocol.Instance)) error {
	if a.LeftInOrder() { // as in look
		return hostupgrade.ErrIdle
	}
	c, err := a.Connect(ctx, false)
	if err != nil {
		return err
	}
	events, err := c.Events(ctx)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = events.Close() })
	go func() {
		defer func() { stop(); _ = events.Close(); _ = c.Close() }()
		for {
			e, err := events.Next()
			switch {
			case err != nil:
				return
			case e.Exit != nil:
				ended(e.Exit.SessionID, e.Exit.Instance)
			case e.Event == protocol.EventForgotten && e.Session != nil:
				ended(e.Session.ID, e.Session.Instance)
			}
		}
	}()
	return nil
}
