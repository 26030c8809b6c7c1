// Package daemon starts a program in the background that outlives the calling process.
//
// The program gets a session of its own and inherits no descriptors. If a systemd user manager
// answers, it also gets a scope of its own, so that it does not end with the unit or the login of
// the caller.
//
// Invariant: if starting the program takes several attempts, at most one of them has run the
// program. An attempt that is given up is killed and awaited before the next one.
//
// Not here: the decision to start it (the caller must not hold a lock that the program needs),
// and its readiness, which it shows by its socket.
package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// A Spec describes the program to start. Its working directory is the root directory.
type Spec struct {
	Path string   // absolute path of the program
	Args []string // arguments without the program's name
	Env  []string // K=V; nil means the environment of the caller
}

// A Process is a program that runs in the background. It is waited for, so that it leaves no
// zombie if it ends before the caller.
type Process struct {
	PID    int
	Exited <-chan struct{} // closed when it has ended

	cmd *exec.Cmd
	err error // set before Exited is closed
}

// Err returns nil if the program succeeded or still runs, and an *exec.ExitError if it failed.
func (p *Process) Err() error {
	select {
	case <-p.Exited:
		return p.err
	default:
		return nil
	}
}

// Start starts the program and returns when it runs. ctx limits only the start; its end does not
// end the program.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	if !filepath.IsAbs(spec.Path) {
		return nil, fmt.Errorf("start %q: the path must be absolute", spec.Path)
	}
	if _, err := exec.LookPath(spec.Path); err != nil { // reported here, because a shell would report it too late
		return nil, fmt.Errorf("start: %w", err)
	}
	p, err := start(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	return p, nil
}

// StartHere starts the program as a part of the caller's service: in the same control group, with
// its output and errors written to log.
func StartHere(spec Spec, log *os.File) (*Process, error) {
	cmd := spec.command()
	cmd.Stdout, cmd.Stderr = log, log
	p, err := watch(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	return p, nil
}

// launch starts cmd detached, without standard input, output and error.
func launch(cmd *exec.Cmd) (*Process, error) {
	detach(cmd)
	return watch(cmd)
}

// watch starts cmd, and waits for its end in a goroutine.
func watch(cmd *exec.Cmd) (*Process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	p := &Process{PID: cmd.Process.Pid, Exited: exited, cmd: cmd}
	go func() {
		p.err = cmd.Wait()
		close(exited)
	}()
	return p, nil
}

// direct starts the program as a child of the calling process.
func direct(ctx context.Context, spec Spec) (*Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return launch(spec.command())
}

func (s Spec) command() *exec.Cmd {
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Env, cmd.Dir = s.Env, rootDir
	return cmd
}

// End kills a process and waits for its end.
func (p *Process) End() {
	_ = p.cmd.Process.Kill() // fails if the process has ended already
	<-p.Exited
}
