package gate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"holdfast/proxy/internal/fleet/credential"
	"holdfast/shared/socket"
)

// ControlSocket is the name of the socket on which a gate takes the commands of its user.
const ControlSocket = "gate.sock"

const (
	maxControl   = 128 // bytes of a line
	controlLimit = 5 * time.Second
)

// A Control accepts connections of the gate's user.
type Control interface {
	Accept() (*net.UnixConn, socket.Peer, error)
	Close() error
}

// The commands. A command is a line, "revoke NAME" or "renew-client-token", and the answer is a line "ok",
// "unknown" or "error TEXT".
const (
	controlRevoke = "revoke"
	controlRenew  = "renew-client-token"
)

// control answers commands until the socket is closed.
func (g *Gate) control(l Control) {
	for {
		conn, _, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // a peer of another user, or no descriptor is free
			continue
		}
		g.answerControl(conn)
		_ = conn.Close()
	}
}

func (g *Gate) answerControl(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(controlLimit))
	line, err := bufio.NewReader(io.LimitReader(conn, maxControl)).ReadString('\n')
	command, name, _ := strings.Cut(strings.TrimSpace(line), " ")
	isKnown := false
	switch {
	case err != nil:
	case command == controlRevoke:
		isKnown, err = g.revoke(name, "host revoked")
	case command == controlRenew:
		isKnown, err = true, g.renewClientToken()
	default:
		err = errors.New("the command is unknown")
	}
	answer := "unknown"
	switch {
	case err != nil:
		answer = "error " + err.Error()
	case isKnown:
		answer = "ok"
	}
	_, _ = fmt.Fprintln(conn, answer) // the command may have been interrupted
}

// Revoke removes a host from the gate whose control socket is at path. If no gate runs there, Revoke
// removes the host from the store. It reports whether the host had joined.
func Revoke(ctx context.Context, store *credential.Store, path, name string) (bool, error) {
	return command(ctx, path, controlRevoke+" "+name, func() (bool, error) { return store.Remove(name) })
}

// RenewClientToken lets the gate whose control socket is at path make a new token of clients, and close the
// connections that came with the one before. If no gate runs there, it makes the token in the store.
func RenewClientToken(ctx context.Context, store *credential.Store, path string) error {
	_, err := command(ctx, path, controlRenew, func() (bool, error) { return true, store.NewClientToken() })
	return err
}

// command sends a line to the gate whose control socket is at path, and reports whether the answer is "ok".
// If no gate runs there, it calls offline.
func command(ctx context.Context, path, line string, offline func() (bool, error)) (bool, error) {
	conn, _, err := socket.Dial(ctx, path)
	if socket.IsAbsent(err) {
		return offline()
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * controlLimit))
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return false, fmt.Errorf("the gate has not answered: %w", err)
	}
	if text, isError := strings.CutPrefix(strings.TrimSpace(answer), "error "); isError {
		return false, errors.New(text)
	}
	return strings.TrimSpace(answer) == "ok", nil
}
