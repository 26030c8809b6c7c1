package session

import (
	"fmt"

	"holdfast/protocol"
)

// nextState has the only permitted successor of each state.
//
//	starting ──▶ running ──▶ draining ──▶ exited ──▶ forgotten
//	                                        lost ──▶ forgotten
//
// Table.Create makes a session in the state starting, and may give it up. From running on only
// the session's loop changes the state.
var nextState = map[protocol.State]protocol.State{
	protocol.StateStarting: protocol.StateRunning,
	protocol.StateRunning:  protocol.StateDraining,
	protocol.StateDraining: protocol.StateExited,
	protocol.StateExited:   protocol.StateForgotten,
	protocol.StateLost:     protocol.StateForgotten,
}

// setState changes the state. It panics if nextState does not permit the change, because that
// is a defect of this package.
func (v *savedState) setState(to protocol.State) {
	if nextState[v.State] != to {
		panic(fmt.Sprintf("state of a session cannot change from %s to %s", v.State, to))
	}
	v.State = to
}
