package session

// phase is a part of the life of an attachment. While it is attached, pausing or paused, the
// session may have it among its viewers; afterwards it never has.
//
//	           pause              tell paused
//	attached ─────────▶ pausing ──────────────▶ paused
//	    ▲                  │                      │
//	    └──── unpause ─────┴──────────────────────┘
//
//	attached, pausing, paused ── detach ──▶ ended ────┐
//	attached, pausing, paused ── steal ───▶ stolen ───┼── finish ──▶ over
//	attached, pausing ────────────────────────────────┘
//
// If the session ends, Next finishes an attachment that was neither detached nor stolen.
type phase int

const (
	phaseAttached phase = iota // Next returns items
	phasePausing               // Next is about to return ItemPaused
	phasePaused                // Next has returned ItemPaused, and blocks
	phaseEnded                 // the attachment was removed from the session; Next is about to return io.EOF
	phaseStolen                // another attachment took the place of this one; Next is about to return ItemStolen
	phaseOver                  // Next has returned its last item, and returns io.EOF from now on
)

// lifeEvent changes the phase of an attachment.
type lifeEvent int

const (
	onPause      lifeEvent = iota // the viewer is about to continue with another attachment
	onUnpause                     // the viewer continues with this one after all
	onTellPaused                  // Next returns ItemPaused
	onDetach                      // the session removes the attachment
	onSteal                       // the session removes the attachment in favour of another one
	onFinish                      // Next returns ItemStolen, ItemExited or io.EOF
)

// phases has all transitions. An event without an entry does not change the phase, because the
// session and the viewer act at the same time: for example, Pause may come after the end.
var phases = map[phase]map[lifeEvent]phase{
	phaseAttached: {onPause: phasePausing, onDetach: phaseEnded, onSteal: phaseStolen, onFinish: phaseOver},
	phasePausing:  {onUnpause: phaseAttached, onTellPaused: phasePaused, onDetach: phaseEnded, onSteal: phaseStolen, onFinish: phaseOver},
	phasePaused:   {onUnpause: phaseAttached, onDetach: phaseEnded, onSteal: phaseStolen},
	phaseEnded:    {onFinish: phaseOver},
	phaseStolen:   {onDetach: phaseEnded, onFinish: phaseOver},
}

// enter is the only function that changes the phase. a.mu must be held.
func (a *Attachment) enter(e lifeEvent) {
	if a.phase == phasePaused && (e == onDetach || e == onSteal) {
		a.echo = inputEcho{} // the attachment for which this one was paused delivers it
	}
	if to, ok := phases[a.phase][e]; ok {
		a.phase = to
	}
}

// change enters a phase and wakes Next.
func (a *Attachment) change(e lifeEvent) {
	a.mu.Lock()
	a.enter(e)
	a.mu.Unlock()
	a.notify()
}

// hasEnded reports whether the session has removed the attachment, or Next has returned its last
// item. a.mu must be held.
func (a *Attachment) hasEnded() bool { return a.phase >= phaseEnded }

// isPaused reports whether Next must not deliver items. a.mu must be held.
func (a *Attachment) isPaused() bool { return a.phase == phasePausing || a.phase == phasePaused }

// renewal tells whether a viewer must begin again with a snapshot. A greater value includes the
// lesser ones.
type renewal int

const (
	noRenewal   renewal = iota
	newSnapshot         // with as many lines as the viewer needs
	newLines            // with all lines, because the viewer's lines were cleared
)

// requestRenewal makes Next begin again with a snapshot.
func (a *Attachment) requestRenewal(kind renewal) {
	a.mu.Lock()
	a.renewal = max(a.renewal, kind)
	a.mu.Unlock()
	a.notify()
}

// acks decides when accepted input is acknowledged, see ackBytes.
type acks struct {
	accepted, acknowledged uint64
	isDue                  bool
	isTimerSet             bool // a timer is going to call expire
}

// accept notes that input was accepted up to an offset. wake tells that an acknowledgement is
// due; setTimer tells that the caller must call expire after ackDelay.
func (k *acks) accept(offset uint64) (wake, setTimer bool) {
	k.accepted = max(k.accepted, offset)
	switch {
	case k.accepted-k.acknowledged >= ackBytes:
		k.isDue = true
		return true, false
	case k.accepted > k.acknowledged && !k.isTimerSet:
		k.isTimerSet = true
		return false, true
	}
	return false, false
}

// expire notes that ackDelay is over.
func (k *acks) expire() { k.isTimerSet, k.isDue = false, true }

// take returns the offset to acknowledge, if that is due.
func (k *acks) take() (offset uint64, ok bool) {
	due := k.isDue
	k.isDue = false
	if !due || k.accepted == k.acknowledged {
		return 0, false
	}
	k.acknowledged = k.accepted
	return k.acknowledged, true
}
