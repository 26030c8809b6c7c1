package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/installed"
	"holdfast/shared/link"
	"holdfast/shared/machine"
	"holdfast/shared/pipe"
	"holdfast/shared/plain"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
)

const (
	// tryTimeout is how long a supervisor may take to try a program, and to freeze its sessions.
	tryTimeout = 30 * time.Second
	// becomeTimeout is how long the supervisor may take after that to answer as the new program.
	becomeTimeout = 15 * time.Second
)

func (a *App) upgradeCommand() *cobra.Command {
	var dryRun bool
	var fleet rolloutFlags
	cmd := a.JSONFlag(&cobra.Command{
		Use:   "upgrade",
		Short: "Replace both running processes by this release; all sessions and clients continue",
		Long: "Replace both running processes by this release: the supervisor by the program beside this one (or by\n" +
			"$HOLDFAST_SUPERVISOR), in place, and the proxy by this program, by a handoff. All sessions and clients continue.\n\n" +
			"The supervisor is replaced first if the running proxy can speak with the new one; otherwise the proxy is. Each new\n" +
			"program is tried before it takes over; if it fails, the old one continues. If this host has joined a gate, its agent\n" +
			"is replaced last.\n\n" +
			"With --hosts, upgrade hosts of the gate to the programs in a directory of these hosts, in waves. Each host\n" +
			"returns to the programs from before if it is not healthy afterwards; then all hosts that this command has\n" +
			"upgraded return, too. The setting upgrade_from of a host must permit the directory. Instead of a directory, --to may\n" +
			"be the https URL of a release archive, whose SHA-256 --sha256 names; each host downloads it.",
		Example: "  proxy upgrade --dry-run   # try both, change nothing\n  proxy upgrade\n" +
			"  proxy upgrade --hosts 'web-*' --to /opt/holdfast/v2 --dry-run   # try on all hosts, change nothing\n" +
			"  proxy upgrade --hosts '*' --label team=compilers --to /opt/holdfast/v2 --waves 1,10%,50%\n" +
			"  proxy upgrade --hosts '*' --to https://example.org/holdfast_1.2.3_linux_amd64.tar.gz --sha256 SUM",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fleet.hosts != "" {
				return a.rollOut(cmd, &fleet, dryRun)
			}
			if name := fleet.setWithoutHosts(cmd); name != "" {
				return exitcode.WrongUsagef("--%s is for an upgrade of hosts of the gate, with --hosts", name)
			}
			if pipe.Here {
				return exitcode.Unsupported("an upgrade", "stop the proxy that runs, and start the new one")
			}
			u, err := a.newUpgrade(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			u.dryRun = dryRun
			machine.SurviveBrokenPipe() // it would end this command between the two replacements
			return a.explainTimeout(cmd.Context(), u.run(cmd.Context()))
		},
	})
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "try both programs, and leave the old ones running")
	fleet.define(cmd)
	return cmd
}

// An upgrade replaces the two running programs by those of one release.
type upgrade struct {
	supported protocol.VersionRange // of the new programs
	program   string                // absolute path of the new supervisor
	dryRun    bool
	dial      func(context.Context) (*link.Conn, error) // connects to the supervisor
	// speaks returns the protocol versions of the running proxy, or nil if no proxy runs. If no
	// supervisor runs, it returns the zero value instead of asking a running proxy.
	speaks  func(ctx context.Context, supervisor bool) (*protocol.VersionRange, error)
	handoff func(ctx context.Context, dryRun bool) error // replaces the proxy, and prints the result
	// agent replaces the agent of this host, and returns what it did. The text is "" if there was nothing to do.
	agent func(context.Context) (text string, err error)
	wait  time.Duration // how long to wait for the new supervisor; becomeTimeout
	out   io.Writer
	json  bool // print results as lines of JSON

	proxy *protocol.VersionRange // the result of speaks
}

// newUpgrade prepares an upgrade that prints its results to out.
func (a *App) newUpgrade(out io.Writer) (*upgrade, error) {
	program, err := installed.Supervisor()
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return nil, err
	}
	dirs, secret, err := a.dirsAndSecret()
	if err != nil {
		return nil, err
	}
	return &upgrade{
		json: a.JSON, supported: protocol.Supported(), program: program, wait: becomeTimeout, out: out, speaks: a.proxySpeaks,
		dial: func(ctx context.Context) (*link.Conn, error) {
			return dialSupervisor(ctx, dirs, secret, "proxy upgrade")
		},
		handoff: func(ctx context.Context, dryRun bool) error {
			return a.handoff(ctx, &handoffOptions{dryRun: dryRun, json: a.JSON, timeout: handoff.Timeout})
		},
		agent: func(ctx context.Context) (string, error) {
			agent, err := AgentHere(ctx, dirs)
			switch {
			case err != nil:
				return "", err
			case agent == nil || agent.IsUpgrading: // it has started this command, and replaces itself afterwards
				return "", nil
			case agent.Version == "":
				return fmt.Sprintf("agent: pid %d is of a release that cannot be handed over; end it, and start this one with proxy join", agent.PID), nil
			}
			return a.HandOffAgent(ctx, dirs)
		},
	}, nil
}

