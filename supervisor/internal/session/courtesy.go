package session

import (
	"sync/atomic"
	"time"
)

// A session that prints as fast as it can takes a processor for its program and
// one for us. While somebody types in another one, it pauses for a moment after
// each long read, so that a key's echo does not wait for a turn of the system's
// scheduler, which is milliseconds long.

const (
	courtesyTime  = time.Second            // after the last key in another session
	courtesyPause = 500 * time.Microsecond // behind some 64 KiB, which take about as long
)

// courtesy knows who has typed last; it is shared by all sessions.
type courtesy struct {
	last atomic.Pointer[keystroke]
}

type keystroke struct {
	in *Session
	at time.Time
}

// typed notes that somebody types in s.
func (c *courtesy) typed(s *Session) { c.last.Store(&keystroke{s, time.Now()}) }

// due reports whether s should let others go first.
func (c *courtesy) due(s *Session) bool {
	k := c.last.Load()
	return k != nil && k.in != s && time.Since(k.at) < courtesyTime
}
