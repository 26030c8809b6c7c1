//go:build linux || darwin

package session

import (
	"testing"
	"testing/synctest"

	"holdfast/protocol"
	"holdfast/supervisor/internal/pty"
)

// Without cages a session is as it always was, and what needs one is unsupported: limits
// that are asked for before anything is started. Defaults are left out.
func TestWithoutCages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		limits := protocol.Limits{PIDsMax: new(uint64(9))}
		spec := bash("")
		spec.Limits = limits
		if _, err := tb.Create("limited", spec, ""); protocol.CodeOf(err) != protocol.CodeUnsupported {
			t.Errorf("limits: %v", err)
		}
		if _, err := tb.Get("limited"); protocol.CodeOf(err) != protocol.CodeSessionNotFound {
			t.Errorf("it was started: %v", err)
		}
		s, err := tb.CreateFor("", "s", bash(""), limits, "")
		if err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{
			"limit": s.Limit(limits), "freeze": s.SetFrozen(true), "thaw": s.SetFrozen(false), "all": s.Terminate(End{All: true}),
		} {
			if protocol.CodeOf(err) != protocol.CodeUnsupported {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := s.Limit(protocol.Limits{PIDsMax: new(uint64(1 << 40))}); protocol.CodeOf(err) != protocol.CodeInvalidArgument {
			t.Errorf("a wrong limit: %v", err)
		}
		if i, err := s.Info(); err != nil || i.Frozen || i.Cage != nil || s.Use() != nil {
			t.Errorf("%+v, %v", i, err)
		}
		by(s).exit(pty.Status{})
		<-s.Exited()
		if s.Exit().Cage != nil {
			t.Errorf("its record has %+v", s.Exit().Cage)
		}
	})
}
