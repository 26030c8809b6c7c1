package session

import (
	"sync"
	"time"

	"holdfast/shared/machine"
)

// useLag is how much older the last use in the saved state may be than the last use of a session. After a crash, a session
// looks unused for so much longer.
const useLag = 10 * time.Second

// activity is when a session was last in use.
type activity struct {
	*outdated
	last       instant   // when the session last printed or received input; any goroutine sets it
	lastOutput time.Time // when the session printed last; owned by loop
	saved      time.Time // last in the saved state; owned by loop
}

// noteUse notes that the session is in use. It is called in loop.
func (a *activity) noteUse(now time.Time) {
	a.last.set(now)
	if now.Sub(a.saved) > useLag {
		a.noteChange()
	}
}

// lastIO returns when the session was last in use, for clients. Any goroutine may call it.
func (a *activity) lastIO(now time.Time) time.Time { return a.last.shown(now, machine.Slept()) }

// save returns when the session was last in use: by the clock of the machine, and by the time that passes.
func (a *activity) save(now time.Time, uptime time.Duration) (last time.Time, lastUse time.Duration) {
	a.saved = a.last.get()
	if uptime > 0 {
		uptime -= now.Sub(a.saved)
	}
	return a.saved, uptime
}

// load notes when an adopted session was last in use. The time that passes counts, and not the clock of the machine, which
// may have been set since, unless the state is of an older program, or of a lost session, and has that clock alone.
func (a *activity) load(v *savedState, now time.Time, uptime time.Duration) {
	unused := now.Sub(v.LastIO)
	if v.LastUse > 0 && uptime > 0 {
		unused = uptime - v.LastUse
	}
	a.last.set(now.Add(-max(0, unused)))
}

// resume notes the last output of an adopted session, which may be older than its last input.
func (a *activity) resume() { a.lastOutput = a.last.get() }

// silentFor returns how long the session has not printed. If a mark is given, the time before the
// mark does not count. It is called in loop.
func (a *activity) silentFor(now time.Time, since *mark) time.Duration {
	from := a.lastOutput
	if since != nil && since.at.After(from) && !since.at.After(now) {
		from = since.at
	}
	return max(0, now.Sub(from))
}

// minJump is the shortest change of the clock for which instant.shown corrects a time. It is longer than any delay between
// two readings of clocks.
const minJump = 5 * time.Second

// instant is a time that loop sets with each piece of output and that any goroutine may read.
type instant struct {
	mu    sync.Mutex
	at    time.Time
	slept time.Duration // for how long the machine had slept
	read  time.Time     // when slept was read
}

// set sets the time to the present one, or one from which the machine has not slept since. The monotonic clock stands still
// while the machine sleeps, so for how long it has slept is read only if the clocks have diverged since: that takes two
// system calls, and set is called for each piece of output and input.
func (i *instant) set(at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if diverged := at.Round(0).Sub(i.read.Round(0)) - at.Sub(i.read); i.read.IsZero() || diverged.Abs() >= time.Second {
		i.slept, i.read = machine.Slept(), at
	}
	i.at = at
}

// shown returns the time as the clock of the machine would have shown it if the clock had been set before, and not since. A
// client that compares it with its own clock then finds how long ago it was.
func (i *instant) shown(now time.Time, slept time.Duration) time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	passed := now.Sub(i.at) + slept - i.slept
	if jump := now.Round(0).Sub(i.at.Round(0)) - passed; jump.Abs() >= minJump {
		return now.Round(0).Add(-passed)
	}
	return i.at
}

func (i *instant) get() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.at
}
