// Package machine sets and measures the share of the machine that a process takes, and offers
// features that the systems provide under different names.
//
// Not here: limits of sessions and clients, which belong to their packages.
package machine

import (
	"os"
	"runtime"
	"runtime/debug"
)

// Share leaves half of the processors to the children of the sessions, unless $GOMAXPROCS is
// set. A keystroke passes through both processes and the child. On two processors, threads that
// searched for work to steal were measured to delay it by 60 µs, and to slow a drain by a
// tenth.
func Share() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.NumCPU()/2))
	}
}

// hurryGC is the garbage collector's percentage after Hurry. If the heap is almost empty, the
// first collection then comes at 32 MiB instead of 4 MiB.
const hurryGC = 800

// Hurry gives this process all processors and delays garbage collection. It is meant for
// moments in which all users of the process wait for it. calm restores the settings of Share.
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
