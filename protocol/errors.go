package protocol

import (
	"errors"
	"fmt"
	"io/fs"
)

// A Code identifies a failure for programs. A code never changes its meaning. SPEC.md lists
// all codes.
type Code string

// The codes of version 1.
const (
	CodeAlreadyAttached       Code = "already_attached"       // another client has attached to the session exclusively
	CodeBadFrame              Code = "bad_frame"              // the bytes are not a frame, or the payload is not a message
	CodeBusy                  Code = "busy"                   // the session has not answered in time; the request had no effect
	CodeClosed                Code = "closed"                 // the process is shutting down and accepts no new sessions or attachments
	CodeExitedEarly           Code = "exited_early"           // the child ended within the check after its start
	CodeFrameTooLarge         Code = "frame_too_large"        // a frame exceeds the limit
	CodeHelloRequired         Code = "hello_required"         // another message arrived before hello
	CodeInputFull             Code = "input_full"             // the input queue is full, or held by another writer; Offset is the accepted input offset
	CodeInputGap              Code = "input_gap"              // the input begins after the accepted input; Offset is where it must continue
	CodeInstanceMismatch      Code = "instance_mismatch"      // the session has another instance, because it was started again
	CodeInternal              Code = "internal"               // an error of Holdfast itself
	CodeInvalidArgument       Code = "invalid_argument"       // a field has an invalid value
	CodeLimitExceeded         Code = "limit_exceeded"         // a limit is exceeded
	CodeLineTooLong           Code = "line_too_long"          // the terminal cuts off a line of the input; Offset is the accepted input offset
	CodeNotAttached           Code = "not_attached"           // the connection has no such attachment
	CodeNotFound              Code = "not_found"              // cause: the program or directory does not exist
	CodeNotStored             Code = "not_stored"             // the output at this moment is not kept; the message tells which range is
	CodePermissionDenied      Code = "permission_denied"      // the request is not allowed, or a read-only attachment sent input
	CodePolicyUnavailable     Code = "policy_unavailable"     // the policy does not answer, so the request is refused for now
	CodeProtocolMismatch      Code = "protocol_mismatch"      // the peers have no common version
	CodePTYExhausted          Code = "pty_exhausted"          // the system has no free PTY
	CodeSessionExists         Code = "session_exists"         // the session id is in use
	CodeSessionExited         Code = "session_exited"         // the session has ended; Exit is its exit record
	CodeSessionNotFound       Code = "session_not_found"      // no session has this id
	CodeSessionRunning        Code = "session_running"        // the session has not ended yet
	CodeSpawnFailed           Code = "spawn_failed"           // the child could not be started; Cause is the reason
	CodeSuperseded            Code = "superseded"             // a later attempt of the same writer has attached
	CodeSupervisorUnreachable Code = "supervisor_unreachable" // the link is down; it is unknown whether sessions live
	CodeTaskNotFound          Code = "task_not_found"         // the policy knows no such task
	CodeTimeout               Code = "timeout"                // the time limit of the request has passed
	CodeUnauthorized          Code = "unauthorized"           // the user, token, ticket or secret is wrong
	CodeUnsupported           Code = "unsupported"            // the receiver does not know the message type
	CodeUnsupportedOS         Code = "unsupported_os"         // the operating system has no terminals
	CodeUpgradeRefused        Code = "upgrade_refused"        // the new program cannot load the present state; nothing has changed
	CodeUpgrading             Code = "upgrading"              // another program is taking over; the request had no effect and should be sent to that program
	CodeWorkspaceMismatch     Code = "workspace_mismatch"     // the task belongs to another workspace
)

