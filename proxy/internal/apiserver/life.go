package apiserver

import "sync"

// phase is a part of the life of a connection. It only becomes greater.
//
//	             own             freeze              halt            pause
//	restoring ────────▶ serving ────────▶ stopping ────────▶ halted ───────▶ pausing
//	    │                  │                 │                 │             │     │
//	    └───────┬──────────┴─────────────────┴─────────────────┴─────────────┘     │ complete
//	            │ end                                                              ▼
//	            ▼                                     released ◀── release ───── frozen
//	          ended                                       ▲                        │ take back
//	                                                      └────── release ───── takenBack
//
// A frozen connection does not end: it continues in another proxy, or in this one as another conn.
type phase int

const (
	phaseRestoring phase = iota // another proxy owns the connection; attachments are being made, and nothing is read or written
	phaseServing                // the reader handles frames
	phaseStopping               // the reader is about to stop at the next frame boundary
	phaseHalted                 // the reader has stopped; requests in progress are being recorded
	phasePausing                // each attachment is paused as soon as it is usable, and the last goroutines end
	phaseFrozen                 // nothing runs any more, and the record is complete
	phaseTakenBack              // this proxy continues the connection as another conn
	phaseReleased               // another conn or another proxy owns the connection
	phaseEnded                  // the connection was lost, was closed, or could not be frozen
)

// lifeEvent changes the phase of a connection.
type lifeEvent int

const (
	onOwn      lifeEvent = iota // the previous proxy has released the connection
	onFreeze                    // the connection is to be moved
	onHalt                      // the reader has stopped because of onFreeze
	onPause                     // requests in progress are recorded, so the attachments are paused
	onComplete                  // all goroutines have ended, and the record is complete
	onTakeBack                  // the move has failed
	onRelease                   // this conn is not needed any more
	onEnd                       // the reader has stopped for another reason, or the connection is given up
)

// phases has all transitions. An event without an entry does not change the phase, because the
// client and a handoff act at the same time: for example, a freeze may come after the end.
var phases = map[phase]map[lifeEvent]phase{
	phaseRestoring: {onOwn: phaseServing, onEnd: phaseEnded},
	phaseServing:   {onFreeze: phaseStopping, onEnd: phaseEnded},
	phaseStopping:  {onHalt: phaseHalted, onEnd: phaseEnded},
	phaseHalted:    {onPause: phasePausing, onEnd: phaseEnded},
	phasePausing:   {onComplete: phaseFrozen, onEnd: phaseEnded},
	phaseFrozen:    {onTakeBack: phaseTakenBack, onRelease: phaseReleased},
	phaseTakenBack: {onRelease: phaseReleased},
}

// A life holds the phase of a connection. Its methods may be called from any goroutine.
type life struct {
	mu      sync.Mutex
	phase   phase
	waiting [phaseEnded + 1]chan struct{} // closed when the phase or a later one begins; nil if no goroutine waits for it
}

// enter is the only function that changes the phase. It reports whether the event has done so.
func (l *life) enter(e lifeEvent) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	to, ok := phases[l.phase][e]
	if !ok {
		return false
	}
	l.phase = to
	for p, c := range l.waiting[:to+1] {
		if c != nil {
			close(c)
			l.waiting[p] = nil
		}
	}
	return true
}

// is reports whether the connection is in the phase p.
func (l *life) is(p phase) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase == p
}

// isStopping reports whether the reader stops or has stopped, because the connection is being moved or has ended.
func (l *life) isStopping() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase >= phaseStopping
}

// reached returns a channel that is closed when the phase p or a later one has begun.
func (l *life) reached(p phase) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase >= p {
		return alreadyReached
	}
	if l.waiting[p] == nil {
		l.waiting[p] = make(chan struct{})
	}
	return l.waiting[p]
}

// alreadyReached is a closed channel.
var alreadyReached = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()
