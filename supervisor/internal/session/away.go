package session

import (
	"slices"
	"time"

	"holdfast/protocol"
	"holdfast/shared/plain"
	"holdfast/supervisor/internal/screen"
)

// A viewer that attaches may ask for the events since the last writer left; a writer is a viewer
// that may write. Such an absence begins when the last writer leaves, or at the
// start.
//
//	absent ──viewerCame──▶ attended ──viewerLeft──▶ absent
//	                           ▲                       │
//	                           └── a lost viewer ──────┘  attaches again in time
//
// A viewer that has lost its connection is expected to attach again over another proxy or
// connection. Until reconnectTime is over, the session counts as attended, and Away reports the
// previous absence.

// Bounds of an absence, besides protocol.MaxAway.
const (
	awayText = 8 << 10 // bytes of notifications
	awayLine = 256     // bytes of a command's line
)

// away is owned by loop. A successor starts without viewers; loop calls viewerLeft for those of
// the predecessor.
type away struct {
	viewers           int  // attached viewers that may write
	Open              bool `json:"open,omitempty"` // no writer is attached, so Now collects events
	Lost              bool `json:"lost,omitempty"` // a lost writer may attach again; then the absence is treated as if it had not begun
	IsLeftLineMissing bool `json:"late,omitempty"` // the line of Now.Left must be set when the screen is restored

	Now  absence `json:"now,omitzero"`
	Last absence `json:"last,omitzero"` // the absence that Away reports until Now counts
}

// absence is a time in which no writer was attached.
type absence struct {
	Left          *protocol.Left          `json:"left,omitempty"` // replaced, and never changed
	Back          time.Time               `json:"back,omitzero"`
	Printed       uint64                  `json:"printed,omitempty"` // set at the end of the absence
	Bells         int                     `json:"bells,omitempty"`
	Notifications []protocol.Notification `json:"notifications,omitempty"`
	Commands      []protocol.CommandInfo  `json:"commands,omitempty"`
	Ended         uint64                  `json:"ended,omitempty"`
}

// from returns the offset at which the absence began.
func (b *absence) from() uint64 {
	if b.Left == nil {
		return 0
	}
	return b.Left.Offset
}

// addHeard adds bells, notifications and commands that the screen has seen in the output.
func (w *away) addHeard(h screen.Heard) {
	if !w.Open {
		return
	}
	b := &w.Now
	b.Bells += h.Bells
	b.Ended += h.Ended
	if len(h.Notifications) == 0 {
		return
	}
	b.Notifications = lastOf(b.Notifications, h.Notifications...)
	for size, i := 0, len(b.Notifications)-1; i >= 0; i-- {
		if size += len(b.Notifications[i].Title) + len(b.Notifications[i].Body); size > awayText {
			b.Notifications = slices.Clone(b.Notifications[i+1:])
			break
		}
	}
}

// addCommand adds a finished command.
func (w *away) addCommand(c protocol.CommandInfo) {
	if !w.Open {
		return
	}
	c.Line = plain.Cut(c.Line, awayLine)
	w.Now.Commands = lastOf(w.Now.Commands, c)
	w.Now.Ended++
}

// lastOf returns the last protocol.MaxAway elements in a new slice.
func lastOf[T any](all []T, more ...T) []T {
	all = append(slices.Clone(all), more...)
	return all[max(0, len(all)-protocol.MaxAway):]
}

// canWrite reports whether a is a viewer that may write. Only such viewers end an absence.
func (a *Attachment) canWrite() bool { return !a.shadow && a.spec.Mode != protocol.ModeReadOnly }

// came counts a viewer that may write, and ends the absence. returns tells that the viewer is a
// lost one that attaches again. If came returns true, finish must follow, because the absence
// is over. If it returns false, there was none, or it is treated as if it had not begun.
func (w *away) came(returns bool) (isOver bool) {
	if w.viewers++; !w.Open {
		return false
	}
	w.Open, w.IsLeftLineMissing = false, false
	if w.Lost && returns {
		w.Now, w.Lost = absence{}, false
		return false
	}
	return true
}

