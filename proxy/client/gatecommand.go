package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
)

// RunOnHost runs a command of the program proxy on the host of a gate that o names, and returns its exit code
// when it has ended. args begins with one of gate.HostCommands. The output of the command is written to
// stdout and stderr.
//
// The error matches ErrUnknownHost if the host has not joined the gate, and ErrConnect if it cannot be
// reached. If the host refuses the command, it is a *protocol.Error: invalid_argument, permission_denied or
// busy. The error matches ErrIO if the connection was lost; the command then continues, and its exit code is
// unknown.
func RunOnHost(ctx context.Context, o GateOptions, args []string, stdout, stderr io.Writer) (exitCode int, err error) {
	run := gate.Run{Args: args}
	if err := run.Check(); err != nil {
		return 0, protocol.Errorf(protocol.CodeInvalidArgument, "%v", err)
	}
	conn, end, err := enterAgent(ctx, o)
	if err != nil {
		return 0, err
	}
	defer end()
	_ = conn.SetWriteDeadline(time.Now().Add(gateAnswer)) // if it fails, writing fails, too
	if err := gate.Write(conn, run); err != nil {
		return 0, failed(ErrIO, err)
	}
	for {
		m, err := gate.Read(conn, gate.MaxAnswer)
		var refused *gate.Refused
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case errors.As(err, &refused):
			return 0, commandError(refused)
		case err != nil:
			return 0, failed(ErrIO, fmt.Errorf("the connection with %s was lost, and the command continues there: %w", o.Host, err))
		}
		switch m := m.(type) {
		case *gate.Printed:
			_, errOut := stdout.Write(m.Stdout)
			_, errErr := stderr.Write(m.Stderr)
			if err := errors.Join(errOut, errErr); err != nil {
				return 0, err
			}
		case *gate.Ended:
			return m.Code, nil
		default:
			return 0, failed(ErrDecode, fmt.Errorf("host %s answers run with %s", o.Host, m.MessageType()))
		}
	}
}

// enterAgent opens a connection with the agent of the host in o. end closes it, and so does the end of ctx.
func enterAgent(ctx context.Context, o GateOptions) (conn net.Conn, end func(), err error) {
	err = reachGate(ctx, o, false, func(c net.Conn) error {
		conn = c
		_, err := askGate[*gate.Entered](ctx, c, gate.Enter{Token: o.Token, UserToken: o.UserToken, Host: o.Host, Agent: true})
		return err
	})
	if err != nil {
		return nil, nil, failed(ErrConnect, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, func() { stop(); _ = conn.Close() }, nil
}

// commandError returns the error of a client for a command that the host has refused.
func commandError(refused *gate.Refused) error {
	switch refused.Code {
	case gate.RefusedUnauthorized:
		return protocol.Errorf(protocol.CodePermissionDenied, "%s", refused.Message)
	case gate.RefusedInvalid:
		return protocol.Errorf(protocol.CodeInvalidArgument, "%s", refused.Message)
	case gate.RefusedBusy:
		return protocol.Errorf(protocol.CodeBusy, "%s", refused.Message)
	}
	return failed(ErrConnect, fmt.Errorf("gate: %s", refused.Message))
}
