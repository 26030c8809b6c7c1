//go:build !linux

package postmortem

import (
	"time"

	"holdfast/protocol"
)

// Observe returns false, because there is no /proc.
func Observe(int) (s Seen, ok bool) { return Seen{}, false }

// OOMKilled returns none, because there is no log to read.
func OOMKilled(string) []string { return nil }

// OutOfMemory returns "", because there is no evidence.
func (Seen) OutOfMemory(int, time.Duration) protocol.OOMSource { return "" }
