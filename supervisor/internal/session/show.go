package session

import (
	"runtime"
	"time"

	"holdfast/protocol"
	"holdfast/shared/rawio"
)

// A few bytes may change every cell of a large screen. Therefore the work of one write to the
// screen is bounded by its cost (screen.WriteSome) and not by its length.
const (
	// cheapCost is what loop spends on a chunk when the chunk arrives: well under half a
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

// feed writes the unread bytes of the ring to the screen, so that a request sees the output
// that was printed before it. feed stops early after feedCost or feedTime. It yields to other
// goroutines between the pieces.
func (s *Session) feed() {
	_, end, _ := s.ring.Bounds()
	for left, begun := feedCost, time.Now(); left > 0 && time.Since(begun) < feedTime; {
		spent := s.writeToScreen(end, left)
		if left -= spent; spent == 0 || s.saved.Degraded || s.screen.Offset() >= end {
			return
		}
		rawio.Yield()
	}
}

// behind reports whether received output is not on the screen yet, or an urgent restoration is
// unfinished.
func (s *Session) behind() bool {
	if s.restoring != nil {
		return s.restoring.urgent
	}
	return s.screen.Offset() < s.received
}

// catchUp writes one piece of received output to the screen, or does one step of an urgent
// restoration. loop has taken a turn of Config.costlyTurns before; catchUp returns it. catchUp
// first yields to all other goroutines, also to those that the netpoller would wake, so that a
// link waits for one piece at most.
func (s *Session) catchUp() {
	rawio.Yield()
	if s.restoring != nil {
		s.restoreStep()
	} else {
		s.writeToScreen(s.received, pieceCost)
	}
	s.cfg.costlyTurns <- struct{}{}
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

// writeToScreen writes the ring's bytes up to end to the screen. It stops early when they have
// cost about budget or taken pieceTime, and returns the cost. The screen is resized at the
// offsets at which the terminal was. Afterwards writeToScreen handles the queries, titles,
// marks and bells in that output.
func (s *Session) writeToScreen(end uint64, budget int) (spent int) {
	if s.restoring != nil {
		if !s.isUrgent(end) {
			return 0 // the restoration writes these bytes later
		}
		if s.restoreTries == 0 {
			s.restoring.urgent = true // loop continues it in turns
			return 0
		}
		s.finishRestore() // a suspect screen may have to wait, which it must not do while it holds a turn
	}
	if s.saved.Degraded {
		s.screen.Skip(max(end, s.screen.Offset()))
		return 0
	}
	s.fitScreen()
	if s.childEnded && s.lastBudget <= 0 {
		s.skipRemainder(end)
	}
	from := s.screen.Offset()
	if from >= end {
		return 0
	}
	polite := end-from > courtesyPiece && s.cfg.courtesy.due(s)
	for begun := time.Now(); from < end && spent < budget && !s.saved.Degraded && (spent == 0 || time.Since(begun) < pieceTime); {
		n := end - from
		if m, ok := s.ring.NextMark(from); ok {
			n = min(n, m.Offset-from)
		}
		if polite {
			n = min(n, courtesyPiece)
			rawio.Yield()
		}
		s.recoverPanic(func() {
			cost := s.screen.WriteSome(s.ring.View(from, int(n)), min(budget-spent, stepCost))
			spent += cost
			s.lastBudget -= cost
			s.keyframe.cost += cost
		})
		s.fitScreen()
		from = s.screen.Offset()
	}
	s.lastWasCostly = spent >= cheapCost
	s.idle.touch()
	s.processHeard()
	s.sendReplies(s.screen)
	s.publishScreenEvents()
	s.notifyAwaits()
	s.renewKeyframe()
	return spent
}

// skipRemainder omits the last output of an ended child, up to end, from the screen, because it
// costs too much.
func (s *Session) skipRemainder(end uint64) {
	if from := s.screen.Offset(); from < end {
		s.log.Warn().Uint64("bytes", end-from).Msg("last output costs too much to show; the exit record has the lines before it")
		s.screen.Skip(end)
		s.fitScreen()
	}
}

// shownSize returns the size of the screen's content. It differs from the terminal's size while
// the screen has not reached the last resize.
func (s *Session) shownSize() protocol.Size {
	if s.restoring != nil || s.saved.Degraded {
		return s.size
	}
	return s.screen.Size()
}

// fitScreen resizes the screen to the size that the terminal had at the screen's offset.
func (s *Session) fitScreen() {
	if size := s.ring.SizeAt(s.screen.Offset()); size != s.screen.Size() && !s.saved.Degraded {
		s.recoverPanic(func() { s.screen.Resize(size) })
		s.sendReplies(s.screen) // the program may have asked to be notified
	}
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

// idle is an alarm that runs until the session is idle.
type idle struct {
	alarm
	touched bool // activity since the alarm was set
}

// touch notes activity of the session.
func (i *idle) touch() {
	if i.c != nil {
		i.touched = true
		return
	}
	i.set(idleAfter)
}

func (s *Session) becomeIdle() {
	i := &s.idle
	i.disarm()
	if i.touched {
		i.touched = false
		i.touch()
		return
	}
	if s.restoring != nil {
		return
	}
	s.recoverPanic(s.screen.Pack)
	s.inspectChild()
	if !s.writeWholeKeyframe() {
		i.touch()
	}
}

// screenEventInterval is the shortest time between two rounds of events that a program causes.
// Without it, titles that spin and bells that ring all the time would drive other events out of
// the hub.
const screenEventInterval = 100 * time.Millisecond

// publishScreenEvents publishes the titles, bells and notifications that the program has sent
// to its terminal. If events were published less than screenEventInterval ago, it waits for the
// alarm.
func (s *Session) publishScreenEvents() {
	if s.eventAlarm.c != nil || s.restoring != nil {
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
	s.noteChange() // the counts of bells have changed
	s.eventAlarm.set(screenEventInterval)
}
