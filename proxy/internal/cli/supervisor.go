package cli

import (
	"context"
	"os"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/config"
	"holdfast/shared/keeperstate"
	"holdfast/shared/link"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// dialSupervisor connects to the supervisor without a proxy, because a proxy may not run or may not
// reach the supervisor. The caller must close the link.
func dialSupervisor(ctx context.Context, dirs config.Dirs, secret, name string) (*link.Conn, error) {
	if err := keeperstate.CheckHeld(dirs.Runtime); err != nil { // the keeper holds the socket, so a connection would get no answer
		return nil, protocol.Errorf(protocol.CodeSupervisorUnreachable, "%v", err)
	}
	nc, _, err := socket.Dial(ctx, dirs.Socket(config.SupervisorSocket))
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })() // this also ends a hello that gets no answer
	conn, _, _, err := link.Dial(nc, wire.Hello{
		Protocol: protocol.Supported(), PID: os.Getpid(), Version: version.String(), Name: name, Secret: secret,
	}, zerolog.Nop())
	if err != nil {
		return nil, late(ctx, err)
	}
	return conn, nil
}

// late returns the error of ctx if its time is over, and err otherwise, or if the process has answered with it.
func late(ctx context.Context, err error) error {
	if ctx.Err() != nil && protocol.CodeOf(err) != protocol.CodePolicyUnavailable {
		return ctx.Err()
	}
	return err
}
