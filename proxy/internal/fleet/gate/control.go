package gate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"holdfast/proxy/internal/fleet/credential"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/proxy/internal/metrics"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
)

// ControlSocket is the name of the socket on which a gate takes the commands of its user.
const ControlSocket = "gate.sock"

const (
	maxControl   = 512             // bytes of a line
	controlLimit = 5 * time.Second // for a line, and for its answer
)

// A Control accepts connections of the gate's user.
type Control interface {
	Accept() (*net.UnixConn, socket.Peer, error)
	Close() error
}

// The commands. A command is a line COMMAND or COMMAND NAME, and the answer is a line "ok", "ok RESULT",
// "unknown" or "error TEXT".
const (
	controlRevoke = "revoke"             // a host
	controlForget = "forget"             // the address of another gate
	controlRenew  = "renew-client-token" // without a name
	controlBus    = "bus"                // without a name; the answer is a password, and then the connection is one of the bus
	controlTicket = "ticket"             // without a name
	controlStatus = "status"             // without a name; the answer contains a metrics.Gate as JSON
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
		g.wg.Go(func() {
			g.answerControl(conn)
			_ = conn.Close()
		})
	}
}

func (g *Gate) answerControl(conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(controlLimit)) // not for the answer, before which the work may take longer
	line, err := bufio.NewReader(io.LimitReader(conn, maxControl)).ReadString('\n')
	command, name, _ := strings.Cut(strings.TrimSpace(line), " ")
	isKnown, result := false, ""
	switch {
	case err != nil:
	case command == controlBus:
		g.connectSuccessor(conn)
		return
	case command == controlRevoke:
		isKnown, err = g.revoke(name, "host revoked")
	case command == controlForget:
		isKnown, err = g.forget(name)
	case command == controlRenew:
		isKnown, err = true, g.renewClientToken()
	case command == controlTicket:
		isKnown = true
		result, err = g.issueTicket()
	case command == controlStatus:
		isKnown = true
		var status []byte
		status, err = json.Marshal(g.metrics())
		result = string(status)
	default:
		err = errors.New("the command is unknown")
	}
	answer := "unknown"
	switch {
	case err != nil:
		answer = "error " + err.Error()
	case isKnown:
		answer = strings.TrimSpace("ok " + result)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(controlLimit))
	_, _ = fmt.Fprintln(conn, answer) // the command may have been interrupted
}

// forget removes the address of another gate. It reports whether there was one.
func (g *Gate) forget(address string) (bool, error) {
	if address == g.address {
		return false, errors.New("this gate runs, and would add its address again; forget it at another gate after its end")
	}
	changed, err := g.change(func(now time.Time) (record.Members, error) { return g.store.RemoveGate(address, now) })
	if changed.IsEmpty() {
		return false, err
	}
	g.log.Info().Bool(logging.Security, true).Str("gate", address).Msg("gate removed")
	return true, err
}

// Revoke removes a host from the gate with the control socket path. If no gate runs there, Revoke
// removes the host from the store. It reports whether the host had joined.
func Revoke(ctx context.Context, store *credential.Store, path, name string) (bool, error) {
	return command(ctx, path, controlRevoke+" "+name, func() (record.Members, error) { return store.Remove(name, time.Now()) })
}

// Forget removes the address of a gate from the gate with the control socket path. If no gate runs
// there, Forget removes the address from the store. It reports whether there was one.
func Forget(ctx context.Context, store *credential.Store, path, address string) (bool, error) {
	return command(ctx, path, controlForget+" "+address, func() (record.Members, error) { return store.RemoveGate(address, time.Now()) })
}

// RenewClientToken lets the gate with the control socket path make a new token of clients, and close the
// connections that came with the one before. If no gate runs there, it makes the token in the store. The
// other gates learn the token when they are connected.
func RenewClientToken(ctx context.Context, store *credential.Store, path string) error {
	_, err := command(ctx, path, controlRenew, func() (record.Members, error) { return store.NewClientToken(time.Now()) })
	return err
}

// Ticket returns a ticket with which one browser can sign in at the gate with the control socket path, once,
// within 30 s. The error matches socket.IsAbsent if no gate runs there.
func Ticket(ctx context.Context, path string) (string, error) { return ask(ctx, path, controlTicket) }

// Status returns the statistics of the gate with the control socket path. The error matches socket.IsAbsent if
// no gate runs there.
func Status(ctx context.Context, path string) (m metrics.Gate, err error) {
	text, err := ask(ctx, path, controlStatus)
	if err == nil {
		if err = json.Unmarshal([]byte(text), &m); err != nil {
			err = fmt.Errorf("status of the gate: %w", err)
		}
	}
	return m, err
}

// ask sends a line to the gate with the control socket path, and returns the result in the answer.
func ask(ctx context.Context, path, line string) (string, error) {
	answer, err := send(ctx, path, line)
	result, isOK := strings.CutPrefix(answer, "ok ")
	if err == nil && !isOK {
		err = fmt.Errorf("the gate answers %.40q to %s", answer, line)
	}
	return result, err
}

// command sends a line to the gate with the control socket path, and reports whether the answer is "ok".
// If no gate runs there, it calls offline, and reports whether that has changed something.
func command(ctx context.Context, path, line string, offline func() (record.Members, error)) (bool, error) {
	answer, err := send(ctx, path, line)
	if socket.IsAbsent(err) {
		changed, err := offline()
		return !changed.IsEmpty(), err
	}
	return answer == "ok", err
}

// errMoved is the error for a change that has reached a gate after its successor began to serve.
var errMoved = errors.New("the gate is being replaced; try again")

// movedPause is the pause until send tries again, and movedTime is how long it tries.
const (
	movedPause = 20 * time.Millisecond
	movedTime  = 5 * time.Second
)

// send sends a line to the gate with the control socket path, and returns the answer unless it is an error. If the
// gate is being replaced, send asks the successor, which accepts at the same path.
func send(ctx context.Context, path, line string) (answer string, err error) {
	for limit := time.Now().Add(movedTime); ; {
		answer, err = sendOnce(ctx, path, line)
		if err == nil || err.Error() != errMoved.Error() || time.Now().After(limit) {
			return answer, err
		}
		select {
		case <-time.After(movedPause):
		case <-ctx.Done():
			return "", err
		}
	}
}

func sendOnce(ctx context.Context, path, line string) (string, error) {
	conn, _, err := socket.DialOwner(ctx, path)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * controlLimit))
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the gate has not answered: %w", err)
	}
	answer = strings.TrimSpace(answer)
	if text, isError := strings.CutPrefix(answer, "error "); isError {
		return "", errors.New(text)
	}
	return answer, nil
}
