package operate

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/gate"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/doctor"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/fleet/member"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/serve"
	"holdfast/shared/config"
	"holdfast/shared/logging"
	"holdfast/shared/plain"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
	"holdfast/shared/version"
)

// Names of the agent's files.
const (
	joinFile           = "join.json"         // in the state directory
	agentHandoffSocket = "join.handoff.sock" // a successor takes over there
	leaveLimit         = 10 * time.Second
	connectedLimit     = 2 * time.Second // for an agent that was started; it tries for longer
)

// joinFlags are the flags of join.
type joinFlags struct {
	name                            string
	labels                          map[string]string
	foreground, background, handoff bool
}

func (a *app) joinCommand() *cobra.Command {
	o := &joinFlags{}
	cmd := &cobra.Command{
		Use:   "join [TEXT]",
		Short: "Join a gate, so that clients can enter this host there",
		Long: "Join a gate with the text that proxy gate token prints on it, and start the agent of this host in the\n" +
			"background. The agent connects to the gate, publishes the sessions of this host, and connects clients of\n" +
			"the gate with the proxy. Without a text, the agent of a host that has joined is started, if none runs.\n\n" +
			"With --handoff, this program takes over from the agent that runs: it connects to the gate first, and the clients\n" +
			"then open their next connection through it before they leave the old one. proxy upgrade does that, too. With\n" +
			"--foreground, an agent that runs already is taken over from in the same way.",
		Example: "  proxy join \"$(ssh gate proxy gate token)\" --name build-host\n" +
			"  proxy join --foreground   # for a service manager\n" +
			"  proxy join --handoff      # after another release was installed",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.join(cmd, o, args)
		},
	}
	cmd.Flags().StringVar(&o.name, "name", "", "`name` of this host at the gate (default the host name)")
	cli.LabelsVar(cmd.Flags(), &o.labels, "label of this host, `k=v`")
	cmd.Flags().BoolVar(&o.foreground, "foreground", false, "run the agent in the foreground")
	cmd.Flags().BoolVar(&o.handoff, "handoff", false, "take over from the agent that runs")
	cmd.MarkFlagsMutuallyExclusive("foreground", "handoff")
	cmd.Flags().BoolVar(&o.background, "background", false, "log to a file in the state directory")
	_ = cmd.Flags().MarkHidden("background") // join starts the agent with it
	return cmd
}

