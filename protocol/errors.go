package protocol

import (
	"errors"
	"fmt"
	"io/fs"
)

// A Code names a failure for programs. Codes are stable and never reused;
// SPEC.md lists them all.
type Code string

// The codes of version 1.
const (
	CodeAlreadyAttached       Code = "already_attached"       // someone holds the session exclusively
	CodeBadFrame              Code = "bad_frame"              // bytes that are no frame, or a payload that is no message
	CodeBusy                  Code = "busy"                   // the session does not answer in time; nothing was done
	CodeClosed                Code = "closed"                 // shutting down, opens nothing more
	CodeExitedEarly           Code = "exited_early"           // the child ended within the check after its start
	CodeFrameTooLarge         Code = "frame_too_large"        // a frame over the limit
	CodeHelloRequired         Code = "hello_required"         // a message before hello
	CodeInputFull             Code = "input_full"             // the input queue is full; Offset says how far it was taken
	CodeInputGap              Code = "input_gap"              // input beyond what was accepted; Offset says where to go on
	CodeInstanceMismatch      Code = "instance_mismatch"      // the id lives on, but in another life
	CodeInternal              Code = "internal"               // our fault
	CodeInvalidArgument       Code = "invalid_argument"       // a field that cannot be
	CodeLimitExceeded         Code = "limit_exceeded"         // one more than allowed
	CodeLineTooLong           Code = "line_too_long"          // the terminal cuts a line of the input; Offset says how far it was taken
	CodeNotAttached           Code = "not_attached"           // no such attachment on this connection
	CodeNotFound              Code = "not_found"              // cause: no such program or directory
	CodePermissionDenied      Code = "permission_denied"      // not allowed, or a read-only attachment that typed
	CodePolicyUnavailable     Code = "policy_unavailable"     // whoever decides this does not answer, so it is refused for now
	CodeProtocolMismatch      Code = "protocol_mismatch"      // no common version
	CodePTYExhausted          Code = "pty_exhausted"          // the system has no PTY left
	CodeSessionExists         Code = "session_exists"         // the id is taken
	CodeSessionExited         Code = "session_exited"         // it ended; Exit says how
	CodeSessionNotFound       Code = "session_not_found"      // nothing is known of this id
	CodeSessionRunning        Code = "session_running"        // it has not ended yet
	CodeSpawnFailed           Code = "spawn_failed"           // the child could not be started; Cause says why
	CodeSuperseded            Code = "superseded"             // a later attempt of the same writer has attached
	CodeSupervisorUnreachable Code = "supervisor_unreachable" // the link is down; whether sessions live is unknown
	CodeTaskNotFound          Code = "task_not_found"         // the policy knows no such task
	CodeTimeout               Code = "timeout"                // the time asked for has passed
	CodeUnauthorized          Code = "unauthorized"           // wrong user, token, ticket or secret
	CodeUnsupported           Code = "unsupported"            // a message type this side does not know
	CodeUnsupportedOS         Code = "unsupported_os"         // no terminals on this operating system
	CodeUpgradeRefused        Code = "upgrade_refused"        // the new program cannot go on with what is held; nothing has changed
	CodeUpgrading             Code = "upgrading"              // another program takes over right now; nothing was done, ask it
	CodeWorkspaceMismatch     Code = "workspace_mismatch"     // the task belongs to another workspace
)

// Codes returns every code, in alphabetical order.
func Codes() []Code {
	return []Code{
		CodeAlreadyAttached, CodeBadFrame, CodeBusy, CodeClosed, CodeExitedEarly, CodeFrameTooLarge,
		CodeHelloRequired, CodeInputFull, CodeInputGap, CodeInstanceMismatch, CodeInternal,
		CodeInvalidArgument, CodeLimitExceeded, CodeLineTooLong, CodeNotAttached, CodeNotFound,
		CodePermissionDenied, CodePolicyUnavailable, CodeProtocolMismatch, CodePTYExhausted, CodeSessionExists,
		CodeSessionExited, CodeSessionNotFound, CodeSessionRunning, CodeSpawnFailed,
		CodeSuperseded, CodeSupervisorUnreachable, CodeTaskNotFound, CodeTimeout, CodeUnauthorized,
		CodeUnsupported, CodeUnsupportedOS, CodeUpgradeRefused, CodeUpgrading, CodeWorkspaceMismatch,
	}
}

// An Error is a failure a peer can act on. Code is for programs and stable,
// Message is for people and free to change. The other fields are set where
// their comment says so.
type Error struct {
	Code         Code   `json:"code"`
	Message      string `json:"message"`
	Cause        Code   `json:"cause,omitempty"`          // of spawn_failed
	Retryable    bool   `json:"retryable,omitempty"`      // the same request may succeed later
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"` // not before, in milliseconds

	Exit   *ExitRecord   `json:"exit,omitempty"`   // of exited_early and session_exited
	Offset *uint64       `json:"offset,omitempty"` // of input_full, input_gap and line_too_long: input accepted so far
	Local  *VersionRange `json:"local,omitempty"`  // of protocol_mismatch: the side that speaks
	Remote *VersionRange `json:"remote,omitempty"` // of protocol_mismatch: the side spoken to
}

// Sentinels for errors.Is; a code is compared, never a text.
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

// Errorf makes an Error; it exists so that a code and its message stand
// together at the place of the failure.
func Errorf(code Code, message string) *Error { return &Error{Code: code, Message: message} }

func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Message
}

// Is compares codes, so that errors.Is works alike on this and the far side of
// a wire. An error also is its cause: a spawn that failed because there is no
// such program is spawn_failed, not_found and fs.ErrNotExist.
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

// AsError returns the Error in err's chain, or wraps err as internal. It
// returns nil for nil.
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

// CodeOf returns err's code: internal for a foreign error, "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}

// ExitedEarly is the error of a session whose child ended within the check
// after its start.
func ExitedEarly(id SessionID, exit *ExitRecord) *Error {
	how := fmt.Sprintf("with code %d", exit.ExitCode)
	if exit.Signal != "" {
		how = "by " + exit.Signal
	}
	return &Error{Code: CodeExitedEarly, Message: fmt.Sprintf("session %s exited %s right after its start", id, how), Exit: exit}
}
