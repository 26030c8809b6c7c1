// Package cage gives each session a control group of its own, a cage: a leaf of the
// cgroup (version 2) that is delegated to the supervisor. The kernel counts and
// limits what runs in it, stops it, and ends it as a whole.
//
// Invariant: a cgroup that is not delegated is never written to, and a cage is only
// removed when nothing runs in it. Nothing here ends a process but Kill.
//
// Not here: which limits a session has (its spec), when it is ended or frozen
// (package session), why a child was killed (package postmortem).
package cage

import (
	"fmt"

	"holdfast/protocol"
)

const (
	// leafName is the cgroup of keeper and supervisor. A cgroup whose children are
	// limited can have no processes itself.
	leafName = "holdfast"
	// othersName is the cgroup of sessions that an older program started without cages.
	othersName = "uncaged"
	// prefix begins the names of cages; the session's instance follows.
	prefix = "session-"
)

// The values of the setting beside a directory.
const (
	Auto = "auto" // the supervisor's own cgroup, if it is known to be delegated
	Own  = "own"  // the supervisor's own cgroup, which the user knows to be delegated
	Off  = "off"
)

// Unsupported is the error of a request that needs a cage, or a controller that is
// missing.
func Unsupported(what, why string) error {
	return protocol.Errorf(protocol.CodeUnsupported, fmt.Sprintf("%s: %s (proxy doctor says more)", what, why))
}
