package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/config"
	"holdfast/shared/link"
	"holdfast/shared/pipe"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

const (
	// tryTimeout is how long a supervisor may try a program, and bring its sessions
	// to rest.
	tryTimeout = 30 * time.Second
	// becomeTimeout is how long it may then take to answer as that program.
	becomeTimeout = 15 * time.Second
	becomePoll    = 5 * time.Millisecond
)

func (a *app) upgradeCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace both running processes by this release; every session and client goes on",
		Long: "Replace both running processes by this release: the supervisor by the program beside this one ($HOLDFAST_SUPERVISOR\n" +
			"may name another), in place, and the proxy by this program, by a handoff. Every session and every client goes on.\n\n" +
			"The supervisor comes first if the proxy that runs can speak with the new one, else the proxy does. Each new\n" +
			"program is tried before it takes over; if it cannot go on, the old one does. A supervisor that is too old to be\n" +
			"upgraded in place is left as it is, and so is the proxy: proxy --handoff replaces that alone.",
		Example: "  proxy upgrade --dry-run   # try both, change nothing\n  proxy upgrade",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pipe.Here {
				return notHere("an upgrade", "stop the proxy that runs, and start the new one")
			}
			u, err := a.newUpgrade(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			u.dryRun = dryRun
			return u.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "try both programs, and leave the old ones running")
	return cmd
}

// An upgrade replaces the two programs that run by those of one release.
type upgrade struct {
	ours    protocol.VersionRange // of the new programs
	program string                // the new supervisor's, absolute
	dryRun  bool
	dial    func(context.Context) (*link.Conn, error) // to the supervisor
	// speaks returns what the proxy that runs speaks, nil where none does. It is not
	// asked, but that it runs is found out, where no supervisor does.
	speaks  func(ctx context.Context, supervisor bool) (*protocol.VersionRange, error)
	handoff func(ctx context.Context, dryRun bool) error // replaces the proxy, and says so
	wait    time.Duration                                // for the new supervisor; becomeTimeout
	out     io.Writer

	proxy *protocol.VersionRange // as speaks said
}

func (a *app) newUpgrade(out io.Writer) (*upgrade, error) {
	program, err := supervisorPath()
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return nil, err
	}
	dirs, secret, err := a.place()
	if err != nil {
		return nil, err
	}
	return &upgrade{
		ours: protocol.Supported(), program: program, wait: becomeTimeout, out: out, speaks: a.proxySpeaks,
		dial: func(ctx context.Context) (*link.Conn, error) {
			return dialSupervisor(ctx, dirs, secret, "proxy upgrade")
		},
		handoff: func(ctx context.Context, dryRun bool) error {
			return a.handoff(ctx, &handoffOptions{dryRun: dryRun, timeout: handoff.Timeout})
		},
	}, nil
}

// proxySpeaks is of an upgrade. A proxy that is asked for its state would start a
// supervisor where none runs.
func (a *app) proxySpeaks(ctx context.Context, supervisor bool) (*protocol.VersionRange, error) {
	c, err := a.dial(ctx, nil)
	if nobodyListens(err) {
		return nil, nil
	}
	var e *protocol.Error
	if errors.As(err, &e) && e.Code == protocol.CodeProtocolMismatch && e.Local != nil && e.Remote != nil {
		if *e.Local == protocol.Supported() {
			return e.Remote, nil
		}
		return e.Local, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if !supervisor {
		return &protocol.VersionRange{}, nil
	}
	s, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	return &s.Proxy.Protocol, nil
}

// dialSupervisor asks it without a proxy, which may not run, or not reach it. The
// link is the caller's.
func dialSupervisor(ctx context.Context, dirs config.Dirs, secret, name string) (*link.Conn, error) {
	if err := heldIn(dirs); err != nil { // its socket takes us, and nobody would answer
		return nil, protocol.Errorf(protocol.CodeSupervisorUnreachable, err.Error())
	}
	nc, _, err := socket.Dial(ctx, dirs.Socket(config.SupervisorSocket))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() }) // ends the hello, too
	defer stop()
	conn, _, _, err := link.Dial(nc, wire.Hello{
		Protocol: protocol.Supported(), PID: os.Getpid(), Version: version.String(), Name: name, Secret: secret,
	}, zerolog.Nop())
	if err != nil {
		return nil, late(ctx, err)
	}
	return conn, nil
}

