// Package cage puts each session into its own control group, a cage: a child of the cgroup
// (version 2) that is delegated to the supervisor. For a cage, the kernel counts and limits the
// use of resources, and can freeze or kill all processes.
//
// Invariant: a cgroup that is not delegated is never written to, and a cage is removed only if
// no process runs in it. Only Kill ends processes.
//
// Not here: the choice of a session's limits (its spec), the time of its end or freeze (package
// session), the reason of a child's death (package postmortem).
package cage

import (
	"holdfast/protocol"
)

const (
	// leafName is the name of the cgroup of keeper and supervisor. They need one, because the
	// kernel allows no processes in a cgroup if it limits the children of that cgroup.
	leafName = "holdfast"
	// othersName is the name of the cgroup for sessions that were started when the supervisor
	// made no cages.
	othersName = "uncaged"
	// prefix is the beginning of the names of cages; the session's instance follows.
	prefix = "session-"
)

// The values of the setting "cage". Any other value is the directory of a cgroup.
const (
	Auto = "auto" // the supervisor's own cgroup, if systemd or the proxy says that it is delegated
	Own  = "own"  // the supervisor's own cgroup, because the user says that it is delegated
	Off  = "off"
)

// Unsupported returns the error for a request that needs a cage or a controller that is
// missing.
func Unsupported(what, why string) error {
	return protocol.Errorf(protocol.CodeUnsupported, "%s: %s (proxy doctor says more)", what, why)
}
