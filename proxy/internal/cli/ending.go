package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

// earlyTime is the default of the time within which a child that fails after its start counts as not started.
const earlyTime = 200 * time.Millisecond

// earlyExit returns an error if the child has failed within o.early after its start. The session's
// exit record is kept, unless the session was reopened: then earlyExit restores the previous exit
// record.
func earlyExit(ctx context.Context, c *client.Client, s *protocol.SessionInfo, o *attachOptions) error {
	if o.early <= 0 || time.Since(s.CreatedAt) > o.early+StartTimeout {
		return nil
	}
	record, err := c.Wait(ctx, s.ID, StartTimeout) // the session has ended, so this does not block
	if err != nil || record.ExitedAt.Sub(record.StartedAt) > o.early {
		return nil // the record is unavailable, or the failure was not early
	}
	if o.reopened {
		removeFailed(ctx, c, s)
	}
	e := protocol.ExitedEarly(s.ID, record)
	e.Exit.Tail = nil // the terminal already shows it
	return tellEarlyExit(e)
}

// tellExited adds the session's last lines to the error session_exited.
func tellExited(err error) error {
	return tell(err, protocol.CodeSessionExited, sysexits.NoInput)
}

// tellEarlyExit adds the child's last lines to the error exited_early.
func tellEarlyExit(err error) error {
	return tell(err, protocol.CodeExitedEarly, sysexits.Software)
}

// tell adds the last lines to an error with the given code. The exit code is the child's; if that
// is 0, it is success, because the command has failed.
func tell(err error, code protocol.Code, success int) error {
	e := protocol.AsError(err)
	if err == nil || e.Code != code || e.Exit == nil {
		return err
	}
	text := e.Error()
	for _, l := range e.Exit.Tail {
		text += "\n  " + plain.Text(l)
	}
	if e.Exit.ExitCode > 0 {
		success = e.Exit.ExitCode
	}
	return exitcode.New(success, text)
}

// checkTime is how long the check for an early exit may take in addition to the time for which the
// child is watched. After that the session counts as started.
const checkTime = 2 * time.Second

// detached prints the id of the started session, unless its child fails within early after the
// start. left is how much of that time is left. If the child ends with code 0, it has done its work, and its exit record is kept.
func (a *App) detached(cmd *cobra.Command, c *client.Client, s *client.Spawned, early, left time.Duration) error {
	ctx := cmd.Context()
	if early > 0 {
		watch, cancel := context.WithTimeout(ctx, left+checkTime)
		defer cancel()
		record, err := c.Wait(watch, s.SessionID, left)
		switch {
		case err != nil: // the child runs, or its state is unknown
		case record.ExitedAt.Sub(record.StartedAt) > early: // the answer took longer, for example because the supervisor died
		case record.ExitCode == 0:
			Note("session %s has already ended with code 0; proxy screen %s shows its output", s.SessionID, a.fullName(s.SessionID))
		default:
			removeFailed(ctx, c, &s.Session)
			return tellEarlyExit(protocol.ExitedEarly(s.SessionID, record))
		}
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), a.fullName(s.SessionID))
	return err
}

// removeFailed removes a failed session right after its start. If the session was reopened, the
// supervisor restores the previous exit record.
func removeFailed(ctx context.Context, c *client.Client, s *protocol.SessionInfo) {
	if err := c.ForgetFailed(ctx, s.ID, s.Instance); err != nil {
		Note("the failed session could not be removed from the list: %v", err)
	}
}

// childExit returns an error that ends this process with the child's code and without a message.
func childExit(code int) error {
	if code == 0 {
		return nil
	}
	if code < 0 { // unknown
		code = sysexits.Software
	}
	return exitcode.New(code, "")
}
