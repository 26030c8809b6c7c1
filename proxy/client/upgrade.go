package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
)

// UpgradeHost asks the agent of the host in o to replace the programs of the host, and returns the result. It
// calls step for each step of the work. The agent continues if UpgradeHost returns an error; the same request
// may be made again, and its result is then that of the work.
//
// Errors: *protocol.Error with unauthorized or invalid_argument if the agent or a gate refuses the request,
// and errors that match ErrUnknownHost; a further try would meet them again. *protocol.Error with busy if the agent
// does the work of another request, which ends by itself.
func UpgradeHost(ctx context.Context, o GateOptions, m gate.Upgrade, step func(gate.UpgradeStep)) (result gate.Upgraded, err error) {
	conn, end, err := enterAgent(ctx, o)
	if err != nil {
		return result, err
	}
	defer end()
	_ = conn.SetWriteDeadline(time.Now().Add(gateAnswer))
	if err := gate.Write(conn, m); err != nil {
		return result, failed(ErrConnect, err)
	}
	for {
		got, err := gate.Read(conn, gate.MaxFirst) // the probes of the connection notice the loss of the host
		if ctx.Err() != nil {
			return result, ctx.Err()
		}
		if protocol.CodeOf(err) == protocol.CodeUnsupported { // the proxy has answered, because a program did not know the field agent
			return result, protocol.Errorf(protocol.CodeInvalidArgument, "the agent of the host, or a gate, is too old to upgrade the host; upgrade it there, and start proxy join again")
		}
		var refused *gate.Refused
		if errors.As(err, &refused) && refused.Code == gate.RefusedBusy {
			return result, protocol.Errorf(protocol.CodeBusy, "%s", refused.Message)
		}
		if err != nil {
			return result, failed(ErrConnect, gateError(err))
		}
		switch got := got.(type) {
		case *gate.UpgradeStep:
			step(*got)
		case *gate.Upgraded:
			return *got, nil
		default:
			return result, failed(ErrDecode, fmt.Errorf("the agent answers upgrade with %s", got.MessageType()))
		}
	}
}
