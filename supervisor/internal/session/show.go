package session

import (
	"runtime"
	"time"

	"holdfast/protocol"
	"holdfast/shared/rawio"
	"holdfast/supervisor/internal/screen"
)

// A few bytes may change every cell of a large screen. Therefore the work of one write to the
// screen is bounded by its cost (screen.WriteSome) and not by its length.
const (
	// cheapCost is the cost that loop spends on a chunk when the chunk arrives: well under half a
	// millisecond, and four times the cost of a chunk of text. Output that costs more waits for
	// a turn of costlyTurns.
	cheapCost = 256 << 10
	// After a piece of pieceCost, which takes about a millisecond, loop returns its turn and
	// answers requests. It does so after pieceTime as well, because some output takes longer
	// than its cost says. writeToScreen checks the time after each stepCost.
	pieceCost = 1 << 20
	stepCost  = 128 << 10
	pieceTime = time.Millisecond
	// feedCost bounds the output that a request waits for, some 50 to 100 ms. It suffices for 2
	// MiB of text, which is more than all chunks between loop and the end of the ring. Only if
	// the program prints costly output does a request see an older screen. Each answer tells
	// the offset to which it belongs.
	feedCost = 32 << 20
	// feedTime bounds the same wait in real time, in case other processes use the processors.
	// Text needs a fraction of it.
	feedTime = 250 * time.Millisecond
	// The exit record waits until the last output is on the screen. The wait is bounded by
	// lastCost, about a third of a second, and lastPerByte for each byte that is received after
	// the child has ended. Text costs a tenth of that. Output that costs more stays in the ring
	// and reaches each viewer, but not the screen.
	lastCost    = 128 << 20
	lastPerByte = 256
)

// askScreen calls f in loop when the screen contains the output so far, as far as feed comes, and returns its error.
//
// Errors besides: session_not_found, busy, and internal if the screen is lost.
func (s *Session) askScreen(f func(*screen.Screen) error) error {
	return s.request(func() error {
		err := screenLost(s.id) // stays if f panics
		s.feed()
		s.display.useRestored(func(sc *screen.Screen) { err = f(sc) })
		s.idle.touch()
		return err
	})
}

func screenLost(id protocol.SessionID) error {
	return protocol.Errorf(protocol.CodeInternal, "the screen of session %s is lost because of a defect of the terminal core; reopen the session to have one again", id)
}

// noteScreenLost tells awaiters and subscribers that the terminal core has panicked.
func (s *Session) noteScreenLost() {
	s.awaits.notify()
	s.noteChange()
	s.publishEvent(protocol.EventDegraded)
}

// noteScreenRestored continues the work that had to wait for the screen.
func (s *Session) noteScreenRestored() {
	s.idle.touch()
	s.awaits.notify()
	s.processHeard() // publishes the commands that no predecessor has published
	if s.exit == nil {
		s.publishScreenEvents()
	}
	if s.saved.Away.setLeftLine(s.display.firstOpenLine) {
		s.noteChange()
	}
}

// feed writes the unread bytes of the ring to the screen, so that a request sees the output
// that was printed before it. feed stops early after feedCost or feedTime. It yields to other
// goroutines between the pieces.
func (s *Session) feed() {
	_, end, _ := s.ring.Bounds()
	for left, begun := feedCost, time.Now(); left > 0 && time.Since(begun) < feedTime; {
		spent := s.writeToScreen(end, left)
		if left -= spent; spent == 0 || s.saved.Degraded || s.display.screen.Offset() >= end {
			return
		}
		rawio.Yield()
	}
}

// catchUp writes one piece of received output to the screen, or does one step of an urgent
// restoration. loop has taken a turn of Config.costlyTurns before; catchUp returns it. catchUp
// first yields to all other goroutines, also to those that the netpoller would wake, so that a
// link waits for one piece at most.
func (s *Session) catchUp() {
	rawio.Yield()
	if s.display.restoring != nil {
		s.display.restoreStep()
	} else {
		s.writeToScreen(s.display.received, pieceCost)
	}
	s.cfg.costlyTurns <- struct{}{}
}

// writeToScreen writes the ring's bytes up to end to the screen, as display.write does. Afterwards
// it handles the queries, titles, marks and bells in that output. It stops early where another viewer begins to respond.
func (s *Session) writeToScreen(end uint64, budget int) (spent int) {
	if s.display.restoring != nil {
		if !s.display.mustRestore(end, s.answers.current() == "") {
			return 0 // the restoration writes these bytes later
		}
		s.display.finishRestore()
	}
	if !s.saved.Degraded { // each piece has one responder
		end = min(end, s.answers.end(s.display.screen.Offset()))
	}
	spent, drew := s.display.write(end, budget)
	if !drew {
		return 0
	}
	s.idle.touch()
	s.processHeard()
	s.sendReplies(s.display.screen)
	s.publishScreenEvents()
	s.awaits.notify()
	if lines, isDue := s.display.keyframeDue(); isDue {
		s.display.writeKeyframe(lines)
	}
	return spent
}

