// Package machine says how much of the machine a process of ours takes, and gives
// it what each system has under another name.
//
// Not here: limits on sessions and clients, which belong to their owners.
package machine

import (
	"os"
	"runtime"
	"runtime/debug"
)

// Share leaves half of the processors to the children whose output we carry,
// unless $GOMAXPROCS says otherwise. A keystroke's way leads through both
// processes and the child; on two processors, threads that look for work to
// steal were measured to cost it 60 µs, and a drain a tenth of its speed.
func Share() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.NumCPU()/2))
	}
}

// hurryGC is the collector's percentage in a hurry: with next to nothing alive the
// first collection comes at 32 MiB, where it comes at 4 else.
const hurryGC = 800

// Hurry is for the moments in which all that a process serves wait for it: it has
// all processors, and collects later. calm undoes that.
func Hurry() (calm func()) {
	percent := debug.SetGCPercent(hurryGC)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.NumCPU())
	}
	return func() {
		Share()
		debug.SetGCPercent(percent)
	}
}
