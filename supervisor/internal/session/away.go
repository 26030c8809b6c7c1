package session

import (
	"slices"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// What has happened while nobody looked is told to whoever comes: since the last
// viewer went that could type, or since the start.
//
//	nobody looks ──came──▶ looked at ──went──▶ nobody looks
//	                           ▲                    │
//	                           └──── it was lost ───┘  and comes back in time
//
// A viewer that was lost is about to come back, by another proxy or connection. Until
// it is given up (reconnectTime) it counts as looking, and what is told is of before.

// Bounds on an absence, besides protocol.MaxAway.
const (
	awayText = 8 << 10 // bytes of notifications
	awayLine = 256     // of a command's line
)

// away is owned by loop.
type away struct {
	viewers int  // attached ones that may type
	open    bool // there are none, and now is collected
	lost    bool // of those that went some may come back: then it is as if none had gone
	late    bool // the line of now.Left is to be taken when there is a screen

	now  absence
	last absence // until now counts
}

// An absence is a time in which nobody looked.
type absence struct {
	Left          *protocol.Left          `json:"left,omitempty"` // replaced, and never changed
	Back          time.Time               `json:"back,omitzero"`
	Printed       uint64                  `json:"printed,omitempty"` // once somebody is back
	Bells         int                     `json:"bells,omitempty"`
	Notifications []protocol.Notification `json:"notifications,omitempty"`
	Commands      []protocol.CommandInfo  `json:"commands,omitempty"`
	Ended         uint64                  `json:"ended,omitempty"`
}

// from is where the absence began.
func (b *absence) from() uint64 {
	if b.Left == nil {
		return 0
	}
	return b.Left.Offset
}

// hear takes what the program has told its terminal.
func (w *away) hear(h screen.Heard) {
	if !w.open {
		return
	}
	b := &w.now
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

// finished takes a command that has ended.
func (w *away) finished(c protocol.CommandInfo) {
	if !w.open {
		return
	}
	c.Line = cutText(c.Line, awayLine)
	w.now.Commands = lastOf(w.now.Commands, c)
	w.now.Ended++
}

// lastOf returns the last protocol.MaxAway, in memory of their own.
func lastOf[T any](all []T, more ...T) []T {
	all = append(slices.Clone(all), more...)
	return all[max(0, len(all)-protocol.MaxAway):]
}

// cutText returns at most n bytes of s, whole characters.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}

// mayType reports whether a is one of those whose coming and going counts.
func (a *Attachment) mayType() bool { return !a.shadow && a.spec.Mode != protocol.ModeReadOnly }

// came is called when a has become one of the viewers; returns says that it is one
// that was lost.
func (s *Session) came(a *Attachment, returns bool) {
	w := &s.away
	if !a.mayType() {
		s.went() // it may have come in the place of one that could type
		return
	}
	if w.viewers++; !w.open {
		return
	}
	w.open, w.late = false, false
	if !w.lost || !returns {
		s.feed()
		_, end, _ := s.ring.Bounds()
		w.last, w.now.Back, w.now.Printed = w.now, s.cfg.Now(), 0
		w.last.Back, w.last.Printed = w.now.Back, end-min(end, w.last.from())
	}
	w.now, w.lost = absence{}, false
}

// went is called when a viewer has gone, or was given up.
func (s *Session) went() {
	w := &s.away
	if w.viewers == 0 && !w.open {
		s.feed()
		_, end, _ := s.ring.Bounds()
		line := s.line()
		w.open, w.late = true, s.restoring != nil
		w.now = absence{Left: &protocol.Left{At: s.cfg.Now(), Offset: end, Line: line}}
		w.lost = true
		s.note()
	}
	if w.open && w.lost && !s.sizing.anyTyped() {
		w.lost, w.last = false, absence{}
		s.note()
	}
}

// line is the first line that is not whole, 0 while that is not known.
func (s *Session) line() (n uint64) {
	if s.restoring == nil && !s.degraded {
		s.guarded(func() { n = s.screen.Line() })
	}
	return n
}

// lateLine is called when there is a screen again.
func (s *Session) lateLine() {
	w := &s.away
	if !w.late {
		return
	}
	w.late = false
	if left := w.now.Left; left != nil {
		w.now.Left = &protocol.Left{At: left.At, Offset: left.Offset, Line: s.line()}
		s.note()
	}
}

// left is when the last viewer went; nil while somebody looks, and where nobody has.
func (w *away) left() *protocol.Left {
	if !w.open || w.lost {
		return nil
	}
	return w.now.Left
}

// Away returns what has happened while nobody looked.
func (s *Session) Away() (protocol.AwayInfo, error) {
	var info protocol.AwayInfo
	err := s.ask(answerTime, func() {
		s.feed()
		s.finishRestore()
		info = s.awayInfo()
	})
	return info, err
}

func (s *Session) awayInfo() protocol.AwayInfo {
	w := &s.away
	b := w.last
	if w.open && !w.lost {
		_, end, _ := s.ring.Bounds()
		b = w.now
		b.Printed = end - min(end, b.from())
	}
	return protocol.AwayInfo{
		Instance: s.instance, Left: b.Left, BackAt: b.Back, Printed: b.Printed, Bells: b.Bells,
		Notifications: b.Notifications, Commands: b.Commands, Ended: b.Ended,
	}
}

// viewers are those who look, in the order in which they came.
func (s *Session) viewers() []protocol.ViewerInfo {
	if len(s.attachments) == s.shadows {
		return nil
	}
	all := make([]*Attachment, 0, len(s.attachments))
	for a := range s.attachments {
		if !a.shadow {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *Attachment) int { return int(a.number) - int(b.number) })
	all = all[:min(len(all), protocol.MaxViewersInfo)]
	told := make([]protocol.ViewerInfo, len(all))
	for i, a := range all {
		told[i] = protocol.ViewerInfo{Client: a.spec.Client, Mode: a.spec.Mode, Since: a.since, Window: a.window}
	}
	return told
}

// tells takes the environment of a viewer that has come. One that comes back has told
// its own before.
func (s *Session) tells(a *Attachment, returns bool) {
	if len(a.spec.Env) > 0 && a.mayType() && (!returns || s.viewerEnv == nil) {
		s.viewerEnv = slices.Clone(a.spec.Env)
	}
}

// Environment returns that of the last viewer that told its own, as K=V.
func (s *Session) Environment() ([]string, error) {
	env := []string{}
	if err := s.ask(answerTime, func() { env = append(env, s.viewerEnv...) }); err != nil {
		return nil, err
	}
	return env, nil
}
