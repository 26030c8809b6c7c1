// Package machine says how much of the machine a process of ours takes, and gives
// it what each system has under another name.
//
// Not here: limits on sessions and clients, which belong to their owners.
package machine

import (
	"os"
	"runtime"
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
