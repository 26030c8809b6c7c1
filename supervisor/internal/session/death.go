package session

import (
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/postmortem"
	"holdfast/supervisor/internal/pty"
)

// death is the end of a child, and the facts that are known about its cause.
type death struct {
	status        pty.Status
	pid           int
	seen          postmortem.Seen // while the child lived
	startedAt, at time.Time
	ending        *ending    // nil if no end was requested
	signalled     *signalled // nil if no signal was requested
}

// record returns the exit record, without the fields that come from the screen and the cage.
func (d *death) record() *protocol.ExitRecord {
	rec := &protocol.ExitRecord{
		ExitCode: d.status.Code, Signal: d.status.Signal,
		Outcome: protocol.OutcomeNatural, Reason: protocol.ReasonExited,
		StartedAt: d.startedAt, ExitedAt: d.at,
		CoreDumped: d.status.Core, Usage: protocol.Usage(d.status.Usage),
	}
	if d.status.Err != nil {
		rec.Reason = protocol.ReasonWaitError
	}
	switch e, sig := d.ending, d.signalled; {
	case e != nil:
		rec.Reason, rec.TimedOut, rec.Survivors = e.reason, e.timedOut, e.survivors
		rec.Outcome = protocol.OutcomeSoft
		if e.hard {
			rec.Outcome = protocol.OutcomeHard
		}
		rec.EndedBy, rec.EndedByUser = e.asker.By, e.asker.ByUser
	case d.status.Signal != "" && sig != nil && d.status.Signal == sig.name:
		rec.EndedBy, rec.EndedByUser = sig.asker.By, sig.asker.ByUser
	case d.status.Signal == pty.SignalName(syscall.SIGKILL):
		rec.OOM = d.seen.OutOfMemory(d.pid, d.at.Sub(d.startedAt))
	case d.status.Code == 128+int(syscall.SIGKILL): // a shell ends with this code if SIGKILL ended its last program
		rec.OOM = d.seen.OutOfMemory(0, 0)
	}
	return rec
}