// supervisorStatus asks over a link for the supervisor's state.
func supervisorStatus(ctx context.Context, conn *link.Conn) (*protocol.ProcessStatus, error) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // also of one that takes nothing
	reply, err := conn.Call(ctx, wire.Status{})
	if err != nil {
		return nil, late(ctx, err)
	}
	report, ok := reply.(*wire.StatusReport)
	if !ok {
		return nil, errors.New("status answered by " + reply.MessageType())
	}
	return &report.Supervisor, nil
}

// run tries what it can, then replaces both halves in the order that their
// versions ask for. An error of the first half is the end: the second one has not
// changed.
func (u *upgrade) run(ctx context.Context) error {
	conn, err := u.dial(ctx)
	if nobodyListens(err) {
		return u.proxyAlone(ctx)
	}
	if err != nil {
		return fmt.Errorf("nothing has changed: %w", err)
	}
	defer func() { _ = conn.Close() }()
	old, err := supervisorStatus(ctx, conn)
	if err == nil {
		u.proxy, err = u.speaks(ctx, true)
	}
	if err != nil {
		return fmt.Errorf("nothing has changed: %w", err)
	}
	supervisorFirst, err := u.order(old.Protocol)
	if err != nil {
		return err
	}
	if err := u.try(ctx, conn, old); err != nil || u.dryRun {
		return err
	}
	if !supervisorFirst {
		if err := u.replaceProxy(ctx); err != nil {
			return beside("the supervisor has not changed", err)
		}
		return u.become(ctx, conn, old)
	}
	if err := u.become(ctx, conn, old); err != nil {
		return beside("the proxy has not changed", err)
	}
	return u.replaceProxy(ctx)
}

// order says which half is first, by what the old supervisor speaks.
//
// Errors: protocol_mismatch where both orders have two halves that cannot speak
// with each other, or none can be asked.
func (u *upgrade) order(supervisor protocol.VersionRange) (supervisorFirst bool, err error) {
	if u.proxy == nil {
		return true, nil
	}
	if _, err := protocol.Agree(*u.proxy, u.ours); err == nil {
		return true, nil
	}
	if _, err := protocol.Agree(u.ours, supervisor); err != nil {
		return false, &protocol.Error{
			Code: protocol.CodeProtocolMismatch, Local: &u.ours, Remote: &supervisor,
			Message: fmt.Sprintf("nothing has changed: these programs speak protocol %s, with neither the proxy that runs, %s, nor the supervisor, %s; upgrade to a release between", u.ours, *u.proxy, supervisor),
		}
	}
	return false, nil
}

// try has both programs tried, as far as that is possible without a change. The
// proxy is not, where it is replaced anyway: a handoff begins with that.
func (u *upgrade) try(ctx context.Context, conn *link.Conn, old *protocol.ProcessStatus) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	reply, err := conn.Call(ctx, wire.Upgrade{Program: u.program, DryRun: true})
	if protocol.CodeOf(err) == protocol.CodeUnsupported {
		return &exitError{exitProtocol, fmt.Sprintf(
			"nothing has changed: the supervisor, %s, pid %d, is too old to be upgraded in place, and goes on as it is; proxy --handoff replaces the proxy alone",
			build(old.Version), old.PID)}
	}
	if err != nil {
		return fmt.Errorf("nothing has changed: the supervisor, pid %d, cannot become %s: %w", old.PID, u.program, late(ctx, err))
	}
	tried, ok := reply.(*wire.Upgraded)
	if !ok {
		return errors.New("upgrade answered by " + reply.MessageType())
	}
	if !u.dryRun {
		return nil
	}
	_, err = fmt.Fprintf(u.out, "supervisor %s, pid %d, could become %s with %s\n", build(old.Version), old.PID, build(tried.Version), count(tried.Sessions, "session"))
	if err != nil || u.proxy == nil {
		return err
	}
	return u.handoff(ctx, true)
}