// proxySpeaks returns the protocol versions of the running proxy, or nil if no proxy runs. It must
// not ask the proxy for its status if no supervisor runs, because the proxy would start one.
func (a *App) proxySpeaks(ctx context.Context, supervisor bool) (*protocol.VersionRange, error) {
	c, err := a.dial(ctx, nil)
	if socket.IsAbsent(err) {
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

// run replaces supervisor and proxy, and then the agent of this host if there is one.
func (u *upgrade) run(ctx context.Context) error {
	if err := u.replace(ctx); err != nil || u.dryRun {
		return err
	}
	text, err := u.agent(ctx)
	if err != nil {
		return withOther("the supervisor and the proxy have been replaced", err)
	}
	if text != "" {
		u.tell(upgradeStep{Step: "agent", Text: text})
	}
	return nil
}

// replace tries both programs, then replaces both processes in the order that their protocol versions
// demand. If the first replacement fails, the second process is not replaced.
func (u *upgrade) replace(ctx context.Context) error {
	conn, err := u.dial(ctx)
	if socket.IsAbsent(err) {
		return u.proxyAlone(ctx)
	}
	if err != nil {
		return fmt.Errorf("nothing has changed: %w", err)
	}
	defer func() { _ = conn.Close() }()
	old, err := conn.Status(ctx)
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
			return withOther("the supervisor has not changed", err)
		}
		return u.become(ctx, conn, old)
	}
	if err := u.become(ctx, conn, old); err != nil {
		return withOther("the proxy has not changed", err)
	}
	return u.replaceProxy(ctx)
}

// order reports whether the supervisor must be replaced first, by the protocol versions of the old
// one.
//
// Errors: protocol_mismatch if in both orders the two processes could not speak with each other
// after the first replacement.
func (u *upgrade) order(supervisor protocol.VersionRange) (supervisorFirst bool, err error) {
	if u.proxy == nil {
		return true, nil
	}
	if _, err := protocol.Agree(*u.proxy, u.supported); err == nil {
		return true, nil
	}
	if _, err := protocol.Agree(u.supported, supervisor); err != nil {
		return false, &protocol.Error{
			Code: protocol.CodeProtocolMismatch, Local: &u.supported, Remote: &supervisor,
			Message: fmt.Sprintf("nothing has changed: these programs speak protocol %s, but the running proxy speaks %s and the supervisor %s; upgrade to a release between first", u.supported, *u.proxy, supervisor),
		}
	}
	return false, nil
}

// try tries the new supervisor, and with --dry-run the new proxy as well. Otherwise the proxy need
// not be tried here, because a handoff begins with a trial.
func (u *upgrade) try(ctx context.Context, conn *link.Conn, old *protocol.ProcessStatus) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	reply, err := conn.Call(ctx, wire.Upgrade{Program: u.program, DryRun: true})
	var refused *protocol.Error
	if err != nil && ctx.Err() == nil && !errors.As(err, &refused) {
		return exitcode.Newf(sysexits.TempFail, "nothing has changed: the supervisor, pid %d, closed the link while it tried %s (%v): see supervisor.log, and try again", old.PID, u.program, err)
	}
	if err != nil {
		return fmt.Errorf("nothing has changed: the supervisor, pid %d, cannot become %s: %w", old.PID, u.program, late(ctx, err))
	}
	tried, err := wire.ReplyAs[*wire.Upgraded](reply, nil)
	if err != nil {
		return err
	}
	if !u.dryRun {
		return nil
	}
	text := fmt.Sprintf("supervisor %s, pid %d, could become %s with %s", build(old.Version), old.PID, build(tried.Version), plain.Count(tried.Sessions, "session"))
	u.tell(upgradeStep{Step: "tried", Text: text, PID: old.PID, Version: build(tried.Version), Sessions: tried.Sessions})
	if u.proxy == nil {
		return nil
	}
	return u.handoff(ctx, true)
}

// proxyAlone replaces the proxy if no supervisor runs. The new proxy will start the new supervisor.
func (u *upgrade) proxyAlone(ctx context.Context) error {
	proxy, err := u.speaks(ctx, false)
	if err != nil {
		return err
	}
	if proxy == nil {
		return exitcode.New(sysexits.Unavailable, "neither a supervisor nor a proxy runs here")
	}
	u.tell(upgradeStep{Step: "absent", Text: "supervisor: none runs"})
	return u.handoff(ctx, u.dryRun)
}

