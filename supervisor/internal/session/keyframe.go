package session

import (
	"encoding/binary"

	"golang.org/x/time/rate"
)

// A keyframe is a saved screen with the offset that it stands for. A successor
// makes the screen of it and of what the ring has from there on, so there is
// always one that the ring has not overtaken.

const (
	// frameShare is how much of the ring may come before the next keyframe. The
	// reader may be six eighths of the ring ahead of what is shown at most, but is
	// held up then.
	frameShare = 2
	// frameCost is how dear what comes before the next keyframe may be: a successor spends
	// it, some half a second, before it has the screen.
	frameCost = 256 << 20
	// A keyframe that is made in a flood has no lines above the screen, and takes a
	// tenth of a millisecond; the ring has thousands of lines besides.
	noLines  = 0
	allLines = -1
	// One of all lines takes some 3 to 10 ms where the history is long. In floods so
	// many a second are a fiftieth of a processor; who has fallen silent needs but one.
	wholeInFlood = 2
	wholeAtRest  = 30
)

// A frameBudget is shared by all sessions of a table.
type frameBudget struct{ flood, rest *rate.Limiter }

func newFrameBudget() *frameBudget {
	return &frameBudget{rate.NewLimiter(wholeInFlood, wholeInFlood), rate.NewLimiter(wholeAtRest, wholeAtRest)}
}

// mayFrame renews the keyframe if the ring comes near to it.
func (s *Session) mayFrame() {
	if s.cfg.Vault == nil || s.shownTo()-s.framed < uint64(s.ring.Keep()/frameShare) && s.framedCost < frameCost {
		return
	}
	lines := noLines
	if s.cfg.frames.flood.Allow() {
		lines = allLines
	}
	s.frame(lines)
}

// frameWhole has the keyframe be of all lines and of what the screen shows, when
// there is time for that. It reports false where others have used that up.
func (s *Session) frameWhole() bool {
	if s.cfg.Vault == nil || s.framedWhole && s.framed == s.shownTo() {
		return true
	}
	if !s.cfg.frames.rest.Allow() {
		return false
	}
	s.frame(allLines)
	return true
}

// A keyframe's bytes are what it stands for, in frameHead of them, little endian, and
// the screen's record: who adopts many sessions reads no more than the first at once.
const frameHead = 8

// frameOffset returns what a keyframe stands for, and false where there is none.
func frameOffset(head []byte) (uint64, bool) {
	if len(head) < frameHead {
		return 0, false
	}
	return binary.LittleEndian.Uint64(head), true
}

// frame writes a keyframe. Where that fails the one before stays.
func (s *Session) frame(lines int) {
	if s.restoring != nil || s.degraded {
		return
	}
	s.core(func() {
		data := binary.LittleEndian.AppendUint64(nil, s.screen.Offset())
		if err := s.keyframe.Write(append(data, s.screen.Save(lines)...)); err != nil {
			s.log.Error().Err(err).Msg("keyframe not written")
			return
		}
		s.framed, s.framedWhole, s.framedCost = s.screen.Offset(), lines == allLines, 0
		s.note() // what was heard up to there
	})
}
