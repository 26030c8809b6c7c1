package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"holdfast/proxy/client"
)

// statusPoll is how often the state of the daemon is asked for after a kill.
const statusPoll = 20 * time.Millisecond

// fault makes a fault, and returns when proxy, supervisor and keeper serve again.
func (r *run) fault(ctx context.Context, kind string) error {
	if !slices.Contains(Kinds(), kind) {
		return fmt.Errorf("unknown fault %q: the faults are %q", kind, Kinds())
	}
	if IsOfRelay(kind) && r.Relay == nil {
		return fmt.Errorf("the fault %s is one of the app's connections, and there is no app", kind)
	}
	r.faults[kind]++
	switch kind {
	case "cut":
		r.Relay.Cut()
		return nil
	case "slow":
		r.Relay.Slow(true)
		defer r.Relay.Slow(false)
		return r.listen(ctx, time.After(r.upTo(maxSlow)))
	}
	done := make(chan error, 1)
	go func() {
		if kind == "handoff" {
			done <- Handoff(ctx, r.Proxy, r.Args)
		} else {
			done <- Kill(ctx, r.Client, kind)
		}
	}()
	// The app's reports must be read meanwhile, because an app that cannot write them may stop.
	for {
		select {
		case err := <-done:
			return err
		case rep, ok := <-r.reports:
			if err := r.takeDuringFault(ctx, rep, ok); err != nil {
				return errors.Join(err, <-done)
			}
		}
	}
}

// listen takes reports until a time.
func (r *run) listen(ctx context.Context, until <-chan time.Time) error {
	for {
		select {
		case <-until:
			return nil
		case rep, ok := <-r.reports:
			if err := r.takeDuringFault(ctx, rep, ok); err != nil {
				return err
			}
		}
	}
}

// takeDuringFault takes a report, of which none may ask for a fault: an app waits until a fault is done.
func (r *run) takeDuringFault(ctx context.Context, rep report, ok bool) error {
	if rep.Fault != "" {
		return fmt.Errorf("the app asked for the fault %q before another one was done", rep.Fault)
	}
	return r.take(ctx, rep, ok)
}

// Handoff replaces the proxy by a new process of a program, whose arguments name the daemon.
func Handoff(ctx context.Context, program string, args []string) error {
	var text bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append([]string{"handoff"}, args...)...)
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("handoff: %w: %s", err, bytes.TrimSpace(text.Bytes()))
	}
	return nil
}

// Kill kills the process that a fault names, and returns when another one serves in its place.
func Kill(ctx context.Context, c *client.Client, kind string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s: no other process serves within %v", kind, patience))
	defer cancel()
	before, err := serving(ctx, c, func(*client.Status) bool { return true })
	if err != nil {
		return err
	}
	process, err := os.FindProcess(pidOf(before, kind))
	if err != nil {
		return err
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", kind, err)
	}
	_, err = serving(ctx, c, func(now *client.Status) bool { return pidOf(now, kind) != process.Pid })
	return err
}

// serving returns the state of the daemon as soon as all three processes serve and the state is as wanted.
func serving(ctx context.Context, c *client.Client, isWanted func(*client.Status) bool) (*client.Status, error) {
	for {
		s, err := c.Status(ctx)
		if err == nil && s.Supervisor != nil && s.Supervisor.Keeper != nil && isWanted(s) {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		case <-time.After(statusPoll):
		}
	}
}

// pidOf returns the pid of the process that a fault kills.
func pidOf(s *client.Status, kind string) int {
	switch kind {
	case "kill-supervisor":
		return s.Supervisor.PID
	case "kill-keeper":
		return s.Supervisor.Keeper.PID
	}
	return s.Proxy.PID
}
