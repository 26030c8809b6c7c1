package session

import (
	"fmt"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// Clear deletes the lines above the screen. If all is true, it also deletes the rows on the
// screen, except the row with the cursor, which moves to the top; while a program shows the
// alternate screen, the rows stay. Each viewer begins again with a snapshot. The output stays
// in the ring, at its offsets.
//
// Errors: those of checkOpen; busy; internal if the screen is lost, or if the keyframe cannot
// be written, because a successor would then restore the lines.
func (s *Session) Clear(all bool) error {
	var kept bool
	var unopen error
	if err := s.askScreen(func(sc *screen.Screen) {
		if unopen = s.checkOpen(); unopen != nil {
			return
		}
		sc.Clear(all)
		s.saved.ClearOffset = max(s.saved.ClearOffset, sc.Offset())
		// A successor restores the screen from the last keyframe and the output since. From an
		// older keyframe it would restore the deleted lines.
		s.display.keyframe.isWhole = false
		s.writeKeyframe(allLines)
		kept = s.display.keyframe.isWhole
		for a := range s.viewers.attached {
			a.requestRenewal(newLines) // the lines that the viewer has were deleted
		}
		s.activity.last.set(s.cfg.Now())
		s.noteChange()
	}); err != nil {
		return err
	}
	if unopen != nil {
		return unopen
	}
	if !kept {
		return protocol.Errorf(protocol.CodeInternal, fmt.Sprintf("session %s is cleared, but the keyframe could not be saved: the lines may come back with the next supervisor; clear again", s.id))
	}
	return nil
}

// predatesClear reports whether a viewer at offset may still show deleted lines. A viewer at
// exactly the offset of the Clear may or may not know of it, so it counts as well.
func (v *savedState) predatesClear(offset uint64) bool {
	return v.ClearOffset > 0 && offset <= v.ClearOffset
}
