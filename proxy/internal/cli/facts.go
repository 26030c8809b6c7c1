package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/doctor"
	"holdfast/proxy/internal/installed"
	"holdfast/shared/config"
	"holdfast/shared/keeperstate"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// Facts returns all facts except those about the policy and the agent, and the settings if they can be read.
func (a *App) Facts(dirs config.Dirs) (doctor.Facts, config.Config) {
	f := doctor.Facts{
		Dirs: dirs, Proxy: a.Proxy, Version: version.String(), Env: os.Getenv,
		Ptmx: "/dev/ptmx", Files: machine.Files, Locked: socket.Locked,
		Listens: func(ctx context.Context, path string) error {
			nc, _, err := socket.Dial(ctx, path)
			if err != nil {
				return notRunning(err)
			}
			return nc.Close()
		},
		Output: func(ctx context.Context, name string, args ...string) (string, error) {
			out, err := exec.CommandContext(ctx, name, args...).Output()
			if err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			return string(out), nil
		},
	}
	if _, err := os.Stat("/proc/self/fd"); err == nil && runtime.GOOS == "linux" {
		f.Proc = "/proc"
	}
	cfg, err := config.Load(dirs, os.Getenv, nil)
	secret := ""
	if err == nil {
		secret, err = cfg.Secret()
	}
	f.Settings, f.Variables = err, config.UnknownVariables(os.Environ())
	_, f.Program = installed.Supervisor()
	if cfg.Gate != "" {
		f.Gate = func(ctx context.Context) ([]doctor.Host, error) { return askGate(ctx, cfg) }
	}
	f.Elsewhere = func(ctx context.Context) []doctor.Place { return a.elsewhere(ctx, dirs, secret) }
	f.Held = func() *keeperstate.Held { return keeperstate.ReadHeld(dirs.Runtime) }
	f.Supervisor = func(ctx context.Context) (*protocol.ProcessStatus, error) {
		s, err := askSupervisor(ctx, dirs, secret)
		return s, notRunning(err)
	}
	f.Serving = func(ctx context.Context, supervisor bool) (*doctor.ProxyStatus, error) {
		s, err := a.askProxy(ctx, f, supervisor)
		return s, notRunning(err)
	}
	return f, cfg
}

// notRunning converts the errors that prove that no process listens into doctor.ErrNotRunning. It
// returns every other error unchanged, because a process may run nevertheless.
func notRunning(err error) error {
	if socket.IsAbsent(err) {
		return doctor.ErrNotRunning
	}
	return err
}

// askGate asks the gate of the settings for its hosts.
func askGate(ctx context.Context, cfg config.Config) (hosts []doctor.Host, err error) {
	o, err := gateOptions(cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", doctor.ErrNotAsked, err)
	}
	list, err := client.Hosts(ctx, o)
	for _, h := range list {
		hosts = append(hosts, doctor.Host{Name: h.Name, IsReachable: h.IsReachable, Release: h.Release})
	}
	return hosts, late(ctx, err)
}

// askSupervisor asks the supervisor for its status.
func askSupervisor(ctx context.Context, dirs config.Dirs, secret string) (*protocol.ProcessStatus, error) {
	conn, err := dialSupervisor(ctx, dirs, secret, "proxy doctor")
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return conn.Status(ctx)
}

// askProxy asks the proxy for its status, if dialing it would create no directory. If no supervisor
// answers, it asks only for the pid, because a request for the status would make the proxy start a
// supervisor.
func (a *App) askProxy(ctx context.Context, f doctor.Facts, supervisor bool) (*doctor.ProxyStatus, error) {
	if _, err := os.Lstat(f.Dirs.Socket(config.APISocket(a.Proxy))); errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if f.Settings != nil {
		return nil, fmt.Errorf("%w: the settings cannot be used", doctor.ErrNotAsked)
	}
	for _, dir := range []string{f.Dirs.Runtime, f.Dirs.State, f.Dirs.Config} {
		if err := socket.CheckDir(dir); err != nil {
			return nil, fmt.Errorf("%w: %v", doctor.ErrNotAsked, err)
		}
	}
	c, err := a.dial(ctx, nil)
	if err != nil {
		return nil, late(ctx, err)
	}
	defer func() { _ = c.Close() }()
	if !supervisor {
		return &doctor.ProxyStatus{ProcessStatus: protocol.ProcessStatus{PID: c.ProxyPID()}}, nil
	}
	s, err := c.Status(ctx)
	if err != nil {
		return nil, late(ctx, err)
	}
	return &doctor.ProxyStatus{ProcessStatus: s.Proxy, Linked: s.Supervisor != nil}, nil
}
