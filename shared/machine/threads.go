package machine

import (
	"runtime"
	"sync"
)

// spareThreads is how many threads a process has beyond one for each processor that it may use. They are for system calls that
// block at the same time: reads of signals, writes to a log or to a slow disk, starts of programs.
const spareThreads = 8

// ReserveThreads starts the threads that this process may need. The Go runtime ends a process that cannot start a thread, so
// without them a limit of processes (pids.max, TasksMax=, ulimit -u), which may be reached at any time, ends any process at its
// next system call that blocks. The runtime never ends these threads, and starts no other while one of them is idle.
func ReserveThreads() {
	n := runtime.GOMAXPROCS(0) + spareThreads
	var held, done sync.WaitGroup
	release := make(chan struct{})
	held.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread() // each waits with a thread of its own
			defer runtime.UnlockOSThread()
			held.Done()
			<-release
		})
	}
	held.Wait()
	close(release)
	done.Wait()
}

// ProcessLimit tells why fork(2) has failed with EAGAIN.
const ProcessLimit = "no more processes may be started here now, because of a limit of the user, the control group or the machine (ulimit -u, TasksMax=, pids.max)"