func (a *app) join(cmd *cobra.Command, o *joinFlags, args []string) error {
	dirs, err := a.MakeDirs()
	if err != nil {
		return err
	}
	path := filepath.Join(dirs.State, joinFile)
	if len(args) > 0 {
		if _, err := member.Load(path); errors.Is(err, member.ErrNotJoined) && !o.foreground && !o.background {
			if err := awaitNoAgent(cmd.Context(), dirs, leaveLimit); err != nil {
				return err
			}
		}
		if err := joinGate(cmd.Context(), path, o, args[0]); err != nil {
			return err
		}
	}
	state, err := member.Load(path)
	if errors.Is(err, member.ErrNotJoined) {
		return exitcode.WrongUsage(err)
	}
	if err != nil {
		return err
	}
	if state.IsPending {
		return exitcode.WrongUsagef("the gate has not answered the join of this host; repeat proxy join with the text, or undo it with proxy leave")
	}
	if o.foreground || o.background {
		return a.runAgent(cmd.Context(), dirs, o)
	}
	if o.handoff {
		text, err := a.HandOffAgent(cmd.Context(), dirs)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
		return err
	}
	if err := a.startAgent(cmd.Context(), dirs); err != nil {
		return err
	}
	if err := awaitConnected(cmd.Context(), dirs, connectedLimit); err != nil {
		cli.Warn("%v", err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s has joined the gate %s\n", plain.Text(state.Name), plain.Text(state.Gates[0]))
	return err
}

// awaitConnected returns when the agent of this host is connected with a gate. After limit, the error tells why it is not;
// the agent tries again by itself.
func awaitConnected(ctx context.Context, dirs config.Dirs, limit time.Duration) error {
	late := time.After(limit)
	ctx, cancel := context.WithTimeout(ctx, 2*limit) // for an agent that does not answer
	defer cancel()
	for {
		agent, reason := askAgent(ctx, dirs)
		if reason == nil {
			if agent == nil || agent.IsConnected { // nil: this host has left the gate meanwhile
				return nil
			}
			reason = errors.New(cmp.Or(agent.Reason, "it does not run"))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("the agent of this host tries to connect with the gate: %w; proxy doctor says more", reason)
		case <-time.After(cli.StartPoll):
		}
	}
}

// joinGate makes the key of this host, and makes the host known to the gate. If an earlier attempt was not
// answered, it uses the key and the name of that attempt, because the gate may know them.
func joinGate(ctx context.Context, path string, o *joinFlags, text string) error {
	lock, err := socket.Acquire(path) // another join would replace the key that the gate learns, or remove it
	if err != nil {
		return fmt.Errorf("another join of this host may be under way: %w", err)
	}
	defer func() { _ = lock.Close() }()
	before, err := member.Load(path)
	isRepeated := err == nil && before.IsPending
	if !errors.Is(err, member.ErrNotJoined) && !isRepeated {
		return exitcode.WrongUsage(errors.Join(err, fmt.Errorf("this host has joined a gate as %s; proxy leave undoes that", plain.Text(before.Name))))
	}
	entry, err := gate.ParseEntry(gate.ForHosts, text)
	if err != nil {
		return exitcode.WrongUsage(err)
	}
	name := o.name
	if isRepeated = isRepeated && before.Fingerprint == entry.Fingerprint; isRepeated {
		name = cmp.Or(name, before.Name)
	}
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return fmt.Errorf("%w; name this host with --name", err)
		}
	}
	state, err := member.NewState(entry, name, o.labels)
	if err != nil {
		return err
	}
	if isRepeated {
		state.Seed = before.Seed
		if len(o.labels) == 0 {
			state.Labels = before.Labels
		}
	}
	state.IsPending = true
	if err := state.Save(path); err != nil { // first, so that a host that the gate knows has its key
		return err
	}
	if err = member.Join(ctx, state, entry.Secret); err == nil {
		state.IsPending = false
		return state.Save(path)
	}
	var refused *gate.Refused
	switch {
	case errors.As(err, &refused) && refused.Code == gate.RefusedBusy:
		err = exitcode.With(sysexits.TempFail, err)
	case errors.As(err, &refused) && refused.Code == gate.RefusedInvalid:
		err = exitcode.WrongUsage(err)
	case errors.As(err, &refused), errors.Is(err, gate.ErrFingerprint):
		err = exitcode.With(sysexits.NoPerm, err)
	default:
		err = exitcode.With(sysexits.Unavailable, err)
	}
	if isRepeated || errors.Is(err, member.ErrNoAnswer) {
		return err // the gate may know the key
	}
	return errors.Join(err, os.Remove(path))
}

// awaitNoAgent returns when no agent runs on this host, which has left its gate. The agent of that join would hold the
// socket, so that the agent of the next join would end at once. After limit, awaitNoAgent returns an error.
func awaitNoAgent(ctx context.Context, dirs config.Dirs, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var agent *cli.Agent // that has answered last
	for {
		now, err := cli.AgentHere(ctx, dirs)
		if err == nil && now == nil {
			return nil
		}
		agent = cmp.Or(now, agent)
		select {
		case <-ctx.Done():
			if agent == nil {
				return fmt.Errorf("the agent of an earlier join still runs; end it and join again: %w", err)
			}
			return exitcode.Newf(sysexits.Unavailable, "the agent of an earlier join still runs as pid %d; end it and join again", agent.PID)
		case <-time.After(cli.StartPoll):
		}
	}
}

// startAgent starts the agent in the background, and returns when it answers on its socket. If the process that it
// has started ends because another agent runs, that one suffices.
func (a *app) startAgent(ctx context.Context, dirs config.Dirs) error {
	p, err := a.StartDaemon(ctx, "join", "--background")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cli.StartTimeout)
	defer cancel()
	return awaitAgent(ctx, dirs, p.PID, p.Exited)
}

// awaitAgent returns when the agent with a pid answers, or another one after exited is closed.
func awaitAgent(ctx context.Context, dirs config.Dirs, pid int, exited <-chan struct{}) error {
	for {
		isOver := false
		select {
		case <-exited:
			isOver = true
		default:
		}
		agent, err := cli.AgentHere(ctx, dirs)
		switch {
		case err == nil && agent != nil && (isOver || agent.PID == pid):
			return nil
		case isOver:
			return errors.Join(fmt.Errorf("the agent has ended; the reason is in %s", agentLog(dirs)), err)
		}
		select {
		case <-exited:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(cli.StartPoll):
		}
	}
}

func agentLog(dirs config.Dirs) string { return filepath.Join(dirs.State, "join.log") }

