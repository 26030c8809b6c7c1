package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/daemon"
	"holdfast/shared/config"
	"holdfast/shared/keep"
	"holdfast/shared/pipe"
	"holdfast/shared/socket"
)

// dirs says where things lie. It makes no directory, and returns an error for one
// that exists and that others could use.
func (a *app) dirs() (config.Dirs, error) {
	d, err := config.Resolve(a.dir, os.Getenv)
	if err != nil {
		return d, err
	}
	return d, d.Check()
}

// makeDirs is for a process that is about to write there: it makes the directories
// that are missing, and returns an error if other users could replace them.
func (a *app) makeDirs() (config.Dirs, error) {
	d, err := config.Resolve(a.dir, os.Getenv)
	if err != nil {
		return d, err
	}
	if err := d.CheckParents(); err != nil {
		return d, err
	}
	return d, d.Ensure()
}

// connect returns a client of the running proxy. If none runs, connect starts one;
// but unless starts is set it does so only if a supervisor runs here, which may hold
// sessions that a proxy is needed to see. If the proxy crashes later, the client
// starts another. If the proxy left in order, which removes its socket, somebody
// wanted it to leave: then the client only waits for another.
func (a *app) connect(ctx context.Context, starts bool) (*client.Client, error) {
	var connected atomic.Bool
	c, err := a.dial(ctx, func(ctx context.Context) error {
		switch {
		case connected.Load() && a.leftInOrder():
			return nil
		case !connected.Load() && !starts:
			if err := a.nothingHere(); err != nil {
				return err
			}
		}
		return a.startProxy(ctx)
	})
	connected.Store(err == nil)
	return c, err
}

// nothingHere returns an error if neither a supervisor nor its keeper runs here, nor a
// service manager is about to start one again.
func (a *app) nothingHere() error {
	if pipe.Here { // no supervisor ever runs there, and the proxy says so
		return nil
	}
	dirs, err := a.dirs()
	if err != nil {
		return err
	}
	held, err := socket.Locked(dirs.Socket(config.SupervisorSocket))
	if err != nil || held || keep.Managed(dirs.Runtime) {
		return err
	}
	if pid, err := keep.PID(dirs.Runtime); err != nil || pid != 0 {
		return err
	}
	return &exitError{exitUnavailable, fmt.Sprintf("nothing runs here: no supervisor uses %s; proxy new starts a session", dirs.Runtime)}
}

func (a *app) leftInOrder() bool {
	dirs, err := a.dirs()
	if err != nil {
		return false
	}
	_, err = os.Lstat(dirs.Socket(config.APISocket(a.proxy)))
	return errors.Is(err, fs.ErrNotExist)
}

// tokenEnv is by which token a command is known to the policy.
const tokenEnv = "HOLDFAST_TOKEN"

// settings are what a command goes by.
func (a *app) settings() (config.Config, error) {
	dirs, err := a.dirs()
	if err != nil {
		return config.Config{}, err
	}
	return config.Load(dirs, os.Getenv, nil)
}

// place is where everything lies, and the secret of who serves there, if it has one.
func (a *app) place() (dirs config.Dirs, secret string, err error) {
	if dirs, err = a.dirs(); err != nil {
		return dirs, "", err
	}
	cfg, err := config.Load(dirs, os.Getenv, nil)
	if err != nil {
		return dirs, "", err
	}
	secret, err = cfg.Secret()
	return dirs, secret, err
}

func (a *app) dial(ctx context.Context, start func(context.Context) error) (*client.Client, error) {
	_, secret, err := a.place()
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, client.Options{
		Dir: a.dir, Proxy: a.proxy, Name: "proxy " + a.who(), Start: start, Token: os.Getenv(tokenEnv), Secret: secret, Redial: startTimeout,
	})
}

// who names this client to others: its terminal if it has one, else its pid.
func (a *app) who() string {
	if tty, err := os.Readlink("/proc/self/fd/0"); err == nil && filepath.Dir(tty) == "/dev/pts" {
		return tty
	}
	return fmt.Sprintf("pid %d", os.Getpid())
}

