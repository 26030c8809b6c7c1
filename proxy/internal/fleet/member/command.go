package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"holdfast/protocol/gate"
	"holdfast/shared/logging"
)

// Limits of the commands that clients of the gate run on this host.
const (
	maxCommands  = 4                // that run at the same time
	commandLimit = 10 * time.Minute // for one command
	printLimit   = 10 * time.Second // for a client to receive a piece of output
)

// answer answers the request of a client to this agent: it runs a command or an upgrade.
func (a *agent) answer(ctx context.Context, conn net.Conn) error {
	_ = conn.SetReadDeadline(time.Now().Add(dialLimit)) // if it fails, reading fails, too
	m, err := gate.Read(conn, gate.MaxFirst)
	if err != nil {
		return fmt.Errorf("request of a client to the agent: %w", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	switch m := m.(type) {
	case *gate.Upgrade:
		return a.o.Upgrade(ctx, conn, *m)
	case *gate.Run:
		return a.command(ctx, conn, m)
	}
	return a.refuse(conn, &gate.Refused{Code: gate.RefusedInvalid, Message: "the agent of a host does not answer " + m.MessageType()})
}

// refuse refuses the request of a client to this agent.
func (a *agent) refuse(conn net.Conn, why *gate.Refused) error {
	a.o.Log.Warn().Bool(logging.Security, true).Str(logging.Code, string(why.Code)).Str("why", why.Message).Msg("request of a client to the agent refused")
	_ = conn.SetWriteDeadline(time.Now().Add(dialLimit))
	return gate.Write(conn, *why)
}

// command runs the command of a client. The command continues if the client is lost, because a handoff or an
// upgrade must not stop halfway.
func (a *agent) command(ctx context.Context, conn net.Conn, r *gate.Run) error {
	code, err := a.run(ctx, r, &printer{conn: conn})
	var refused *gate.Refused
	switch {
	case errors.As(err, &refused):
		return a.refuse(conn, refused)
	case err != nil:
		a.o.Log.Warn().Err(err).Msg("command of a client failed")
		_ = conn.SetWriteDeadline(time.Now().Add(dialLimit))
		return gate.Write(conn, gate.Refused{Code: gate.RefusedUnreachable, Message: err.Error()})
	}
	_ = conn.SetWriteDeadline(time.Now().Add(dialLimit))
	return gate.Write(conn, gate.Ended{Code: code})
}

// run runs the command of a request, and returns its exit code.
func (a *agent) run(ctx context.Context, r *gate.Run, p *printer) (exitCode int, err error) {
	if err := r.Check(); err != nil {
		return 0, &gate.Refused{Code: gate.RefusedInvalid, Message: err.Error()}
	}
	select {
	case a.commands <- struct{}{}:
		defer func() { <-a.commands }()
	default:
		return 0, &gate.Refused{Code: gate.RefusedBusy, Message: fmt.Sprintf("%d commands of clients run on the host; try again", maxCommands)}
	}
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	exitCode, err = a.o.Run(ctx, r.Args, p.writer(false), p.writer(true))
	if err == nil {
		a.o.Log.Info().Str("command", r.Args[0]).Int(logging.ExitCode, exitCode).Msg("command of a client has ended")
	}
	return exitCode, err
}

// A printer sends the output of a command to its client. If the client does not receive it, the output is
// dropped from then on, so that the command does not wait.
type printer struct {
	conn net.Conn

	mu     sync.Mutex
	isLost bool
}

// writer returns the writer for one of the two outputs of the command.
func (p *printer) writer(isStderr bool) io.Writer {
	return writerFunc(func(b []byte) {
		for len(b) > 0 {
			n := min(len(b), gate.MaxPrinted)
			m := gate.Printed{Stdout: b[:n]}
			if isStderr {
				m = gate.Printed{Stderr: b[:n]}
			}
			p.send(m)
			b = b[n:]
		}
	})
}

func (p *printer) send(m gate.Printed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isLost {
		return
	}
	_ = p.conn.SetWriteDeadline(time.Now().Add(printLimit))
	p.isLost = gate.Write(p.conn, m) != nil
}

// A writerFunc is a writer that accepts everything.
type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