// proxyAlone is for where no supervisor runs: a proxy starts the new one.
func (u *upgrade) proxyAlone(ctx context.Context) error {
	proxy, err := u.speaks(ctx, false)
	if err != nil {
		return err
	}
	if proxy == nil {
		return &exitError{exitUnavailable, "neither a supervisor nor a proxy runs here"}
	}
	if _, err := fmt.Fprintln(u.out, "supervisor: none runs"); err != nil {
		return err
	}
	return u.handoff(ctx, u.dryRun)
}

func (u *upgrade) replaceProxy(ctx context.Context) error {
	if u.proxy == nil {
		_, err := fmt.Fprintln(u.out, "proxy: none runs")
		return err
	}
	return u.handoff(ctx, false)
}

// become has the supervisor become the new program, and returns when that
// answers.
func (u *upgrade) become(ctx context.Context, conn *link.Conn, old *protocol.ProcessStatus) error {
	asking, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	_, err := conn.Call(asking, wire.Upgrade{Program: u.program})
	var e *protocol.Error
	if errors.As(err, &e) {
		return fmt.Errorf("the supervisor, pid %d, goes on as it was: %w", old.PID, err)
	}
	if asking.Err() == nil {
		select {
		case <-conn.Done():
		case <-asking.Done():
		}
	}
	if err := asking.Err(); err != nil {
		return fmt.Errorf("the supervisor, pid %d, was asked to become %s, and has not said how that went: %w", old.PID, u.program, err)
	}
	ended := time.Now()
	now, err := u.await(ctx, old)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(u.out, "supervisor %s became %s, pid %d, with %s; it answered again after %v\n",
		build(old.Version), build(now.Version), now.PID, count(now.Sessions, "session"), time.Since(ended).Round(100*time.Microsecond))
	return err
}

// await returns the state of the supervisor once it is another program.
func (u *upgrade) await(ctx context.Context, old *protocol.ProcessStatus) (*protocol.ProcessStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, u.wait)
	defer cancel()
	var last *protocol.ProcessStatus
	var lastErr error
	for {
		now, err := u.ask(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			lastErr = err
		case err != nil:
		case now.Instance != old.Instance:
			return nil, &exitError{exitSoftware, fmt.Sprintf(
				"another supervisor has come, %s, pid %d, which does not have the sessions of pid %d: see supervisor.log and proxy doctor", build(now.Version), now.PID, old.PID)}
		case now.Upgrades > old.Upgrades:
			return now, nil
		default:
			last = now
		}
		select {
		case <-time.After(becomePoll):
			continue
		case <-ctx.Done():
		}
		if last != nil {
			return nil, &exitError{exitTempFail, fmt.Sprintf(
				"the supervisor goes on as %s, pid %d, and has not become another program: see supervisor.log", build(last.Version), last.PID)}
		}
		return nil, &protocol.Error{Code: protocol.CodeSupervisorUnreachable, Retryable: true, Message: fmt.Sprintf(
			"the supervisor does not answer %v after it was to become another program: %v", u.wait, cmp.Or(lastErr, ctx.Err()))}
	}
}

func (u *upgrade) ask(ctx context.Context) (*protocol.ProcessStatus, error) {
	conn, err := u.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return supervisorStatus(ctx, conn)
}

// beside is an error of one half, and what has become of the other.
func beside(other string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &exitError{exitCode(err), other + ": " + errorText(err)}
}

func build(version string) string { return cmp.Or(version, "dev") }
