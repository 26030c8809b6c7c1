package machine

import "golang.org/x/sys/unix"

const (
	clockUptime     = unix.CLOCK_MONOTONIC
	clockSinceStart = unix.CLOCK_BOOTTIME
)
