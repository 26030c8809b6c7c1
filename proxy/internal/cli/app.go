package cli

import (
	"bytes"
	"cmp"
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

	"holdfast/proxy/client"
	"holdfast/proxy/internal/daemon"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/installed"
	"holdfast/shared/config"
	"holdfast/shared/keeperstate"
	"holdfast/shared/pipe"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
)

// Dirs returns the directories of this command. It creates none, and returns an error if a
// directory exists that other users could write to.
func (a *App) Dirs() (config.Dirs, error) {
	d, err := config.Resolve(a.localDir(), os.Getenv)
	if err != nil {
		return d, err
	}
	return d, d.Check()
}

// MakeDirs returns the directories and creates those that are missing. A process must call it
// before it writes a file there. It returns an error if other users could replace a directory.
func (a *App) MakeDirs() (config.Dirs, error) {
	d, err := config.Resolve(a.localDir(), os.Getenv)
	if err != nil {
		return d, err
	}
	if err := d.CheckParents(); err != nil {
		return d, err
	}
	return d, d.Ensure()
}

// Connect returns a client of the running proxy. If no proxy runs, Connect starts one. Unless
// starts is set, it does so only if a supervisor runs here, because a proxy is needed to see the
// sessions of that supervisor. If the proxy crashes later, the client starts another one. If the
// proxy ends in order, which removes its socket, a user wanted it to end, so the client only waits
// for another one, unless the command has not started its session yet (App.isStarting).
func (a *App) Connect(ctx context.Context, starts bool) (*client.Client, error) {
	if a.Host != "" {
		return a.dialHost(ctx, starts)
	}
	var connected atomic.Bool
	isStarting := cmp.Or(a.isStarting, new(atomic.Bool))
	c, err := a.dial(ctx, func(ctx context.Context) error {
		switch {
		case connected.Load() && !isStarting.Load() && a.LeftInOrder():
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

// ErrNothingHere tells that neither a supervisor nor a stored session is on this host.
var ErrNothingHere = errors.New("nothing runs here")

// nothingHere returns ErrNothingHere if neither a supervisor nor its keeper runs here, no service manager
// is about to start a supervisor, and no session is stored, which a supervisor would show as lost.
func (a *App) nothingHere() error {
	if pipe.Here { // no supervisor can run on this system, and the proxy reports that
		return nil
	}
	dirs, err := a.Dirs()
	if err != nil {
		return err
	}
	held, err := socket.Locked(dirs.Socket(config.SupervisorSocket))
	if err != nil || held || keeperstate.IsManaged(dirs.Runtime) {
		return err
	}
	if pid, err := keeperstate.PID(dirs.Runtime); err != nil || pid != 0 {
		return err
	}
	if dirs.HasRecordings() {
		return nil
	}
	return exitcode.With(sysexits.Unavailable, fmt.Errorf("%w: no supervisor uses %s; proxy new starts a session", ErrNothingHere, dirs.Runtime))
}

// LeftInOrder reports whether the proxy removed its socket when it ended.
func (a *App) LeftInOrder() bool {
	dirs, err := a.Dirs()
	if err != nil {
		return false
	}
	_, err = os.Lstat(dirs.Socket(config.APISocket(a.Proxy)))
	return errors.Is(err, fs.ErrNotExist)
}

// tokenEnv is the environment variable with the token by which the policy recognises a command.
const tokenEnv = "HOLDFAST_TOKEN"

// Settings loads the settings that hold for commands.
func (a *App) Settings() (config.Config, error) {
	dirs, err := a.Dirs()
	if err != nil {
		return config.Config{}, err
	}
	return config.Load(dirs, os.Getenv, nil)
}

// dirsAndSecret returns the directories, and the secret that the programs there require, or "".
func (a *App) dirsAndSecret() (dirs config.Dirs, secret string, err error) {
	if dirs, err = a.Dirs(); err != nil {
		return dirs, "", err
	}
	cfg, err := config.Load(dirs, os.Getenv, nil)
	if err != nil {
		return dirs, "", err
	}
	secret, err = cfg.Secret()
	return dirs, secret, err
}

// dial connects to the proxy. If no proxy listens, the client calls start, unless start is nil.
func (a *App) dial(ctx context.Context, start func(context.Context) error) (*client.Client, error) {
	if a.Host != "" {
		return a.dialHost(ctx, false)
	}
	_, secret, err := a.dirsAndSecret()
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, client.Options{
		Dir: a.Dir, Proxy: a.Proxy, Name: "proxy " + clientName(), Start: start, Token: os.Getenv(tokenEnv), Secret: secret, Redial: StartTimeout,
		InputFull: a.tellFull,
	})
}

// clientName returns the name of this client for other viewers: its terminal, or its pid if it has none.
func clientName() string {
	if tty, err := os.Readlink("/proc/self/fd/0"); err == nil && filepath.Dir(tty) == "/dev/pts" {
		return tty
	}
	return fmt.Sprintf("pid %d", os.Getpid())
}

// StartTimeout is how long a command waits for a process that it started.
const StartTimeout = 15 * time.Second

// startProxy starts "proxy serve" in the background. It returns when a proxy can be reached, or
// when the started process has ended.
func (a *App) startProxy(ctx context.Context) error {
	if _, err := a.MakeDirs(); err != nil { // without directories the proxy would have no log to report an error in
		return err
	}
	p, err := a.StartDaemon(ctx, "serve", "--background")
	if err != nil {
		return err
	}
	for {
		if _, err := a.ProxyPID(ctx); !errors.Is(err, client.ErrConnect) {
			return nil // any other error will meet the caller again
		}
		select {
		case <-p.Exited:
			return a.gaveUp(p)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(StartPoll):
		}
	}
}

// StartPoll is how often a command checks whether the started process serves.
const StartPoll = 5 * time.Millisecond

// gaveUp returns the reason why the proxy that this command started has ended. It returns nil if
// another proxy already held the sockets, because then that proxy serves or is about to.
func (a *App) gaveUp(p *daemon.Process) error {
	var exit *exec.ExitError
	if !errors.As(p.Err(), &exit) || exit.ExitCode() <= 0 || exit.ExitCode() == sysexits.TempFail {
		return nil
	}
	return exitcode.New(exit.ExitCode(), "the proxy that was started has ended: "+a.lastError()+"; proxy doctor says more")
}

// lastError returns the last error in the log of a proxy that ran in the background, or the reason why the proxy could not
// write a log.
func (a *App) lastError() string {
	dirs, err := a.Dirs()
	if err != nil {
		return err.Error()
	}
	path := filepath.Join(dirs.State, a.Proxy+".log")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600) // as the proxy opens it
	if err != nil {
		return err.Error()
	}
	_ = f.Close()
	var line struct {
		Error string `json:"error"`
	}
	log, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	log = bytes.TrimSpace(log)
	_ = json.Unmarshal(log[bytes.LastIndexByte(log, '\n')+1:], &line) // if the last line is no JSON, the message names the log
	switch {
	case line.Error != "":
		return line.Error
	case len(log) == 0:
		return "its log " + path + " is empty"
	}
	return "the reason is in " + path
}

// proxyProgram returns the path of the program proxy of this release.
func (a *App) proxyProgram() (string, error) {
	if a.isProxy {
		return os.Executable()
	}
	return installed.Proxy()
}

// StartDaemon starts a command of the program proxy in the background.
func (a *App) StartDaemon(ctx context.Context, cmd string, args ...string) (*daemon.Process, error) {
	exe, err := a.proxyProgram()
	if err != nil {
		return nil, err
	}
	if args, err = a.DaemonArgs(cmd, args...); err != nil {
		return nil, err
	}
	return daemon.Start(ctx, daemon.Spec{Path: exe, Args: args, Env: config.DaemonEnv(os.Environ())})
}

// DaemonArgs returns the arguments of a command for the same proxy and directory. They do not
// depend on the working directory.
func (a *App) DaemonArgs(cmd string, args ...string) ([]string, error) {
	args = append([]string{cmd, "--proxy", a.Proxy}, args...)
	if a.Dir == "" {
		return args, nil
	}
	abs, err := filepath.Abs(a.Dir)
	return append(args, "--dir", abs), err
}

// JSONFlag adds the flag --json to a command.
func (a *App) JSONFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.JSON, "json", false, "print JSON")
	return cmd
}

// withClient runs f with a client, and closes the client. It is for commands about existing
// sessions: if no supervisor runs here, it starts nothing and returns an error.
func (a *App) withClient(ctx context.Context, f func(*client.Client) error) error {
	return a.with(ctx, false, f)
}

// WithStarted runs f with a client like withClient, but starts the proxy and the supervisor if they
// are missing, also if they are stopped before f has set isStarting to false.
func (a *App) WithStarted(ctx context.Context, f func(*client.Client) error) error {
	a.isStarting = new(atomic.Bool)
	a.isStarting.Store(true)
	return a.with(ctx, true, f)
}

// with connects, runs f, and tells the user if an answer takes long.
func (a *App) with(ctx context.Context, starts bool, f func(*client.Client) error) error {
	a.answered = a.watchAnswers(ctx)
	defer a.answered()
	c, err := a.Connect(ctx, starts)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return f(c)
}

// ProxyPID asks the running proxy for its pid.
func (a *App) ProxyPID(ctx context.Context) (int, error) {
	c, err := a.dial(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	return c.ProxyPID(), nil
}
