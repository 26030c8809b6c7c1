package machine

import "golang.org/x/sys/unix"

const (
	clockUptime     = unix.CLOCK_UPTIME_RAW
	clockSinceStart = unix.CLOCK_MONOTONIC // it continues while the machine sleeps
)
