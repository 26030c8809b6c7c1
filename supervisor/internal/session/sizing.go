package session

import (
	"fmt"
	"time"

	"holdfast/protocol"
)

// A terminal has one size, and its viewers have windows of their own. Whose
// counts is the session's policy; who typed last is known under each of them,
// for that viewer is also asked what the terminal is like.

// reconnectTime is how long a viewer that was lost still counts: its client
// comes back over another proxy or connection, and nothing shall have changed.
const reconnectTime = 10 * time.Second

// sizing is owned by loop.
type sizing struct {
	policy  protocol.SizePolicy
	decider string          // the writer that typed last, or that came while nobody decided
	lost    map[string]lost // by writer
	alarm                   // runs while somebody is lost
}

// lost is a viewer whose connection broke.
type lost struct {
	number uint64
	window protocol.Size // zero where it does not count
	until  time.Time
	since  time.Time // when it came
	typed  bool      // it could
}

// lose keeps in mind a viewer that did not say good-bye.
func (z *sizing) lose(a *Attachment) {
	if z.lost == nil {
		z.lost = make(map[string]lost)
	}
	if a.shadow || len(z.lost) >= maxAttachments {
		return
	}
	l := lost{number: a.number, until: time.Now().Add(reconnectTime), since: a.since, typed: a.mayType()}
	if a.counts() {
		l.window = a.window
	}
	z.lost[a.spec.Writer] = l
	if z.c == nil {
		z.set(reconnectTime)
	}
}

// expireLost forgets those who did not come back.
func (s *Session) expireLost() {
	z := &s.sizing
	z.rang()
	now, first, gone := time.Now(), time.Time{}, false
	for writer, l := range z.lost {
		switch {
		case !l.until.After(now):
			delete(z.lost, writer)
			gone = true
		case first.IsZero() || l.until.Before(first):
			first = l.until
		}
	}
	if !first.IsZero() {
		z.set(first.Sub(now))
	}
	if gone {
		s.went()
		s.sizeUp()
		s.note()
	}
}

// anyTyped reports whether one of the lost could type.
func (z *sizing) anyTyped() bool {
	for _, l := range z.lost {
		if l.typed {
			return true
		}
	}
	return false
}

// counts reports whether a's window may be the session's size.
func (a *Attachment) counts() bool {
	return a.window != (protocol.Size{}) && a.spec.Mode != protocol.ModeReadOnly
}

// attachment returns the one that a writer types by, or nil.
func (s *Session) attachment(writer string) *Attachment {
	for a := range s.attachments {
		if a.spec.Writer == writer {
			return a
		}
	}
	return nil
}

// mayDecide reports whether nobody stands in the way of one who has not typed:
// whoever decides has gone, or has no say about the size that this one has.
func (s *Session) mayDecide(a *Attachment) bool {
	if l, ok := s.sizing.lost[s.sizing.decider]; ok {
		return l.window == (protocol.Size{}) && a.counts()
	}
	now := s.attachment(s.sizing.decider)
	return now == nil || !now.counts() && a.counts()
}

// decide makes a the one who decides from here on.
func (s *Session) decide(a *Attachment) {
	if a.spec.Mode == protocol.ModeReadOnly {
		return
	}
	if s.sizing.decider == a.spec.Writer {
		return
	}
	s.sizing.decider = a.spec.Writer
	s.chooseAnswerer()
	s.appears(a)
}

// typing is called before what a viewer has typed is accepted.
func (s *Session) typing(a *Attachment, p []byte) {
	if onlyReports(p) {
		return
	}
	s.decide(a)
	if s.sizing.policy == protocol.SizeLatest {
		s.sizeUp()
	}
}

// sizeUp gives the terminal the size that the policy wants, as far as it does.
func (s *Session) sizeUp() {
	size, ok := s.wanted()
	if !ok || size == s.size || s.open() != nil {
		return
	}
	if err := s.resize(size); err != nil {
		s.log.Warn().Err(err).Msg("size not changed")
	}
}

// wanted returns the size by the policy, and false if the policy wants none. It is not
// below SmallestCols and SmallestRows: a program that was given one column cannot show
// the others anything any more. A request may still ask for less.
func (s *Session) wanted() (protocol.Size, bool) {
	var size protocol.Size
	var owner uint64
	each := func(number uint64, window protocol.Size, decides bool) {
		none := size == (protocol.Size{})
		switch s.sizing.policy {
		case protocol.SizeLatest:
			if decides {
				size = window
			}
		case protocol.SizeOwner:
			if none || number < owner {
				size, owner = window, number
			}
		case protocol.SizeLargest:
			size = protocol.Size{Cols: max(size.Cols, window.Cols), Rows: max(size.Rows, window.Rows)}
		case protocol.SizeSmallest:
			if none {
				size = window
			}
			size = protocol.Size{Cols: min(size.Cols, window.Cols), Rows: min(size.Rows, window.Rows)}
		}
	}
	for a := range s.attachments {
		if a.counts() {
			each(a.number, a.window, a.spec.Writer == s.sizing.decider)
		}
	}
	for writer, l := range s.sizing.lost {
		if l.window != (protocol.Size{}) {
			each(l.number, l.window, writer == s.sizing.decider)
		}
	}
	if size == (protocol.Size{}) {
		return size, false
	}
	return protocol.Size{Cols: max(size.Cols, protocol.SmallestCols), Rows: max(size.Rows, protocol.SmallestRows)}, true
}

// SetSizePolicy changes whose size the session has; a size may come with it,
// which is the session's until the policy's next decision. Zeroes leave it.
// Errors: invalid_argument, and those of Resize.
func (s *Session) SetSizePolicy(policy protocol.SizePolicy, cols, rows int) error {
	if err := policy.Validate(); err != nil {
		return err
	}
	if policy == "" {
		return protocol.Errorf(protocol.CodeInvalidArgument, "size_policy is empty")
	}
	return s.request(func() error {
		if err := s.open(); err != nil {
			return err
		}
		s.sizing.policy = policy
		s.note()
		if cols != 0 || rows != 0 {
			return s.resize(protocol.Size{Cols: cols, Rows: rows}.Normalize())
		}
		s.sizeUp()
		return nil
	})
}

// appears takes over what programs may ask of a viewer's terminal. It is kept
// when the viewer goes.
func (s *Session) appears(a *Attachment) {
	look := a.spec.Appearance
	if look == nil || a.spec.Writer != s.sizing.decider || *look == s.appearance {
		return
	}
	width, height := s.appearance.Pixels(s.size)
	s.appearance = *look
	s.note()
	if s.restoring != nil { // it comes when that is over
		s.restoring.resized = true
	} else {
		s.guarded(func() { s.screen.SetAppearance(*look) })
		s.answerFor(s.screen) // the program may want to be told of the size in pixels
	}
	if w, h := look.Pixels(s.size); (w != width || h != height) && s.open() == nil {
		if err := s.setSize(s.size); err != nil {
			s.log.Warn().Err(err).Msg("size in pixels not changed")
		}
	}
}

// setSize tells the kernel.
func (s *Session) setSize(size protocol.Size) error {
	width, height := s.appearance.Pixels(size)
	if err := s.pty.Resize(size.Cols, size.Rows, width, height); err != nil {
		return fmt.Errorf("resize %s: %w", s.id, err)
	}
	return nil
}
