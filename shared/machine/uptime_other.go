//go:build !linux && !darwin

package machine

import "time"

// Uptime returns 0, because this system has no terminals.
func Uptime() time.Duration { return 0 }

// Slept returns 0, because this system has no terminals.
func Slept() time.Duration { return 0 }

// sinceStart returns the time that this process has run.
func sinceStart() time.Duration { return time.Since(began) }

var began = time.Now()