// startTimeout is how long a command waits for what it started.
const startTimeout = 15 * time.Second

// startProxy starts "proxy serve" in the background, and returns when a proxy
// can be reached or this one has given up.
func (a *app) startProxy(ctx context.Context) error {
	p, err := a.startDaemon(ctx, "serve", "--background")
	if err != nil {
		return err
	}
	for {
		if _, err := a.proxyPID(ctx); !errors.Is(err, client.ErrConnect) {
			return nil // if it is an error all the same, it will tell the caller so
		}
		select {
		case <-p.Exited:
			return a.gaveUp(p)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(startPoll):
		}
	}
}

// startPoll is how often we look whether what was started serves.
const startPoll = 5 * time.Millisecond

// gaveUp returns why a proxy that we started has ended. It is no failure that
// it found its place taken: then another proxy serves, or is about to.
func (a *app) gaveUp(p *daemon.Process) error {
	var exit *exec.ExitError
	if !errors.As(p.Err(), &exit) || exit.ExitCode() <= 0 || exit.ExitCode() == exitTempFail {
		return nil
	}
	return &exitError{exit.ExitCode(), "the proxy that was started gave up: " + a.lastError()}
}

// lastError is what a proxy that ran in the background has logged last.
func (a *app) lastError() string {
	dirs, err := a.dirs()
	if err != nil {
		return err.Error()
	}
	path := filepath.Join(dirs.State, a.proxy+".log")
	var line struct {
		Error string `json:"error"`
	}
	if log, err := os.ReadFile(path); err == nil {
		log = bytes.TrimSpace(log)
		_ = json.Unmarshal(log[bytes.LastIndexByte(log, '\n')+1:], &line) // else it stands in the log, whatever it is
	}
	if line.Error == "" {
		return "the reason is in " + path
	}
	return line.Error
}

func (a *app) startDaemon(ctx context.Context, cmd string, args ...string) (*daemon.Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if args, err = a.daemonArgs(cmd, args...); err != nil {
		return nil, err
	}
	return daemon.Start(ctx, daemon.Spec{Path: exe, Args: args, Env: config.DaemonEnv(os.Environ())})
}

// daemonArgs are a command's for the same proxy, whatever the working directory.
func (a *app) daemonArgs(cmd string, args ...string) ([]string, error) {
	args = append([]string{cmd, "--proxy", a.proxy}, args...)
	if a.dir == "" {
		return args, nil
	}
	abs, err := filepath.Abs(a.dir)
	return append(args, "--dir", abs), err
}

// supervisorPath finds the supervisor's program: where we are told, or beside
// this program, or on the PATH.
func supervisorPath() (string, error) {
	if p := os.Getenv("HOLDFAST_SUPERVISOR"); p != "" {
		return p, nil
	}
	if exe, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(exe), "supervisor")
		if _, err := os.Stat(beside); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return beside, nil
		}
	}
	p, err := exec.LookPath("supervisor")
	if err != nil {
		return "", fmt.Errorf("the supervisor program is neither beside the proxy nor on the PATH; $HOLDFAST_SUPERVISOR may name it: %w", err)
	}
	return p, nil
}

// jsonFlag adds --json to a command that lists something.
func (a *app) jsonFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

// withClient runs f with a client, and closes the client. It is for commands about
// sessions that exist: if nothing runs here, it starts nothing and returns an error.
func (a *app) withClient(ctx context.Context, f func(*client.Client) error) error {
	return a.with(ctx, false, f)
}

// withStarted is withClient for commands that start what is missing.
func (a *app) withStarted(ctx context.Context, f func(*client.Client) error) error {
	return a.with(ctx, true, f)
}

func (a *app) with(ctx context.Context, starts bool, f func(*client.Client) error) error {
	a.answered = a.watchAnswers(ctx)
	defer a.answered()
	c, err := a.connect(ctx, starts)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return f(c)
}

// sessionID checks an argument.
func sessionID(arg string) (protocol.SessionID, error) {
	id := protocol.SessionID(arg)
	return id, id.Validate()
}
