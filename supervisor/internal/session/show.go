package session

import (
	"time"

	"holdfast/protocol"
	"holdfast/shared/rawio"
)

// A few bytes may change every cell of a large screen, so what is written to a
// screen at a time is bounded by its cost (screen.WriteSome) and not by its
// length.
const (
	// loop answers requests after each such piece of a chunk, which takes 1 or 2 ms.
	pieceCost = 1 << 20
	// A request waits for as much, some 50 to 100 ms: 2 MiB of text, which is more
	// than the chunks that lie between loop and the end of the ring. Only if a
	// program prints what is dear does the request see an older screen. Every
	// answer tells the offset that it is of.
	feedCost = 32 << 20
	// The exit record waits until what the child printed last is on the screen, but no
	// longer than this takes, about a third of a second, and lastPerByte for each byte
	// that is received after the child has ended. Text costs a tenth of that. Output
	// that is dearer is in the ring and reaches every viewer, but not the screen.
	lastCost    = 128 << 20
	lastPerByte = 256
)

// feed writes the unread bytes of the ring to the screen, so that a request sees
// what was printed before it; not all of them if they cost more than feedCost.
func (s *Session) feed() {
	_, end, _ := s.ring.Bounds()
	s.show(end, feedCost)
}

// behind reports whether there is more to write to the screen of the chunks that
// loop has received.
func (s *Session) behind() bool {
	return s.restoring == nil && s.screen.Offset() < s.received
}

// show writes the ring's bytes up to an offset to the screen, unless that was
// done before, until they have cost about budget. Then it sees to what the child
// has said to its terminal in them. The screen changes its size where the
// terminal has.
func (s *Session) show(end uint64, budget int) {
	if s.restoring != nil {
		if !s.hurries(end) {
			return // it comes to that
		}
		s.finishRestore()
	}
	if s.degraded {
		s.screen.Skip(max(end, s.screen.Offset()))
		return
	}
	s.fitScreen()
	if s.childEnded && s.lastBudget <= 0 {
		s.skipRest(end)
	}
	from := s.screen.Offset()
	if from >= end {
		return
	}
	polite := end-from > courtesyPiece && s.cfg.courtesy.due(s)
	for from < end && budget > 0 && !s.degraded {
		n := end - from
		if m, ok := s.ring.NextMark(from); ok {
			n = min(n, m.Offset-from)
		}
		if polite {
			n = min(n, courtesyPiece)
			rawio.Yield()
		}
		s.guarded(func() {
			cost := s.screen.WriteSome(s.ring.View(from, int(n)), budget)
			budget -= cost
			s.lastBudget -= cost
			s.framedCost += cost
		})
		s.fitScreen()
		from = s.screen.Offset()
	}
	s.idle.touch()
	s.hear()
	s.answerFor(s.screen)
	s.tellNews()
	s.tellAwaits()
	s.mayFrame()
}

// skipRest leaves out of the screen what a child that has ended printed last, up to an
// offset, because it is too dear.
func (s *Session) skipRest(end uint64) {
	if from := s.screen.Offset(); from < end {
		s.log.Warn().Uint64("bytes", end-from).Msg("the last output is too dear to show; the exit record has the lines before it")
		s.screen.Skip(end)
		s.fitScreen()
	}
}

// shownSize is the size of what the screen shows: that of the terminal, unless the
// screen has yet to come to its last change.
func (s *Session) shownSize() protocol.Size {
	if s.restoring != nil || s.degraded {
		return s.size
	}
	return s.screen.Size()
}

// fitScreen gives the screen the size that the terminal had where the screen has
// come to.
func (s *Session) fitScreen() {
	if size := s.ring.SizeAt(s.screen.Offset()); size != s.screen.Size() && !s.degraded {
		s.guarded(func() { s.screen.Resize(size) })
		s.answerFor(s.screen) // the program may want to be told
	}
}

// An alarm is a timer that is made when it is first needed, since most sessions
// never do. c is nil while it does not run.
type alarm struct {
	timer *time.Timer
	c     <-chan time.Time
}

func (a *alarm) set(d time.Duration) {
	if a.timer == nil {
		a.timer = time.NewTimer(d)
	} else {
		a.timer.Reset(d)
	}
	a.c = a.timer.C
}

// rang is to be called when c has been received from.
func (a *alarm) rang() { a.c = nil }

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// A session that prints nothing for idleAfter, or up to twice that, makes its
// screen small, and looks where its child is.
const idleAfter = 5 * time.Second

// idle runs while the session is not idle, and no longer.
type idle struct {
	alarm
	touched bool // since it was set
}

// touch says that the session is not idle.
func (i *idle) touch() {
	if i.c != nil {
		i.touched = true
		return
	}
	i.set(idleAfter)
}

func (s *Session) becomeIdle() {
	i := &s.idle
	i.rang()
	if i.touched {
		i.touched = false
		i.touch()
		return
	}
	if s.restoring != nil {
		return
	}
	s.guarded(s.screen.Pack)
	s.notice()
	if !s.frameWhole() {
		i.touch()
	}
}

// newsEvery is how often a session's program is heard at most: titles that
// spin and bells that ring on and on must not drive out other events.
const newsEvery = 100 * time.Millisecond

// tellNews publishes what the program has told its terminal, unless that was
// done a moment ago: then it is done when the alarm rings.
func (s *Session) tellNews() {
	if s.news.c != nil || s.restoring != nil {
		return
	}
	events := s.screen.Events()
	if len(events) == 0 {
		return
	}
	info := s.info()
	for _, e := range events {
		s.hub.Publish(e.Kind, &info, e.Notification)
	}
	s.note() // what was heard of it counts
	s.news.set(newsEvery)
}
