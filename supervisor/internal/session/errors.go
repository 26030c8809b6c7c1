package session

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"holdfast/protocol"
	"holdfast/shared/machine"
	"holdfast/supervisor/internal/pty"
)

func notFound(id protocol.SessionID) error {
	return protocol.Errorf(protocol.CodeSessionNotFound, "no session %s", id)
}

// busyError returns the error for a request with which loop does not begin in time.
// The request was not done.
func busyError(id protocol.SessionID) error {
	return &protocol.Error{
		Code: protocol.CodeBusy, Retryable: true, RetryAfterMS: 1000,
		Message: fmt.Sprintf("session %s is busy with the output of its program and does not answer; nothing was done, try again", id),
	}
}

func exitedError(id protocol.SessionID, exit *protocol.ExitRecord) error {
	how := fmt.Sprintf("with code %d", exit.ExitCode)
	if exit.Signal != "" {
		how = "by " + exit.Signal
	}
	text := fmt.Sprintf("session %s has exited %s", id, how)
	if exit.Reason == protocol.ReasonLost {
		text = fmt.Sprintf("session %s was lost with the machine; revive starts it again", id)
	}
	return &protocol.Error{Code: protocol.CodeSessionExited, Message: text, Exit: exit}
}

// spawnError returns spawn_failed for a session that could not be started. Cause is set if the
// peer can react to it. If limits cannot be set, spawnError returns unsupported.
func spawnError(err error) error {
	if said := protocol.AsError(err); said.Code == protocol.CodeUnsupported { // the limits cannot be set here
		return said
	}
	e := &protocol.Error{Code: protocol.CodeSpawnFailed, Message: err.Error()}
	switch {
	case errors.Is(err, pty.ErrUnsupported):
		e.Cause = protocol.CodeUnsupportedOS
	case errors.Is(err, pty.ErrExhausted), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE): // the ring needs descriptors, too
		e.Cause, e.Retryable = protocol.CodePTYExhausted, true
	case errors.Is(err, pty.ErrNoAnswer):
		e.Retryable = true
	case errors.Is(err, syscall.EAGAIN): // of fork
		e.Retryable = true
		e.Message = machine.ProcessLimit + ": " + err.Error()
	case errors.Is(err, syscall.EFBIG): // the files of a session are in memory, and count as files
		e.Message = fmt.Sprintf("the supervisor may write files of at most %d bytes, and a session needs longer ones; "+
			"stop the supervisor, and start it with a higher RLIMIT_FSIZE (ulimit -f, LimitFSIZE=): %v", machine.FileSize(), err)
	case errors.Is(err, os.ErrNotExist):
		e.Cause = protocol.CodeNotFound
	case errors.Is(err, os.ErrPermission):
		e.Cause = protocol.CodePermissionDenied
	}
	return e
}
