package session

import (
	"sync/atomic"
	"time"

	"holdfast/protocol"
)

// Writing one read of a terminal to a screen takes up to some hundred microseconds. A keystroke
// passes several goroutines on its way, and each of them could wait for that long while another
// session floods. Therefore, while a user types in one session, all other sessions write their
// output in small pieces and yield before each.

const (
	courtesyTime  = time.Second // after the last input in another session
	courtesyPiece = 1 << 10     // bytes; some 50 microseconds of lines as short as those of yes(1)
)

// courtesy knows which session received input last. All sessions share it.
type courtesy struct {
	last atomic.Pointer[keystroke]
}

type keystroke struct {
	in protocol.Instance
	at time.Time
}

// noteInput notes that a session has received input.
func (c *courtesy) noteInput(in protocol.Instance) { c.last.Store(&keystroke{in, time.Now()}) }

// due reports whether a session should yield to other goroutines.
func (c *courtesy) due(in protocol.Instance) bool {
	k := c.last.Load()
	return k != nil && k.in != in && time.Since(k.at) < courtesyTime
}
