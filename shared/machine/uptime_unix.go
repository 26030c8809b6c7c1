//go:build linux || darwin

package machine

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime returns the time that has passed since the machine was started, without the time for which it slept. All processes
// have the same one, and a change of the clock does not change it. It is 0 if the system does not tell.
func Uptime() time.Duration { return readClock(clockUptime) }

// sinceStart returns the time that has passed since the machine was started, with the time for which it slept.
func sinceStart() time.Duration { return readClock(clockSinceStart) }

// Slept returns for how long the machine has slept since it was started. It is 0 if the system does not tell.
func Slept() time.Duration {
	all, awake := sinceStart(), Uptime()
	if all == 0 || awake == 0 {
		return 0
	}
	return all - awake
}

func readClock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