// replaceProxy replaces the proxy if one runs.
func (u *upgrade) replaceProxy(ctx context.Context) error {
	if u.proxy == nil {
		u.tell(upgradeStep{Step: "absent", Text: "proxy: none runs"})
		return nil
	}
	return u.handoff(ctx, false)
}

// become makes the supervisor execute the new program, and returns when the new program answers.
func (u *upgrade) become(ctx context.Context, conn *link.Conn, old *protocol.ProcessStatus) error {
	asking, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	_, err := conn.Call(asking, wire.Upgrade{Program: u.program})
	var e *protocol.Error
	if errors.As(err, &e) {
		return fmt.Errorf("the supervisor, pid %d, continues unchanged: %w", old.PID, err)
	}
	if asking.Err() == nil {
		select {
		case <-conn.Done():
		case <-asking.Done():
		}
	}
	if err := asking.Err(); err != nil {
		return fmt.Errorf("the supervisor, pid %d, was asked to become %s, and has not reported the result: %w", old.PID, u.program, err)
	}
	ended := time.Now()
	now, err := u.await(ctx, old)
	if err != nil {
		return err
	}
	stall := time.Since(ended)
	text := fmt.Sprintf("supervisor %s became %s, pid %d, with %s; it answered again after %v",
		build(old.Version), build(now.Version), now.PID, plain.Count(now.Sessions, "session"), stall.Round(100*time.Microsecond))
	u.tell(upgradeStep{Step: "became", Text: text, PID: now.PID, Version: build(now.Version), Sessions: now.Sessions, StallMS: float64(stall.Microseconds()) / 1000})
	return nil
}

// An upgradeStep is a result of the upgrade of the supervisor, as a line of JSON. A handoff prints lines of its
// own.
type upgradeStep struct {
	Step     string  `json:"step"` // tried, became, agent; absent if the process does not run
	Text     string  `json:"text"` // for people
	PID      int     `json:"pid,omitempty"`
	Version  string  `json:"version,omitempty"` // of the new program
	Sessions int     `json:"sessions,omitempty"`
	StallMS  float64 `json:"stall_ms,omitempty"` // how long the supervisor did not answer
}

// tell prints a result. If it cannot be printed, the upgrade continues, and Main reports the error.
func (u *upgrade) tell(s upgradeStep) {
	if u.json {
		_ = JSONTo(u.out).Encode(s)
	} else {
		fmt.Fprintln(u.out, s.Text)
	}
}

// await returns the status of the supervisor after it has executed another program.
func (u *upgrade) await(ctx context.Context, old *protocol.ProcessStatus) (*protocol.ProcessStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, u.wait)
	defer cancel()
	var now, last *protocol.ProcessStatus
	var lastErr error
	decided, err := link.AwaitStatus(ctx, u.ask, func(s *protocol.ProcessStatus, err error) (bool, error) {
		switch {
		case err != nil && ctx.Err() == nil:
			lastErr = err
		case err != nil:
		case s.Instance != old.Instance:
			return true, exitcode.Newf(sysexits.Software, "another supervisor was started, %s, pid %d, which does not have the sessions of pid %d: see supervisor.log and proxy doctor", build(s.Version), s.PID, old.PID)
		case s.Upgrades > old.Upgrades:
			now = s
			return true, nil
		case s.PID != old.PID: // an exec keeps the process id
			return true, exitcode.Newf(sysexits.TempFail, "the supervisor, pid %d, died during the upgrade; %s, pid %d, continues its sessions: see supervisor.log, and try again", old.PID, build(s.Version), s.PID)
		default:
			last = s
		}
		return false, nil
	})
	switch {
	case decided:
		return now, err
	case last != nil:
		return nil, exitcode.Newf(sysexits.TempFail, "the supervisor continues as %s, pid %d, and has not become another program: see supervisor.log", build(last.Version), last.PID)
	}
	return nil, &protocol.Error{Code: protocol.CodeSupervisorUnreachable, Retryable: true, Message: fmt.Sprintf(
		"the supervisor has not answered within %v after it was asked to become another program: %v", u.wait, cmp.Or(lastErr, ctx.Err()))}
}

// ask asks the supervisor for its status over a new link.
func (u *upgrade) ask(ctx context.Context) (*protocol.ProcessStatus, error) {
	conn, err := u.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return conn.Status(ctx)
}

// withOther adds the state of the other process to an error.
func withOther(other string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return exitcode.New(exitcode.Of(err), other+": "+exitcode.Text(err))
}

// build returns a version for people; "dev" if the program has none.
func build(version string) string { return cmp.Or(version, "dev") }
