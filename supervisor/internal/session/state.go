package session

import (
	"fmt"

	"holdfast/protocol"
)

// next says which state may follow which.
//
//	starting ──▶ running ──▶ draining ──▶ exited ──▶ forgotten
//
// A session is made in starting by Table.Create, which alone can give it up;
// from running on, only its loop changes its state.
var next = map[protocol.State]protocol.State{
	protocol.StateStarting: protocol.StateRunning,
	protocol.StateRunning:  protocol.StateDraining,
	protocol.StateDraining: protocol.StateExited,
	protocol.StateExited:   protocol.StateForgotten,
}

// enter changes the state. A wrong change is our bug and panics.
func (s *Session) enter(to protocol.State) {
	if next[s.state] != to {
		panic(fmt.Sprintf("session %s: %s → %s", s.id, s.state, to))
	}
	s.state = to
}
