package recorder

import "time"

// A pace tells how soon a step that stores output follows the one before, by the time that the last
// steps took.
type pace struct {
	slowest time.Duration // of the last steps; a later step counts for more than an earlier one
	faster  time.Duration // of the last two steps
	latest  time.Duration
}

// newPace expects that the first step takes a quarter of sync, because it creates the files.
func newPace(sync time.Duration) pace { return pace{slowest: sync / 4} }

// note notes how long a step took.
func (p *pace) note(d time.Duration) {
	p.slowest = max(d, p.slowest-p.slowest/4)
	p.faster, p.latest = min(p.latest, d), d
}

// pause returns the time from the end of a step to the next step, if there is a change. A change must
// be durable after the time sync. In the worst case it comes at the start of a step, waits for the end
// of that step and for the pause, and is durable at the end of the next step. Therefore pause subtracts
// the time of two steps, and an eighth of sync for a busy machine.
//
// If the disk is slow, the pause is half as long as a step, so that the disk rests for a third of the
// time. The disk counts as slow if the last two steps were slow. After a single slow step the next one
// comes at once, because the output of all that time waits for it.
func (p *pace) pause(sync time.Duration) time.Duration {
	return max(sync-sync/8-2*p.slowest, min(p.faster/2, sync))
}
