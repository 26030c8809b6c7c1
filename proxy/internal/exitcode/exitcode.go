// Package exitcode chooses the code with which a command ends, from the error that ended it.
//
// Invariant: every error has a code other than 0. The code of the same failure is the same in all
// commands, because scripts rely on it.
//
// Not here: the code of a session's child, which attach, run and wait end with, and the codes that
// doctor and search define for their results.
package exitcode

import (
	"context"
	"errors"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/config"
	"holdfast/shared/socket"
)

// The codes are those of sysexits(3), and for a time-out that of timeout(1).
const (
	Usage       = 64
	NoInput     = 66 // there is no such session
	Unavailable = 69 // there is no proxy or no supervisor
	Software    = 70
	OSError     = 71 // a command could not be started
	CantCreate  = 73 // the id is in use
	TempFail    = 75 // the command may succeed later
	Protocol    = 76
	NoPerm      = 77
	Config      = 78 // a setting is invalid
	Timeout     = 124
)

// byCode has the exit code for each code of the protocol; other codes mean Software.
var byCode = map[protocol.Code]int{
	protocol.CodeInvalidArgument:       Usage,
	protocol.CodeSessionNotFound:       NoInput,
	protocol.CodeInstanceMismatch:      NoInput,
	protocol.CodeSessionExited:         NoInput,
	protocol.CodeSupervisorUnreachable: Unavailable,
	protocol.CodeUnsupportedOS:         Unavailable,
	protocol.CodeSpawnFailed:           OSError,
	protocol.CodeSessionExists:         CantCreate,
	protocol.CodeSessionRunning:        TempFail,
	protocol.CodeAlreadyAttached:       TempFail,
	protocol.CodeLimitExceeded:         TempFail,
	protocol.CodeClosed:                TempFail,
	protocol.CodeBusy:                  TempFail,
	protocol.CodeProtocolMismatch:      Protocol,
	protocol.CodeUpgradeRefused:        Protocol,
	protocol.CodeUpgrading:             TempFail,
	protocol.CodePolicyUnavailable:     TempFail,
	protocol.CodeUnauthorized:          NoPerm,
	protocol.CodePermissionDenied:      NoPerm,
	protocol.CodeTimeout:               Timeout,
}

// ByCode returns the exit code for a code of the protocol, or 0 if that code has none of its own.
func ByCode(code protocol.Code) int { return byCode[code] }

// An Error ends the process with an exit code, and with a message unless Text is empty.
type Error struct {
	Code int
	Text string

	cause error // may be nil
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the error that With was called with.
func (e *Error) Unwrap() error { return e.cause }

// New returns an error with an exit code and a message. If text is empty, no message is printed.
func New(code int, text string) error { return &Error{Code: code, Text: text} }

// With gives err an exit code. errors.As and errors.Is still find err.
func With(code int, err error) error { return &Error{code, err.Error(), err} }

// WrongUsage returns an error with the text of err and the exit code for wrong usage.
func WrongUsage(err error) error { return New(Usage, err.Error()) }

// Text returns the message for an error, which may be empty.
func Text(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Text
	}
	return err.Error()
}

// Of returns the exit code for an error, and 0 for nil.
func Of(err error) int {
	var exit *Error
	var e *protocol.Error
	var inUse *socket.InUseError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &e):
		if code := byCode[e.Code]; code != 0 {
			return code
		}
	case errors.Is(err, config.ErrInvalid), errors.Is(err, socket.ErrUnsafeDir):
		return Config
	case errors.As(err, &inUse):
		return TempFail
	case errors.Is(err, client.ErrConnect):
		return Unavailable
	case errors.Is(err, client.ErrDecode):
		return Protocol
	case errors.Is(err, client.ErrStolen), errors.Is(err, client.ErrIO):
		return TempFail
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	return Software
}
