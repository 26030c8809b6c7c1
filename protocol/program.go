package protocol

import "time"

// ProgramState is the state that a program reports of itself.
type ProgramState string

// The states. Those that need a person come first.
const (
	ProgramBlocked ProgramState = "blocked" // it waits for a person
	ProgramError   ProgramState = "error"   // its work has failed
	ProgramWorking ProgramState = "working"
	ProgramDone    ProgramState = "done" // its work has ended
	ProgramIdle    ProgramState = "idle" // it has no work
)

// ProgramStatus is a report of a program about itself: OSC 7501, the program status protocol, revision 0.2
// (superlogical.com/rex/docs/build/program-status). The program may be any that writes to the terminal, so
// the texts are not to be trusted.
type ProgramStatus struct {
	State    ProgramState `json:"state"`
	Kind     string       `json:"kind,omitempty"`     // of blocked: permission, question or auth
	ID       string       `json:"id,omitempty"`       // of the part of the program; "" is the whole
	App      string       `json:"app,omitempty"`      // name of the program
	Title    string       `json:"title,omitempty"`    // of the work
	Message  string       `json:"message,omitempty"`  // one line, of at most MaxTitle bytes
	Progress *int         `json:"progress,omitempty"` // percent
	At       time.Time    `json:"at"`                 // when it was reported
}
