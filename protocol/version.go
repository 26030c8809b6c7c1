package protocol

import (
	"fmt"
	"slices"
)

// Version counts incompatible meanings of the wires, not releases.
//   - 1: first
const (
	Version    = 1 // what this build speaks
	VersionMin = 1 // the oldest peer this build understands
)

// A VersionRange is the protocol versions one side speaks, both ends included.
type VersionRange struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Supported is the range of this build.
func Supported() VersionRange { return VersionRange{Min: VersionMin, Max: Version} }

func (r VersionRange) String() string { return fmt.Sprintf("%d-%d", r.Min, r.Max) }

// Agree returns the highest version both ranges contain. Where there is none
// it returns CodeProtocolMismatch with both ranges and says which side to
// upgrade.
func Agree(local, remote VersionRange) (int, error) {
	top := min(local.Max, remote.Max)
	if remote.Min <= remote.Max && top >= local.Min && top >= remote.Min {
		return top, nil
	}
	advice := "upgrade the peer"
	if remote.Min > local.Max {
		advice = "upgrade this side"
	}
	return 0, &Error{
		Code:    CodeProtocolMismatch,
		Message: fmt.Sprintf("no common protocol version: this side speaks %s, the peer speaks %s; %s", local, remote, advice),
		Local:   &local,
		Remote:  &remote,
	}
}

// A Capability is an addition to a version that a peer has to know about
// before it is used. Unknown capabilities are ignored.
type Capability string

// The capabilities of version 1.
const (
	// CapTerminalExit, said by a client: send it terminal.exit where others
	// get pty_exited, never both.
	CapTerminalExit Capability = "terminal.exit"
	// CapWebTicket, said by a proxy: it issues tickets for WebSockets.
	CapWebTicket Capability = "web.ticket"
	// CapAutomation, said by a supervisor and by a proxy whose supervisor says it: it
	// knows mark, await, environment, pasted input and keys, and who is told what is typed.
	CapAutomation Capability = "automation"
	// CapCage, said by a supervisor and by a proxy: it knows limits, freeze, and all of
	// terminate. An older one would skip them in silence.
	CapCage Capability = "cage"
)

// Capabilities is what one side said it knows.
type Capabilities []Capability

// Has reports whether c was said.
func (cs Capabilities) Has(c Capability) bool { return slices.Contains(cs, c) }
