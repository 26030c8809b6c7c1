// Package foreground reads from the system which process is in the foreground of a session's
// terminal, and the directory of that process.
//
// Invariant: it only reads a bounded number of bytes of a bounded number of files, and
// communicates with no process. If a field cannot be read, it is empty and never guessed.
//
// Not here: the reports of a shell about its commands and its directory (OSC 133 and OSC 7),
// which the supervisor handles.
package foreground

import "holdfast/protocol"

// Of returns the foreground process of the terminal of the session leader pid, or nil if it is
// unknown because the leader has ended or the system does not report it.
func Of(pid int) *protocol.Foreground {
	if pid <= 0 {
		return nil
	}
	return of(pid)
}

// Reads reports whether a process of the terminal's foreground process group waits in a read of the terminal. It
// returns false if the system does not tell, and for a process that waits for the terminal and for something else
// at once, as by poll(2). f is the result of Of(pid).
func Reads(pid int, f *protocol.Foreground) bool {
	return f != nil && reads(pid, f.PID)
}
