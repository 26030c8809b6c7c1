package session

import (
	"sync/atomic"
	"time"
)

// A screen takes up to some hundred microseconds for what is read of a terminal
// at once, and a key's way through here has several goroutines to pass, each of
// which would wait for so long while another session floods. So while somebody
// types in one session, the others show what they print in small pieces and let
// whoever is ready go first.

const (
	courtesyTime  = time.Second // after the last key in another session
	courtesyPiece = 1 << 10     // some 50 microseconds of lines as short as those of yes(1)
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
