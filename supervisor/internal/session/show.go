package session

import "time"

// feed shows the screen all that is in the ring. Who asks loop for something
// then sees what was printed before.
func (s *Session) feed() {
	_, end, _ := s.ring.Bounds()
	s.show(end)
}

// show feeds the screen up to an offset, as far as that has not been done, and
// sees to what the child has said to its terminal in it.
func (s *Session) show(end uint64) {
	from := s.screen.Offset()
	if from >= end {
		return
	}
	for ; from < end; from = s.screen.Offset() {
		s.screen.Write(s.ring.View(from, int(end-from)))
	}
	s.idle.touch()
	s.answer()
	s.tellNews()
}

// A session that prints nothing for idleAfter, or up to twice that, makes its
// screen small.
const idleAfter = 5 * time.Second

// idle has a timer that runs while the session is not idle, and no longer.
type idle struct {
	timer   *time.Timer
	c       <-chan time.Time // nil while the timer does not run
	touched bool             // since the timer was set
}

// touch says that the session is not idle.
func (i *idle) touch() {
	if i.c != nil {
		i.touched = true
		return
	}
	if i.timer == nil {
		i.timer = time.NewTimer(idleAfter)
	} else {
		i.timer.Reset(idleAfter)
	}
	i.c = i.timer.C
}

func (i *idle) stop() {
	if i.timer != nil {
		i.timer.Stop()
	}
	i.timer, i.c = nil, nil
}

func (s *Session) becomeIdle() {
	i := &s.idle
	i.c = nil
	if i.touched {
		i.touched = false
		i.touch()
		return
	}
	s.screen.Pack()
}

// newsEvery is how often a session's program is heard at most: titles that
// spin and bells that ring on and on must not drive out other events.
const newsEvery = 100 * time.Millisecond

// news has a timer that runs for newsEvery after something was told.
type news struct {
	timer   *time.Timer
	c       <-chan time.Time
	waiting bool
}

func (n *news) stop() {
	if n.timer != nil {
		n.timer.Stop()
	}
}

// tellNews publishes what the program has told its terminal, unless that was
// done a moment ago: then it is done a moment later.
func (s *Session) tellNews() {
	n := &s.news
	if n.waiting {
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
	if n.timer == nil {
		n.timer = time.NewTimer(newsEvery)
		n.c = n.timer.C
	} else {
		n.timer.Reset(newsEvery)
	}
	n.waiting = true
}