// finish makes the absence that has just ended the last one. end is the end of the output.
func (w *away) finish(end uint64, now time.Time) {
	w.Last = w.Now
	w.Last.Back, w.Last.Printed = now, end-min(end, w.Last.from())
	w.Now, w.Lost = absence{}, false
}

// shouldBegin reports whether no writer is attached, but no absence has begun yet.
func (w *away) shouldBegin() bool { return w.viewers == 0 && !w.Open }

// begin begins an absence. isLineMissing tells that the line of left is not known yet.
func (w *away) begin(left protocol.Left, isLineMissing bool) {
	w.Open, w.Lost, w.IsLeftLineMissing = true, true, isLineMissing
	w.Now = absence{Left: &left}
}

// giveUpLost makes the present absence count, because no lost writer may attach again any more.
// It reports whether that changed w.
func (w *away) giveUpLost() bool {
	if !w.Open || !w.Lost {
		return false
	}
	w.Lost, w.Last = false, absence{}
	return true
}

// setLeftLine sets the line at which the absence began, if it was missing, and reports whether
// that changed w. line is called if the line is needed.
func (w *away) setLeftLine(line func() uint64) bool {
	missing := w.IsLeftLineMissing
	w.IsLeftLineMissing = false
	left := w.Now.Left
	if !missing || left == nil {
		return false
	}
	w.Now.Left = &protocol.Left{At: left.At, Offset: left.Offset, Line: line()}
	return true
}

// left returns when and where the last writer left. It is nil while the session is attended,
// and if no writer has ever left.
func (w *away) left() *protocol.Left {
	if !w.Open || w.Lost {
		return nil
	}
	return w.Now.Left
}

// info returns the events of the present absence, or of the last one if the session is
// attended. end is the end of the output.
func (w *away) info(end uint64) protocol.AwayInfo {
	b := w.Last
	if w.Open && !w.Lost {
		b = w.Now
		b.Printed = end - min(end, b.from())
	}
	return protocol.AwayInfo{
		Left: b.Left, BackAt: b.Back, Printed: b.Printed, Bells: b.Bells,
		Notifications: b.Notifications, Commands: b.Commands, Ended: b.Ended,
	}
}

// viewerCame ends the absence if a may write. returns tells that a is a lost viewer that
// attaches again.
func (s *Session) viewerCame(a *Attachment, returns bool) {
	if !a.canWrite() {
		s.viewerLeft() // a may have replaced an attachment of a writer
		return
	}
	w := s.saved.Away
	if w.Open && !(w.Lost && returns) { // the events in the output so far belong to the absence
		s.display.finishRestore()
		s.feed()
	}
	if w.came(returns) {
		_, end, _ := s.ring.Bounds()
		w.finish(end, s.cfg.Now())
	}
}

// viewerLeft begins an absence if no writer is attached any more. It is called after a viewer
// has detached, or a lost viewer was given up.
func (s *Session) viewerLeft() {
	w := s.saved.Away
	if w.shouldBegin() {
		s.feed()
		_, end, _ := s.ring.Bounds()
		w.begin(protocol.Left{At: s.cfg.Now(), Offset: end, Line: s.display.firstOpenLine()}, s.display.restoring != nil)
		s.noteChange()
	}
	if !s.viewers.anyLostCouldWrite() && w.giveUpLost() {
		s.noteChange()
	}
}

// Away returns the events of the present absence, or of the last one if the session is
// attended. Errors: session_not_found, busy.
func (s *Session) Away() (protocol.AwayInfo, error) {
	var info protocol.AwayInfo
	err := s.ask(answerTime, func() {
		s.feed()
		s.display.finishRestore()
		_, end, _ := s.ring.Bounds()
		info = s.saved.Away.info(end)
		info.Instance = s.instance
	})
	maskAway(&info, s.masker)
	return info, err
}
