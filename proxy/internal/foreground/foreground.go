// Package foreground asks the system which process a session's terminal serves right now,
// and where that is.
//
// Invariant: it only reads, a bounded number of bytes of a bounded number of files, and
// asks no process. A field that cannot be read is left empty; nothing is guessed.
//
// Not here: what a shell says by itself of its commands and its directory (OSC 133 and
// OSC 7), which the supervisor keeps.
package foreground

import "holdfast/protocol"

// Of returns the foreground process of the terminal whose session leader is pid, or nil
// if that is not known: the leader has ended, or the system does not tell.
func Of(pid int) *protocol.Foreground {
	if pid <= 0 {
		return nil
	}
	return of(pid)
}
