package session

import (
	"testing"

	"holdfast/protocol"
)

// Each state has one predecessor, and any other transition panics, because it is a bug.
func TestEnter(t *testing.T) {
	states := []protocol.State{protocol.StateStarting, protocol.StateRunning, protocol.StateDraining, protocol.StateExited, protocol.StateForgotten}
	for i, from := range states {
		for k, to := range append(states, "", "unknown") {
			s := &savedState{State: from}
			panicked := func() (p bool) {
				defer func() { p = recover() != nil }()
				s.setState(to)
				return false
			}()
			if want := k != i+1; panicked != want || (s.State == to) == want && from != to {
				t.Errorf("%s → %s: panicked %v, now %s", from, to, panicked, s.State)
			}
		}
	}
}
