// Package daemon starts a program in the background, where it outlives us.
//
// The program has a session of its own, no descriptor of ours, and, where a
// systemd user manager answers, a scope of its own, so that it does not end
// with the unit or login that we run in.
//
// Invariant: of the tries to start it, at most one has run the program. A try
// that is given up is ended and waited for before the next one.
//
// Not here: whether it should be started (the caller holds no lock of ours),
// and whether it is ready, which it says on its socket.
package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Spec says what to start.
type Spec struct {
	Path string   // absolute
	Args []string // without the program's name
	Env  []string // K=V; nil is our own environment
	Dir  string   // working directory; default /
}

// A Process is a program that runs in the background. It is waited for, so
// that it leaves no zombie if it ends before us.
type Process struct {
	PID    int
	Exited <-chan struct{} // closed when it has ended

	cmd *exec.Cmd
	err error // set before Exited is closed
}

// Err returns how the program ended: nil for success, an *exec.ExitError
// otherwise. Before Exited is closed it returns nil.
func (p *Process) Err() error {
	select {
	case <-p.Exited:
		return p.err
	default:
		return nil
	}
}

// Start starts the program and returns once it runs. ctx bounds only that: it
// does not end the program later.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	if !filepath.IsAbs(spec.Path) {
		return nil, fmt.Errorf("start %q: the path must be absolute", spec.Path)
	}
	if _, err := exec.LookPath(spec.Path); err != nil { // told now, not by a shell later
		return nil, fmt.Errorf("start: %w", err)
	}
	spec.Dir = cmp.Or(spec.Dir, rootDir)
	p, err := start(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	return p, nil
}

// StartHere starts the program as part of the service that we are part of: in our
// control group, with its output and errors where log is.
func StartHere(spec Spec, log *os.File) (*Process, error) {
	cmd := spec.command()
	cmd.Stdout, cmd.Stderr = log, log
	p, err := watch(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	return p, nil
}

// launch starts cmd detached, with no standard input, output or error.
func launch(cmd *exec.Cmd) (*Process, error) {
	detach(cmd)
	return watch(cmd)
}

// watch starts cmd, and waits for it in the background.
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

// direct starts the program as a child of ours.
func direct(ctx context.Context, spec Spec) (*Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return launch(spec.command())
}

func (s Spec) command() *exec.Cmd {
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Env, cmd.Dir = s.Env, cmp.Or(s.Dir, rootDir)
	return cmd
}

// End kills a process and waits for its end.
func (p *Process) End() {
	_ = p.cmd.Process.Kill() // fails if it has ended, which is what is wanted
	<-p.Exited
}
