package apiserver

import "testing"

// Each event leads from each phase to exactly one later phase, or changes nothing. Goroutines that
// wait for a phase are woken when that phase or a later one begins, and not before.
func TestPhases(t *testing.T) {
	const same = -1
	events := []lifeEvent{onOwn, onFreeze, onHalt, onPause, onComplete, onTakeBack, onRelease, onEnd}
	table := map[phase][8]phase{
		phaseRestoring: {phaseServing, same, same, same, same, same, same, phaseEnded},
		phaseServing:   {same, phaseStopping, same, same, same, same, same, phaseEnded},
		phaseStopping:  {same, same, phaseHalted, same, same, same, same, phaseEnded},
		phaseHalted:    {same, same, same, phasePausing, same, same, same, phaseEnded},
		phasePausing:   {same, same, same, same, phaseFrozen, same, same, phaseEnded},
		phaseFrozen:    {same, same, same, same, same, phaseTakenBack, phaseReleased, same},
		phaseTakenBack: {same, same, same, same, same, same, phaseReleased, same},
		phaseReleased:  {same, same, same, same, same, same, same, same},
		phaseEnded:     {same, same, same, same, same, same, same, same},
	}
	if len(table) != int(phaseEnded)+1 || len(events) != int(onEnd)+1 {
		t.Fatalf("the table has %d phases and %d events", len(table), len(events))
	}
	for from, row := range table {
		for i, e := range events {
			l := &life{phase: from}
			var reached [phaseEnded + 1]<-chan struct{}
			for p := range reached {
				reached[p] = l.reached(phase(p))
			}
			changed := l.enter(e)
			want := row[i]
			if changed != (want != same) {
				t.Errorf("phase %d, event %d: changed %t", from, e, changed)
			}
			if want == same {
				want = from
			}
			if l.phase != want || !l.is(want) || l.isStopping() != (want >= phaseStopping) || want < from {
				t.Errorf("phase %d, event %d: now %d, want %d", from, e, l.phase, want)
			}
			for p, c := range reached {
				isClosed := false
				select {
				case <-c:
					isClosed = true
				default:
				}
				if wantClosed := phase(p) <= want; isClosed != wantClosed {
					t.Errorf("phase %d, event %d: phase %d is reached: %t, want %t", from, e, p, isClosed, wantClosed)
				}
			}
		}
	}
}
