package machine

import "golang.org/x/sys/unix"

const clockUptime = unix.CLOCK_UPTIME_RAW
