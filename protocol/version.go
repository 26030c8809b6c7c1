package protocol

import (
	"fmt"
	"slices"
)

// Version is the version of both wires. It is raised if a meaning changes incompatibly, and not
// with each release.
//   - 1: first
const (
	Version    = 1 // the version of this build
	VersionMin = 1 // the oldest version that this build supports
)

// A VersionRange contains the protocol versions that one side supports, both ends included.
type VersionRange struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Supported returns the versions that this build supports.
func Supported() VersionRange { return VersionRange{Min: VersionMin, Max: Version} }

func (r VersionRange) String() string { return fmt.Sprintf("%d-%d", r.Min, r.Max) }

// Agree returns the highest version that both ranges contain. If there is none, it returns
// CodeProtocolMismatch with both ranges and the advice which side should be upgraded.
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

// A Capability is an addition to a version. A side must not use it unless its peer has announced
// it. A peer must ignore unknown capabilities.
type Capability string

// The capabilities of version 1.
const (
	// CapTerminalExit is announced by a client. The client then receives terminal.exit instead
	// of pty_exited, never both.
	CapTerminalExit Capability = "terminal.exit"
	// CapWebTicket is announced by a proxy that issues tickets for WebSockets.
	CapWebTicket Capability = "web.ticket"
	// CapAutomation is announced by a supervisor and by a proxy. It means mark, await,
	// environment, pasted input, keys, and viewers that see input. Clients and proxies of 0.2.0
	// require it before they use these.
	CapAutomation Capability = "automation"
	// CapCage is announced by a supervisor and by a proxy. It means limits, freeze, and all fields
	// of terminate. Clients and proxies of 0.2.0 require it before they use these.
	CapCage Capability = "cage"
	// CapDurable is announced by a supervisor and by a proxy. It means that sessions may be stored
	// on disk and be lost, durable of spawn, and keep_screen of reopen.
	CapDurable Capability = "durable"
)

// Capabilities contains the capabilities that one side has announced.
type Capabilities []Capability

// Has reports whether the side has announced c.
func (cs Capabilities) Has(c Capability) bool { return slices.Contains(cs, c) }