// runAgent runs the agent in this process. If it has a successor in the background, and this process belongs to a
// service manager, it executes the program of the successor, which then takes over in turn.
func (a *app) runAgent(ctx context.Context, dirs config.Dirs, flags *joinFlags) error {
	a.Serves()
	cfg, err := config.Load(dirs, os.Getenv, nil)
	if err != nil {
		return err
	}
	lo := logging.Options{Level: cfg.LogLevel, Process: "join"}
	if flags.background {
		lo.Path = agentLog(dirs)
		if err := logging.CrashOutput(filepath.Join(dirs.State, "join.crash")); err != nil {
			return err
		}
	}
	log, closer, err := logging.New(lo)
	if err != nil {
		return err
	}
	defer func() { _ = closer.Close() }()
	next, err := a.serveAgent(ctx, dirs, log, flags)
	if err != nil {
		log.Error().Err(err).Msg("agent ends")
	}
	if err != nil || next == nil || next.IsService || !flags.foreground {
		return err
	}
	args, err := a.DaemonArgs("join", "--foreground")
	if err != nil {
		return err
	}
	log.Info().Str("program", next.Program).Msg("agent executes the program of its successor, for the service manager")
	return cli.Execute(next.Program, append([]string{next.Program}, args...))
}

// serveAgent starts the agent, or takes over from the one that runs, and serves until it ends.
func (a *app) serveAgent(ctx context.Context, dirs config.Dirs, log zerolog.Logger, flags *joinFlags) (next *member.Successor, err error) {
	leave := make(chan chan error)
	upgrader := a.upgrader(dirs, log)
	o := a.agentOptions(dirs, log, leave)
	o.Link, o.Upgrade = &member.Link{}, upgrader.Serve
	ctx, cancel := context.WithCancel(ctx)
	var sockets *member.Sockets
	var accepting sync.WaitGroup
	defer func() {
		cancel()
		if sockets != nil { // those that a successor has are closed here already
			err = errors.Join(err, sockets.Commands.Close(), sockets.Handoff.Close())
		}
		accepting.Wait()
	}()
	serve := func(s *member.Sockets) {
		sockets = s
		accepting.Go(func() { acceptCommands(ctx, s.Commands, leave, o.Link, upgrader.IsBusy) })
	}
	commandPath, handoffPath := dirs.Socket(cli.AgentSocket), dirs.Socket(agentHandoffSocket)
	commands, err := socket.Listen(commandPath, socket.Options{})
	var inUse *socket.InUseError
	switch {
	case errors.As(err, &inUse) && (flags.foreground || flags.handoff):
		program, err := os.Executable()
		if err != nil {
			return nil, err
		}
		next, err = member.Takeover{
			CommandPath: commandPath, HandoffPath: handoffPath, Successor: member.Successor{Program: program, IsService: flags.foreground}, Timeout: handoff.Timeout,
			Serving: func(s *member.Sockets, _ int) { serve(s) },
		}.Run(ctx, o)
		if socket.IsAbsent(err) {
			err = fmt.Errorf("the agent that runs, pid %d, is of a release that cannot be handed over; end it, and start this one with proxy join: %w", inUse.PID, err)
		}
		return next, err
	case err != nil:
		return nil, err
	case flags.handoff:
		return nil, errors.Join(exitcode.New(sysexits.Unavailable, "no agent runs here; start one with proxy join"), commands.Close())
	}
	offers, err := socket.Listen(handoffPath, socket.Options{})
	if err != nil {
		return nil, errors.Join(err, commands.Close())
	}
	o.Sockets = &member.Sockets{Commands: commands, Handoff: offers}
	serve(o.Sockets)
	return member.Run(ctx, o)
}

// agentOptions returns the options of the agent.
func (a *app) agentOptions(dirs config.Dirs, log zerolog.Logger, leave <-chan chan error) member.Options {
	return member.Options{
		Path: filepath.Join(dirs.State, joinFile), Log: log, Leave: leave,
		Connect: func(ctx context.Context) (*client.Client, error) { return a.ConnectAgain(ctx, false, true) },
		Ready: func(ctx context.Context, starts, again bool) error {
			if nc, err := client.DialAPI(ctx, dirs, a.Proxy); err == nil { // so a client need not wait for a second hello
				return nc.Close()
			}
			c, err := a.ConnectAgain(ctx, starts, again)
			if err != nil {
				return err
			}
			return c.Close()
		},
		Serve: func(ctx context.Context, stream net.Conn, principal *protocol.Principal) error {
			var vouch *api.Vouch
			if principal != nil {
				vouch = &api.Vouch{Token: serve.ReadToken(dirs, a.Proxy), Principal: *principal}
			}
			return a.ServeStream(ctx, stream, stream, vouch)
		},
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
			return a.runForClient(ctx, dirs, args, stdout, stderr)
		},
	}
}

