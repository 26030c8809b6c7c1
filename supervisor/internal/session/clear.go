package session

import (
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// renewTime is how long Clear waits until the lines are on disk no more, and Forget until the session is not.
const renewTime = 5 * time.Second

// Clear deletes the lines above the screen. If all is true, it also deletes the rows on the
// screen, except the row with the cursor, which moves to the top; while a program shows the
// alternate screen, the rows stay. Each viewer begins again with a snapshot. The output keeps its
// offsets, and no request returns output before the offset of the Clear.
//
// Errors: those of checkOpen; busy; internal if the screen is lost, or if the keyframe or the
// recording on disk cannot be renewed, because a successor would then restore the lines.
func (s *Session) Clear(all bool) error {
	var kept bool
	if err := s.askScreen(func(sc *screen.Screen) error {
		err := s.checkOpen()
		if err == nil {
			kept = s.clear(sc, all)
		}
		return err
	}); err != nil {
		return err
	}
	if !kept {
		return protocol.Errorf(protocol.CodeInternal, "session %s is cleared, but the keyframe could not be saved: the lines may come back with the next supervisor; clear again", s.id)
	}
	if err := s.recording.renew(renewTime); err != nil {
		return protocol.Errorf(protocol.CodeInternal, "session %s is cleared, but its files on disk still have the lines: %v", s.id, err)
	}
	return nil
}

// clear deletes lines of the screen, and reports whether the keyframe without them is saved. It is called in loop.
func (s *Session) clear(sc *screen.Screen, all bool) (kept bool) {
	sc.Clear(all)
	s.recording.clearedTo.Store(max(s.recording.clearedTo.Load(), sc.Offset()))
	s.recording.clears.Add(1)
	_, s.saved.ClearEnd, _ = s.ring.Bounds() // viewers may be ahead of the screen
	// A successor restores the screen from the last keyframe and the output since. From an
	// older keyframe it would restore the deleted lines.
	s.display.keyframe.isWhole, s.display.isFromRing = false, false
	s.display.writeKeyframe(allLines)
	for a := range s.viewers.attached {
		a.requestRenewal(newLines) // the lines that the viewer has were deleted
	}
	s.activity.noteUse(s.cfg.Now())
	s.noteChange()
	return s.display.keyframe.isWhole
}
