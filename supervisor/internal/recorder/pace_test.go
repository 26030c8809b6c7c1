package recorder

import (
	"math/rand/v2"
	"testing"
	"time"
)

// If no step takes more than a quarter of the time within which output must be durable, output is durable
// after at most nine eighths of that time, and the pauses are at least a quarter of it.
// demand: D1
func TestPaceOfFastDisk(t *testing.T) {
	const sync = time.Second
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	p := newPace(sync)
	before := time.Duration(r.Int64N(int64(sync / 4)))
	p.note(before)
	for range 10_000 {
		pause, step := p.pause(sync), time.Duration(r.Int64N(int64(sync/4)))
		if age := before + pause + step; age > sync+sync/8 || pause < sync/4 {
			t.Fatalf("seed %d: a step of %v, a pause of %v, a step of %v", seed, before, pause, step)
		}
		p.note(step)
		before = step
	}
}

// After one slow step the next one comes at once. If the disk stays slow, it rests for a third of the
// time, but never for longer than the time within which output should have been durable.
func TestPaceOfSlowDisk(t *testing.T) {
	const sync = time.Second
	p := newPace(sync)
	p.note(50 * time.Millisecond)
	p.note(900 * time.Millisecond)
	if got := p.pause(sync); got > 50*time.Millisecond {
		t.Errorf("the pause after one slow step is %v", got)
	}
	p.note(900 * time.Millisecond)
	if got := p.pause(sync); got != 450*time.Millisecond {
		t.Errorf("the pause after two slow steps is %v", got)
	}
	p.note(time.Minute)
	p.note(time.Minute)
	if got := p.pause(sync); got != sync {
		t.Errorf("the pause after two steps of a minute is %v", got)
	}
}
