//go:build !linux

package postmortem

import (
	"time"

	"holdfast/protocol"
)

// Look sees nothing: there is no /proc.
func Look(int) (s Seen, ok bool) { return Seen{}, false }

// OOMKilled returns nothing: nothing tells.
func OOMKilled(string) []string { return nil }

// OutOfMemory returns "": nothing tells.
func (Seen) OutOfMemory(int, time.Duration) protocol.OOMSource { return "" }
