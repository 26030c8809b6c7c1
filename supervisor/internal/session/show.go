package session

import (
	"time"

	"holdfast/shared/rawio"
)

// feed shows the screen all that is in the ring. Who asks loop for something
// then sees what was printed before.
func (s *Session) feed() {
	_, end, _ := s.ring.Bounds()
	s.show(end)
}

// show feeds the screen up to an offset, as far as that has not been done, and
// sees to what the child has said to its terminal in it.
func (s *Session) show(end uint64) {
	if s.restoring != nil {
		if !s.hurries(end) {
			return // it comes to that
		}
		s.finishRestore()
	}
	from := s.screen.Offset()
	if from >= end {
		return
	}
	if s.degraded {
		s.screen.Skip(end)
		return
	}
	polite := end-from > courtesyPiece && s.cfg.courtesy.due(s)
	for ; from < end; from = s.screen.Offset() {
		n := end - from
		if polite {
			n = min(n, courtesyPiece)
			rawio.Yield()
		}
		s.guarded(func() { s.screen.Write(s.ring.View(from, int(n))) })
	}
	s.idle.touch()
	s.hear()
	s.answerWith(s.screen.Replies())
	s.tellNews()
	s.tellAwaits()
	s.mayFrame()
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
