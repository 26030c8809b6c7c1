// Package exitcode chooses the code with which a command ends, from the error that ended it.
//
// Invariant: every error has a code other than 0. The code of the same failure is the same in all
// commands, because scripts rely on it.
//
// Not here: the codes themselves (package sysexits), the code of a session's child, which attach,
// run and wait end with, and the codes that doctor and search define for their results.
package exitcode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"syscall"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/config"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
)

// byCode has the exit code for each code of the protocol; other codes mean sysexits.Software.
var byCode = map[protocol.Code]int{
	protocol.CodeInvalidArgument:       sysexits.Usage,
	protocol.CodeSessionNotFound:       sysexits.NoInput,
	protocol.CodeInstanceMismatch:      sysexits.NoInput,
	protocol.CodeSessionExited:         sysexits.NoInput,
	protocol.CodeNotStored:             sysexits.NoInput,
	protocol.CodeSupervisorUnreachable: sysexits.Unavailable,
	protocol.CodeUnsupportedOS:         sysexits.Unavailable,
	protocol.CodeUnsupported:           sysexits.Unavailable,
	protocol.CodeSpawnFailed:           sysexits.OSError,
	protocol.CodeSessionExists:         sysexits.CantCreate,
	protocol.CodeSessionRunning:        sysexits.TempFail,
	protocol.CodeAlreadyAttached:       sysexits.TempFail,
	protocol.CodeLimitExceeded:         sysexits.TempFail,
	protocol.CodeClosed:                sysexits.TempFail,
	protocol.CodeBusy:                  sysexits.TempFail,
	protocol.CodeProtocolMismatch:      sysexits.Protocol,
	protocol.CodeUpgradeRefused:        sysexits.Protocol,
	protocol.CodeUpgrading:             sysexits.TempFail,
	protocol.CodePolicyUnavailable:     sysexits.TempFail,
	protocol.CodeUnauthorized:          sysexits.NoPerm,
	protocol.CodePermissionDenied:      sysexits.NoPerm,
	protocol.CodeTimeout:               sysexits.Timeout,
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

// Newf returns an error with an exit code and a message that fmt.Sprintf formats.
func Newf(code int, format string, args ...any) error { return New(code, fmt.Sprintf(format, args...)) }

// With gives err an exit code. errors.As and errors.Is still find err.
func With(code int, err error) error { return &Error{code, err.Error(), err} }

// WrongUsage returns an error with the text of err and the exit code for wrong usage.
func WrongUsage(err error) error { return New(sysexits.Usage, err.Error()) }

// WrongUsagef returns an error with a message that fmt.Sprintf formats, and the exit code for wrong usage.
func WrongUsagef(format string, args ...any) error { return Newf(sysexits.Usage, format, args...) }

// typeOfJoin is the type of the errors of errors.Join.
var typeOfJoin = reflect.TypeOf(errors.Join(errors.ErrUnsupported))

// Text returns the message for an error, which may be empty. It has a line for each error that was joined.
func Text(err error) string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && reflect.TypeOf(err) == typeOfJoin {
		var texts []string
		for _, err := range joined.Unwrap() {
			if text := Text(err); text != "" {
				texts = append(texts, text)
			}
		}
		return strings.Join(texts, "\n")
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Text
	}
	var failed *fs.PathError
	if isUnwritten(err) && errors.As(err, &failed) && failed.Path == os.Stdout.Name() {
		return fmt.Sprintf("standard output cannot be written: %v; the output is not complete", failed.Err)
	}
	return err.Error()
}

// Of returns the exit code for an error, and 0 for nil.
func Of(err error) int {
	var exit *Error
	var e *protocol.Error
	var inUse *socket.InUseError
	var call *os.SyscallError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &e):
		if e.Code == protocol.CodeLimitExceeded && e.Cause == protocol.CodeInvalidArgument {
			return sysexits.Usage // the request is too large, so it does not succeed later
		}
		if code := byCode[e.Code]; code != 0 {
			return code
		}
	case isUnwritten(err), isDiskUsedUp(err):
		return sysexits.IOErr
	case errors.As(err, &call) && call.Syscall == "getwd": // the working directory was removed
		return sysexits.OSError
	case errors.Is(err, config.ErrInvalid), errors.Is(err, socket.ErrUnsafeDir):
		return sysexits.Config
	case errors.As(err, &inUse):
		return sysexits.TempFail
	case errors.Is(err, client.ErrConnect):
		return sysexits.Unavailable
	case errors.Is(err, client.ErrDecode):
		return sysexits.Protocol
	case errors.Is(err, client.ErrStolen), errors.Is(err, client.ErrIO):
		return sysexits.TempFail
	case errors.Is(err, context.DeadlineExceeded):
		return sysexits.Timeout
	}
	return sysexits.Software
}

// isUnwritten reports whether an output of the command could not be written, because the disk is full, for
// example. A reader that has closed a pipe did not want the output.
func isUnwritten(err error) bool {
	var failed *fs.PathError
	return errors.As(err, &failed) && failed.Op == "write" && !errors.Is(err, syscall.EPIPE)
}

// isDiskUsedUp reports whether a disk, or this user's share of it, has no room for a file, or may not be written to.
func isDiskUsedUp(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS)
}

// Unsupported returns an error for an operation that needs Unix sockets, with the operation to use
// instead.
func Unsupported(what, instead string) error {
	return New(sysexits.Unavailable, fmt.Sprintf("%s: %s needs a Unix socket, which this system does not have; %s", protocol.CodeUnsupportedOS, what, instead))
}
