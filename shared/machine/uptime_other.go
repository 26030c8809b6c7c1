//go:build !linux && !darwin

package machine

import "time"

// Uptime returns 0, because this system has no terminals.
func Uptime() time.Duration { return 0 }
