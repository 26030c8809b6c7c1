package operate

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"holdfast/protocol/gate"
	"holdfast/proxy/internal/serve"
	"holdfast/shared/config"
)

// commandEndLimit is the time in which a command of a client must end after it was interrupted.
const commandEndLimit = 10 * time.Second

// runForClient runs a command of a client of the gate on this host, and returns its exit code. A host with a
// policy refuses all commands, because the policy can decide only about requests of the api.
func (a *app) runForClient(ctx context.Context, dirs config.Dirs, args []string, stdout, stderr io.Writer) (exitCode int, err error) {
	cfg, err := config.Load(dirs, os.Getenv, nil)
	if err != nil {
		return 0, err
	}
	hasPolicy, err := serve.HasPolicy(dirs, a.Proxy, cfg)
	if err != nil {
		return 0, err
	}
	if hasPolicy {
		return 0, &gate.Refused{Code: gate.RefusedUnauthorized, Message: "the host has a policy, which decides about sessions alone, so clients of the gate may not run this command there"}
	}
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}
	argv, err := a.DaemonArgs(args[0], args[1:]...)
	if err != nil {
		return 0, err
	}
	run := exec.CommandContext(ctx, exe, argv...)
	run.Env = config.DaemonEnv(os.Environ())
	run.Stdout, run.Stderr = stdout, stderr
	run.Cancel = func() error { return run.Process.Signal(syscall.SIGTERM) }
	run.WaitDelay = commandEndLimit
	err = run.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(1, exit.ExitCode()), nil
	}
	if errors.Is(err, exec.ErrWaitDelay) { // a process that it has started holds its output
		return 0, nil
	}
	return 0, err
}
