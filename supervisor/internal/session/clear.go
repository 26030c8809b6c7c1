package session

import (
	"fmt"

	"holdfast/protocol"
)

// Clear forgets the lines above the screen, and with all also those on it, but the row with
// the cursor, which moves to the top; not while a program shows the alternate screen. Every
// viewer begins anew with a snapshot. What was printed stays in the ring, at its offsets.
//
// Errors: those of open, busy, and internal if the screen is lost or the keyframe cannot be
// written: then a successor would have the lines again.
func (s *Session) Clear(all bool) error {
	var kept bool
	var unopen error
	if err := s.look(func() {
		if unopen = s.open(); unopen != nil {
			return
		}
		s.screen.Clear(all)
		s.cleared = max(s.cleared, s.screen.Offset())
		// A successor makes the screen of the last keyframe and what was printed since: from
		// an older one it would make what is cleared.
		s.framedWhole = false
		s.frame(allLines)
		kept = s.framedWhole
		for a := range s.attachments {
			a.clear()
		}
		s.lastIO.set(s.cfg.Now())
		s.note()
	}); err != nil {
		return err
	}
	if unopen != nil {
		return unopen
	}
	if !kept {
		return protocol.Errorf(protocol.CodeInternal, fmt.Sprintf("session %s is cleared, but that could not be saved: the lines may come back with the next supervisor", s.id))
	}
	return nil
}

// clear has a viewer begin anew with a snapshot of all lines: the ones that it has are cleared.
func (a *Attachment) clear() {
	a.mu.Lock()
	a.renewed, a.whole = true, true
	a.mu.Unlock()
	a.poke()
}

// predatesClear reports whether a viewer that stands at offset may show lines that were
// cleared. One that stands where the clear was may have been told of it, or not.
func (s *Session) predatesClear(offset uint64) bool { return s.cleared > 0 && offset <= s.cleared }
