// Package sysexits has the exit codes of both programs, so that scripts need to know only one table.
//
// Invariant: the codes never change, because scripts rely on them.
//
// Not here: which error has which code (package exitcode, and the supervisor's main package).
package sysexits

// The codes are those of sysexits(3), and for a time-out that of timeout(1).
const (
	Usage       = 64
	NoInput     = 66 // there is no such session
	Unavailable = 69 // there is no proxy or no supervisor, another one runs, or it cannot do this here
	Software    = 70
	OSError     = 71 // a command could not be started
	CantCreate  = 73 // the id is in use
	IOErr       = 74 // an output could not be written
	TempFail    = 75 // the command may succeed later
	Protocol    = 76
	NoPerm      = 77
	Config      = 78 // a setting is invalid
	Timeout     = 124
)