// Codes returns all codes in alphabetical order.
func Codes() []Code {
	return []Code{
		CodeAlreadyAttached, CodeBadFrame, CodeBusy, CodeClosed, CodeExitedEarly, CodeFrameTooLarge,
		CodeHelloRequired, CodeInputFull, CodeInputGap, CodeInstanceMismatch, CodeInternal,
		CodeInvalidArgument, CodeLimitExceeded, CodeLineTooLong, CodeNotAttached, CodeNotFound, CodeNotStored,
		CodePermissionDenied, CodePolicyUnavailable, CodeProtocolMismatch, CodePTYExhausted, CodeSessionExists,
		CodeSessionExited, CodeSessionNotFound, CodeSessionRunning, CodeSpawnFailed,
		CodeSuperseded, CodeSupervisorUnreachable, CodeTaskNotFound, CodeTimeout, CodeUnauthorized,
		CodeUnsupported, CodeUnsupportedOS, CodeUpgradeRefused, CodeUpgrading, CodeWorkspaceMismatch,
	}
}

// An Error is a failure that a peer can handle. Code is for programs and stable. Message is for
// people and may change. The other fields are set in the cases that their comments name.
type Error struct {
	Code         Code   `json:"code"`
	Message      string `json:"message"`
	Cause        Code   `json:"cause,omitempty"`          // for spawn_failed: the reason; for limit_exceeded: invalid_argument if the request itself is too large
	Retryable    bool   `json:"retryable,omitempty"`      // the same request may succeed later
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"` // the request should not be repeated before so many milliseconds

	Exit   *ExitRecord   `json:"exit,omitempty"`   // for exited_early and session_exited
	Offset *uint64       `json:"offset,omitempty"` // for input_full, input_gap and line_too_long: the accepted input offset
	Local  *VersionRange `json:"local,omitempty"`  // for protocol_mismatch: versions of the side that reports the error
	Remote *VersionRange `json:"remote,omitempty"` // for protocol_mismatch: versions of its peer
}

// Errors for errors.Is, which compares codes and never texts.
var (
	ErrAlreadyAttached       = &Error{Code: CodeAlreadyAttached}
	ErrClosed                = &Error{Code: CodeClosed}
	ErrExitedEarly           = &Error{Code: CodeExitedEarly}
	ErrSessionExists         = &Error{Code: CodeSessionExists}
	ErrSessionExited         = &Error{Code: CodeSessionExited}
	ErrSessionNotFound       = &Error{Code: CodeSessionNotFound}
	ErrSpawnFailed           = &Error{Code: CodeSpawnFailed}
	ErrSupervisorUnreachable = &Error{Code: CodeSupervisorUnreachable}
	ErrTimeout               = &Error{Code: CodeTimeout}
	ErrUnauthorized          = &Error{Code: CodeUnauthorized}
	ErrUnsupportedOS         = &Error{Code: CodeUnsupportedOS}
)

// Errorf returns an Error with a code and a message, which fmt.Sprintf formats.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// TooLarge returns the limit_exceeded of a request that is itself too large, so that it fails whenever it is sent.
func TooLarge(format string, args ...any) *Error {
	return &Error{Code: CodeLimitExceeded, Cause: CodeInvalidArgument, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Message
}

// Is compares codes, so that errors.Is has the same result on both sides of a wire. An Error
// also matches its cause: if a program does not exist, the error matches spawn_failed,
// not_found and fs.ErrNotExist.
func (e *Error) Is(target error) bool {
	if t, ok := target.(*Error); ok {
		return t.Code == e.Code || (e.Cause != "" && t.Code == e.Cause)
	}
	switch target {
	case fs.ErrNotExist:
		return e.Cause == CodeNotFound
	case fs.ErrPermission:
		return e.Cause == CodePermissionDenied
	}
	return false
}

// AsError returns the Error in err's chain. If there is none, it returns an Error with the code
// internal and the text of err. It returns nil if err is nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}

// CodeOf returns err's code: internal if err contains no Error, and "" if err is nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}

// ExitedEarly returns the error for a spawn if the child ended within the check after its start.
func ExitedEarly(id SessionID, exit *ExitRecord) *Error {
	how := fmt.Sprintf("with code %d", exit.ExitCode)
	if exit.Signal != "" {
		how = "by " + exit.Signal
	}
	return &Error{Code: CodeExitedEarly, Message: fmt.Sprintf("session %s exited %s right after its start", id, how), Exit: exit}
}
