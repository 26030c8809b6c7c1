package main

import (
	"context"
	"errors"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/config"
	"holdfast/shared/socket"
)

// Exit codes: a child's own where there is one, else those of sysexits(3) and,
// for a timeout, that of timeout(1).
const (
	exitUsage       = 64
	exitNoInput     = 66 // no such session
	exitUnavailable = 69 // no proxy, no supervisor
	exitSoftware    = 70
	exitOSError     = 71 // it could not be started
	exitCantCreate  = 73 // the id is taken
	exitTempFail    = 75 // later, perhaps
	exitProtocol    = 76
	exitNoPerm      = 77
	exitConfig      = 78 // a setting is wrong
	exitTimeout     = 124
)

var exitCodes = map[protocol.Code]int{
	protocol.CodeInvalidArgument:       exitUsage,
	protocol.CodeSessionNotFound:       exitNoInput,
	protocol.CodeInstanceMismatch:      exitNoInput,
	protocol.CodeSessionExited:         exitNoInput,
	protocol.CodeSupervisorUnreachable: exitUnavailable,
	protocol.CodeUnsupportedOS:         exitUnavailable,
	protocol.CodeSpawnFailed:           exitOSError,
	protocol.CodeSessionExists:         exitCantCreate,
	protocol.CodeSessionRunning:        exitTempFail,
	protocol.CodeAlreadyAttached:       exitTempFail,
	protocol.CodeLimitExceeded:         exitTempFail,
	protocol.CodeClosed:                exitTempFail,
	protocol.CodeBusy:                  exitTempFail,
	protocol.CodeProtocolMismatch:      exitProtocol,
	protocol.CodeUpgradeRefused:        exitProtocol,
	protocol.CodeUpgrading:             exitTempFail,
	protocol.CodePolicyUnavailable:     exitTempFail,
	protocol.CodeUnauthorized:          exitNoPerm,
	protocol.CodePermissionDenied:      exitNoPerm,
	protocol.CodeTimeout:               exitTimeout,
}

func exitCode(err error) int {
	var exit *exitError
	var e *protocol.Error
	var inUse *socket.InUseError
	var policy *policyError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &policy):
		return exitConfig
	case errors.As(err, &e):
		if code := exitCodes[e.Code]; code != 0 {
			return code
		}
	case errors.Is(err, config.ErrInvalid), errors.Is(err, socket.ErrUnsafeDir):
		return exitConfig
	case errors.As(err, &inUse):
		return exitTempFail
	case errors.Is(err, client.ErrConnect):
		return exitUnavailable
	case errors.Is(err, client.ErrDecode):
		return exitProtocol
	case errors.Is(err, client.ErrStolen), errors.Is(err, client.ErrIO):
		return exitTempFail
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	}
	return exitSoftware
}