// acceptCommands answers the commands of this host that concern its agent. A connection is asked for nothing else, because
// only this user can open one.
func acceptCommands(ctx context.Context, ln *socket.Listener, leave chan<- chan error, link *member.Link, isUpgrading func() bool) {
	for {
		conn, _, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(cli.StartPoll) // a peer of another user, or no descriptor is free
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(leaveLimit))
		line, _ := bufio.NewReaderSize(conn, 16).ReadString('\n') // "" from a command that only looks
		switch line {
		case "status\n":
			answer := "connected"
			if isConnected, reason := link.Status(); !isConnected {
				answer = "lost " + strings.ReplaceAll(reason, "\n", "; ")
			}
			_, _ = fmt.Fprintln(conn, answer) // the command may have been interrupted
		case cli.AgentAbout + "\n":
			_ = json.NewEncoder(conn).Encode(cli.Agent{PID: os.Getpid(), Version: version.String(), IsUpgrading: isUpgrading()})
		case "leave\n":
			result := make(chan error, 1)
			select {
			case leave <- result:
				answer := "ok"
				err, isAnswered := <-result
				if !isAnswered { // the command asks the successor
					break
				}
				if err != nil {
					answer = "error " + err.Error()
				}
				_, _ = fmt.Fprintln(conn, answer) // the command may have been interrupted
			case <-ctx.Done():
			}
		}
		_ = conn.Close()
	}
}

// askAgent asks the agent of this host for its state. It returns nil if this host has not joined a gate.
func askAgent(ctx context.Context, dirs config.Dirs) (*doctor.Agent, error) {
	state, err := member.Load(filepath.Join(dirs.State, joinFile))
	if errors.Is(err, member.ErrNotJoined) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	agent := &doctor.Agent{Host: state.Name, Gate: strings.Join(state.Gates, ",")}
	conn, _, err := socket.DialOwner(ctx, dirs.Socket(cli.AgentSocket))
	if socket.IsAbsent(err) {
		return agent, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintln(conn, "status"); err != nil {
		return nil, fmt.Errorf("the agent does not answer: %w", err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the agent does not answer: %w", err)
	}
	agent.IsRunning = true
	agent.Reason, _ = strings.CutPrefix(strings.TrimSpace(line), "lost ")
	agent.IsConnected = strings.TrimSpace(line) == "connected"
	return agent, nil
}

func (a *app) leaveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "leave",
		Short:   "Leave the gate that this host has joined",
		Long:    "Leave the gate that this host has joined: the gate forgets the host, the agent ends, and the key of this\nhost is deleted. All sessions continue.",
		Example: "  proxy leave",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dirs, err := a.Dirs()
			if err != nil {
				return err
			}
			path := filepath.Join(dirs.State, joinFile)
			state, err := member.Load(path)
			if errors.Is(err, member.ErrNotJoined) {
				return exitcode.WrongUsage(err)
			}
			if err != nil {
				return err
			}
			var inUse *socket.InUseError
			if state.IsPending {
				cli.Warn("the gate may know this host; remove it there with: proxy gate revoke %s", plain.Text(state.Name))
			} else if err := a.leave(cmd.Context(), dirs); errors.As(err, &inUse) {
				return err // the agent would stay without the file
			} else if err != nil && cmd.Context().Err() != nil { // interrupted, and the gate may still know the host
				return cmd.Context().Err()
			} else if err != nil {
				cli.Warn("the gate has not confirmed that it has removed this host (%v); remove the host there with: proxy gate revoke %s", err, plain.Text(state.Name))
			}
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		},
	}
}

// leave lets the agent tell the gate and end. If no agent runs, this process is the agent for that.
func (a *app) leave(ctx context.Context, dirs config.Dirs) error {
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	conn, _, err := socket.DialOwner(ctx, dirs.Socket(cli.AgentSocket))
	if socket.IsAbsent(err) {
		leave, result := make(chan chan error, 1), make(chan error, 1)
		leave <- result
		log, _, err := logging.New(logging.Options{Level: "error", Process: "join"})
		if err != nil {
			return err
		}
		if _, err := member.Run(ctx, a.agentOptions(dirs, log, leave)); err != nil {
			return err
		}
		select {
		case err := <-result:
			return err
		default:
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(leaveLimit))
	if _, err := fmt.Fprintln(conn, "leave"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if errors.Is(err, io.EOF) && line == "" { // the agent has ended, for example because it has a successor
		return a.leave(ctx, dirs)
	}
	if text, isError := strings.CutPrefix(strings.TrimSpace(line), "error "); isError {
		err = errors.New(text)
	}
	return err
}
