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

// control answers commands until the socket is closed. A command is a line "revoke NAME", and the answer
// is a line "ok", "unknown" or "error TEXT".
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
	name, isRevoke := strings.CutPrefix(strings.TrimSpace(line), "revoke ")
	if err != nil || !isRevoke {
		_, _ = fmt.Fprintln(conn, "error the command is unknown")
		return
	}
	answer := "unknown"
	switch hadJoined, err := g.revoke(name, "host revoked"); {
	case err != nil:
		answer = "error " + err.Error()
	case hadJoined:
		answer = "ok"
	}
	_, _ = fmt.Fprintln(conn, answer) // the command may have been interrupted
}

// Revoke removes a host from the gate whose control socket is at path. If no gate runs there, Revoke
// removes the host from the store. It reports whether the host had joined.
func Revoke(ctx context.Context, store *credential.Store, path, name string) (bool, error) {
	conn, _, err := socket.Dial(ctx, path)
	if socket.IsAbsent(err) {
		return store.Remove(name)
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * controlLimit))
	if _, err := fmt.Fprintf(conn, "revoke %s\n", name); err != nil {
		return false, err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return false, fmt.Errorf("the gate has not answered: %w", err)
	}
	if text, isError := strings.CutPrefix(strings.TrimSpace(line), "error "); isError {
		return false, errors.New(text)
	}
	return strings.TrimSpace(line) == "ok", nil
}
