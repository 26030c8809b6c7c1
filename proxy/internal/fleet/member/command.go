package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/logging"
)

// Limits of the commands that clients of the gate run on this host.
const (
	maxCommands  = 4                // that run at the same time
	commandLimit = 10 * time.Minute // for one command
	printLimit   = 10 * time.Second // for a client to receive a piece of output
)

// command runs the command of the client that has a ticket at the gate of an address. The command continues
// if the client is lost, because a handoff or an upgrade must not stop halfway.
func (a *agent) command(ctx context.Context, address string, m record.Dial) {
	conn, err := dialGate(ctx, address, a.state.Fingerprint)
	if err != nil {
		a.o.Log.Warn().Err(err).Msg("client not reached")
		return
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(dialLimit)) // if it fails, the next call fails, too
	if err := gate.Write(conn, gate.Arrive{Ticket: m.Ticket}); err != nil {
		return
	}
	request, err := gate.Read(conn, gate.MaxFirst)
	if err != nil {
		return
	}
	var answer protocol.Message
	code, err := a.run(ctx, request, &printer{conn: conn})
	var refused *gate.Refused
	switch {
	case errors.As(err, &refused):
		a.o.Log.Warn().Bool(logging.Security, true).Str(logging.Code, string(refused.Code)).Str("why", refused.Message).Msg("command of a client refused")
		answer = *refused
	case err != nil:
		a.o.Log.Warn().Err(err).Msg("command of a client failed")
		answer = gate.Refused{Code: gate.RefusedUnreachable, Message: err.Error()}
	default:
		answer = gate.Ended{Code: code}
	}
	_ = conn.SetWriteDeadline(time.Now().Add(dialLimit))
	_ = gate.Write(conn, answer) // the client may be gone
}

// run runs the command of a request, and returns its exit code.
func (a *agent) run(ctx context.Context, request protocol.Message, p *printer) (exitCode int, err error) {
	r, ok := request.(*gate.Run)
	if !ok {
		return 0, &gate.Refused{Code: gate.RefusedInvalid, Message: fmt.Sprintf("a connection for a command cannot begin with %s", request.MessageType())}
	}
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
