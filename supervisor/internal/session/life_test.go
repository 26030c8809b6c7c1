package session

import "testing"

// Each event leads from each phase to exactly one other, or changes nothing.
func TestPhases(t *testing.T) {
	const same = -1
	events := []lifeEvent{onPause, onUnpause, onTellPaused, onDetach, onSteal, onFinish}
	for from, want := range map[phase][6]phase{
		phaseAttached: {phasePausing, same, same, phaseEnded, phaseStolen, phaseOver},
		phasePausing:  {same, phaseAttached, phasePaused, phaseEnded, phaseStolen, phaseOver},
		phasePaused:   {same, phaseAttached, same, phaseEnded, phaseStolen, same},
		phaseEnded:    {same, same, same, same, same, phaseOver},
		phaseStolen:   {same, same, same, phaseEnded, same, phaseOver},
		phaseOver:     {same, same, same, same, same, same},
	} {
		for i, e := range events {
			a := &Attachment{phase: from, echo: inputEcho{size: 1}}
			a.enter(e)
			if want := want[i]; want != same && a.phase != want || want == same && a.phase != from {
				t.Errorf("phase %d, event %d: now %d, want %d", from, e, a.phase, want)
			}
			if dropped := a.echo.size == 0; dropped != (from == phasePaused && (e == onDetach || e == onSteal)) {
				t.Errorf("phase %d, event %d: the echo is dropped: %v", from, e, dropped)
			}
		}
	}
}

// Accepted input is acknowledged once: at once if it is much, and otherwise after a delay.
func TestAcks(t *testing.T) {
	var k acks
	for _, tt := range []struct {
		name     string
		offset   uint64
		wake     bool
		setTimer bool
		expires  bool
		want     uint64 // acknowledged offset, or 0 for none
	}{
		{"a keystroke", 1, false, true, false, 0},
		{"another while the timer runs", 2, false, false, true, 2},
		{"the same again", 2, false, false, true, 0},
		{"much", 2 + ackBytes, true, false, false, 2 + ackBytes},
		{"a keystroke after it", 3 + ackBytes, false, true, true, 3 + ackBytes},
	} {
		if wake, setTimer := k.accept(tt.offset); wake != tt.wake || setTimer != tt.setTimer {
			t.Errorf("%s: wake %v, timer %v; want %v, %v", tt.name, wake, setTimer, tt.wake, tt.setTimer)
		}
		if tt.expires {
			k.expire()
		}
		if got, ok := k.take(); got != tt.want || ok != (tt.want > 0) {
			t.Errorf("%s: acknowledged %d, %v; want %d", tt.name, got, ok, tt.want)
		}
	}
}
