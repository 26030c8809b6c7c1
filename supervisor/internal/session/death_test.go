package session

import (
	"errors"
	"slices"
	"testing"

	"holdfast/protocol"
	"holdfast/supervisor/internal/pty"
)

// A record names the requester of an end, or of the signal by which the child has ended, and no other.
func TestDeathRecord(t *testing.T) {
	byUser := protocol.Asker{By: "client", ByUser: "user"}
	term := &signalled{byUser, "SIGTERM"}
	for _, tt := range []struct {
		name    string
		death   death
		outcome protocol.Outcome
		reason  protocol.Reason
		by      string
	}{
		{"by itself", death{status: pty.Status{Code: 3}}, protocol.OutcomeNatural, protocol.ReasonExited, ""},
		{"by a signal of another process", death{status: pty.Status{Code: 143, Signal: "SIGTERM"}}, protocol.OutcomeNatural, protocol.ReasonExited, ""},
		{"by a requested signal", death{status: pty.Status{Code: 143, Signal: "SIGTERM"}, signalled: term}, protocol.OutcomeNatural, protocol.ReasonExited, "client"},
		{"by another signal than was requested", death{status: pty.Status{Code: 129, Signal: "SIGHUP"}, signalled: term}, protocol.OutcomeNatural, protocol.ReasonExited, ""},
		{"after a signal that it has survived", death{status: pty.Status{}, signalled: term}, protocol.OutcomeNatural, protocol.ReasonExited, ""},
		{"unknown", death{status: pty.Status{Err: errors.New("wait")}}, protocol.OutcomeNatural, protocol.ReasonWaitError, ""},
		{"by a requested end", death{ending: &ending{asker: byUser, reason: protocol.ReasonUserRequested}}, protocol.OutcomeSoft, protocol.ReasonUserRequested, "client"},
		{"by force", death{ending: &ending{reason: protocol.ReasonIdleTimeout, timedOut: true, hard: true, survivors: []int{7}}}, protocol.OutcomeHard, protocol.ReasonIdleTimeout, ""},
		{"by an end that was requested after a signal", death{status: pty.Status{Code: 143, Signal: "SIGTERM"}, signalled: term, ending: &ending{reason: protocol.ReasonShutdown}}, protocol.OutcomeSoft, protocol.ReasonShutdown, ""},
	} {
		rec := tt.death.record()
		if rec.Outcome != tt.outcome || rec.Reason != tt.reason || rec.EndedBy != tt.by || rec.ExitCode != tt.death.status.Code || rec.Signal != tt.death.status.Signal {
			t.Errorf("%s: %+v, want %s, %s, by %q", tt.name, rec, tt.outcome, tt.reason, tt.by)
		}
		if e := tt.death.ending; e != nil && (rec.TimedOut != e.timedOut || !slices.Equal(rec.Survivors, e.survivors) || rec.EndedByUser != e.asker.ByUser) {
			t.Errorf("%s: %+v, want the end %+v", tt.name, rec, e)
		}
	}
}