// newCostlyTurns returns the turns that the sessions of a table share. A loop must hold a turn
// while it writes a piece of costly output. Without turns, loops that compute without a pause
// would share the processors evenly with the goroutines that answer requests. With 8 such loops
// an answer would wait for 8 pieces at each goroutine on its way. If this process has several
// processors (machine.Share), at least one of them never works on a turn.
func newCostlyTurns() chan struct{} {
	turns := make(chan struct{}, max(1, runtime.NumCPU()/2-1))
	for range cap(turns) {
		turns <- struct{}{}
	}
	return turns
}

// alarm is a timer that is made when it is first set, because most sessions never need it. c is
// nil while the timer does not run.
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

// disarm must be called after a receive from c.
func (a *alarm) disarm() { a.c = nil }

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// idleAfter is how long a session must not print, at least, until its screen is packed and
// its child inspected. It happens after twice that time at the latest.
const idleAfter = 5 * time.Second

// packDelay is how long a program that has adopted sessions packs none of them. If it dies before it has served for
// 10 s, the keeper may start a program of an earlier release, which does not know packed output and keyframes.
const packDelay = 15 * time.Second

// dropAfter is how long a session stays idle until its screen is dropped. A session that prints a line each time shortly after
// its screen was dropped costs some 20 ms of processor time a minute if its history is full.
const dropAfter = time.Minute

// idle is an alarm that runs until the session is idle, and then until its screen is dropped.
type idle struct {
	alarm
	touched bool // activity since the alarm was set
	isIdle  bool // the alarm runs until the screen is dropped
}

// touch notes activity of the session.
func (i *idle) touch() {
	if i.c != nil && !i.isIdle {
		i.touched = true
		return
	}
	i.isIdle = false
	i.set(idleAfter)
}

// begin notes that the session is idle.
func (i *idle) begin() {
	i.isIdle = true
	i.set(dropAfter)
}

// becomeIdle is called when the alarm of idle has expired.
func (s *Session) becomeIdle() {
	i := &s.idle
	i.disarm()
	if i.isIdle {
		i.isIdle = false
		// The screen stays if something depends on it that a restored one does not have: the position of a viewer or of an awaiter.
		if len(s.viewers.attached) == 0 && len(s.awaits) == 0 && s.eventAlarm.c == nil && !s.isLost() {
			s.display.drop()
		}
		return
	}
	if time.Now().Before(s.cfg.packFrom) {
		i.touch()
		return
	}
	if i.touched {
		i.touched = false
		i.touch()
		s.display.packOld()
		return
	}
	if s.display.restoring != nil {
		return
	}
	s.display.use(s.display.screen.Pack)
	s.ring.Pack()
	s.cfg.trimmer.request()
	s.inspectChild()
	i.begin()
	switch {
	case s.display.ringSuffices():
		s.display.eraseKeyframe()
	case s.display.isSaved():
	case s.cfg.frames.silence.Allow():
		s.display.writeKeyframe(allLines)
	default: // later
		i.touch()
	}
	s.settle()
	s.stateSlate.Trim()
}

// screenEventInterval is the shortest time between two rounds of events that a program causes.
// Without it, titles that spin and bells that ring all the time would drive other events out of
// the hub.
const screenEventInterval = 100 * time.Millisecond

// publishHeld publishes the events that wait because others of their kind were published shortly before.
// It must be called before a successor takes over, which does not know of them.
func (s *Session) publishHeld() {
	s.eventAlarm.disarm()
	s.publishScreenEvents()
	if kind := s.saved.commands.removeUnpublished(); kind != "" {
		s.publishEvent(kind)
	}
	s.publishPendingReports()
}

// publishScreenEvents publishes the titles, bells and notifications that the program has sent
// to its terminal. If events were published less than screenEventInterval ago, it waits for the
// alarm.
func (s *Session) publishScreenEvents() {
	if s.eventAlarm.c != nil || s.display.restoring != nil {
		return
	}
	events := s.display.screen.Events()
	if len(events) == 0 {
		return
	}
	info := s.info()
	for _, e := range events {
		s.hub.Publish(e.Kind, &info, maskNotification(e.Notification, s.masker))
	}
	s.noteChange() // the counts of bells have changed
	s.eventAlarm.set(screenEventInterval)
}
