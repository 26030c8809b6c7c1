package session

import (
	"fmt"
	"iter"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// A session has one terminal size, but each viewer has a window of its own. The session's
// policy tells which window decides the size. Under every policy the session also remembers the
// deciding writer, which is the one that sent input last, because the appearance and the
// responses of a terminal come from its viewer.

// reconnectTime is how long a lost viewer still counts. Its client is expected to attach again
// over another proxy or connection, and the size must not change in between.
const reconnectTime = 10 * time.Second

// sizing is the choice of the window that decides the size. loop owns it.
type sizing struct {
	SizePolicy protocol.SizePolicy `json:"size_policy"`
	Decider    string              `json:"decider,omitempty"` // the writer that sent input last, or that attached while no other writer decided
}

// window is the window of a viewer, which the policy may choose.
type window struct {
	writer string
	number uint64 // order of arrival among the viewers
	size   protocol.Size
}

// choose returns the size that the policy demands for these windows, or false if it demands
// none. The size is at least SmallestCols by SmallestRows, because a program in a window of one
// column could show the other viewers nothing. A request may still set a smaller size.
func (z *sizing) choose(windows iter.Seq[window]) (size protocol.Size, ok bool) {
	var owner uint64
	isFirst := true
	for w := range windows {
		switch z.SizePolicy {
		case protocol.SizeLatest:
			if w.writer == z.Decider {
				size = w.size
			}
		case protocol.SizeOwner:
			if isFirst || w.number < owner {
				size, owner = w.size, w.number
			}
		case protocol.SizeLargest:
			size = protocol.Size{Cols: max(size.Cols, w.size.Cols), Rows: max(size.Rows, w.size.Rows)}
		case protocol.SizeSmallest:
			if isFirst {
				size = w.size
			}
			size = protocol.Size{Cols: min(size.Cols, w.size.Cols), Rows: min(size.Rows, w.size.Rows)}
		}
		isFirst = false
	}
	if size == (protocol.Size{}) {
		return size, false
	}
	return protocol.Size{Cols: max(size.Cols, protocol.SmallestCols), Rows: max(size.Rows, protocol.SmallestRows)}, true
}

// expireLost forgets the lost viewers that did not attach again in time.
func (s *Session) expireLost() {
	gone := s.viewers.expireLost()
	for _, writer := range gone {
		s.answerFor(writer, 0)
	}
	if len(gone) > 0 {
		s.viewerLeft()
		s.applySizePolicy()
		s.noteChange()
	}
}

// countsForSize reports whether the policy may choose a's window.
func (a *Attachment) countsForSize() bool {
	return a.window != (protocol.Size{}) && a.spec.Mode != protocol.ModeReadOnly
}

// countedWindow returns a's window, or zero if the size policy must not choose it.
func (a *Attachment) countedWindow() protocol.Size {
	if !a.countsForSize() {
		return protocol.Size{}
	}
	return a.window
}

// decide makes a the deciding viewer, unless it is read-only.
func (s *Session) decide(a *Attachment) {
	if a.spec.Mode == protocol.ModeReadOnly {
		return
	}
	if s.saved.Decider == a.spec.Writer {
		return
	}
	s.saved.Decider = a.spec.Writer
	s.chooseResponder()
	s.adoptAppearance(a)
}

// applySizePolicy resizes the terminal to the size that the policy demands. If the terminal
// cannot be resized, a log line tells it.
func (s *Session) applySizePolicy() {
	size, ok := s.saved.choose(s.viewers.windows())
	if !ok || size == s.size || s.checkOpen() != nil {
		return
	}
	if err := s.resize(size); err != nil {
		s.log.Warn().Err(err).Msg("terminal size not changed")
	}
}

// SetSizePolicy changes the size policy. If cols or rows is not 0, the session also gets that
// size until the policy's next decision. Errors: invalid_argument, and those of Resize.
func (s *Session) SetSizePolicy(policy protocol.SizePolicy, cols, rows int) error {
	if err := policy.Validate(); err != nil {
		return err
	}
	if policy == "" {
		return protocol.Errorf(protocol.CodeInvalidArgument, "size_policy is empty")
	}
	return s.request(func() error {
		if err := s.checkOpen(); err != nil {
			return err
		}
		s.saved.SizePolicy = policy
		s.noteChange()
		if cols != 0 || rows != 0 {
			return s.resize(protocol.Size{Cols: cols, Rows: rows}.Normalize())
		}
		s.applySizePolicy()
		return nil
	})
}

// adoptAppearance stores the appearance of the deciding viewer's terminal, which programs may
// query. It stays when the viewer detaches.
func (s *Session) adoptAppearance(a *Attachment) {
	look := a.spec.Appearance
	if look == nil || a.spec.Writer != s.saved.Decider || *look == s.saved.Appearance {
		return
	}
	if !screen.SameCells(*look, s.saved.Appearance) && s.display.hasPictures() {
		s.display.writeKeyframe(allLines) // a successor would lay out the pictures since the last keyframe for other cells
	}
	width, height := s.saved.Appearance.Pixels(s.size)
	s.saved.Appearance = *look
	s.noteChange()
	s.display.setAppearance(*look)
	s.viewers.updatePictures(s.saved.Appearance)
	if w, h := look.Pixels(s.size); (w != width || h != height) && s.checkOpen() == nil {
		if err := s.setSize(s.size); err != nil {
			s.log.Warn().Err(err).Msg("terminal size in pixels not changed")
		}
	}
}

// setSize sets the size of the kernel's terminal, in cells and pixels.
func (s *Session) setSize(size protocol.Size) error {
	width, height := s.saved.Appearance.Pixels(size)
	if err := s.pty.Resize(size.Cols, size.Rows, width, height); err != nil {
		return fmt.Errorf("resize session %s: %w", s.id, err)
	}
	return nil
}
