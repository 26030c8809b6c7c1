package session

import (
	"encoding/json"
	"testing"
	"time"
	"unsafe"

	"holdfast/shared/testkit"
)

// withClock returns the moment t, at which the clock of the machine shows another time. Package time has no way to make such a
// Time; the clock of the machine is set between two calls of time.Now.
func withClock(t time.Time, by time.Duration) time.Time {
	t = t.Add(by)
	(*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t)).ext -= int64(by) // the reading of the monotonic clock
	return t
}

// A session that is adopted was unused for the time that has passed, also if the clock of the machine was set before its
// state was saved, between that and the adoption, or after it, or the machine slept.
func TestUnusedIfClockIsSet(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, step := range []struct {
		name                   string
		before, between, after time.Duration
	}{
		{"not", 0, 0, 0}, {"ahead before", year, 0, 0}, {"ahead between", 0, year, 0}, {"ahead after", 0, 0, year},
		{"back before", -year, 0, 0}, {"back between", 0, -year, 0}, {"back after", 0, 0, -year}, {"all", year, -year, year},
	} {
		var old, adopted activity
		now := time.Now()
		old.last.set(now.Add(-time.Minute))
		var saved savedState
		saved.LastIO, saved.LastUse = old.save(withClock(now, step.before), time.Hour)
		data, err := json.Marshal(&saved)
		testkit.Must(t, err)
		saved = savedState{}
		testkit.Must(t, json.Unmarshal(data, &saved))
		now = now.Add(time.Minute)
		adopted.load(&saved, withClock(now, step.before+step.between), time.Hour+time.Minute)
		if got := withClock(now, step.before+step.between+step.after).Sub(adopted.last.get()); (got - 2*time.Minute).Abs() > time.Millisecond {
			t.Errorf("clock set %s: the session is unused for %v, want 2m", step.name, got)
		}
	}
}

// Clients find how long a session is unused by their own clocks, also if the clock of the machine was set since, or the
// machine slept.
func TestLastIOIfClockIsSet(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, tt := range []struct {
		name        string
		jump, slept time.Duration
		want        time.Duration // how long the session is unused
	}{
		{"not", 0, 0, time.Minute},
		{"ahead", year, 0, time.Minute},
		{"back", -year, 0, time.Minute},
		{"not, but the machine slept", 0, time.Hour, time.Hour + time.Minute},
		{"ahead, and the machine slept", year, time.Hour, time.Hour + time.Minute},
		{"back, and the machine slept", -year, time.Hour, time.Hour + time.Minute},
	} {
		var last instant
		now := time.Now()
		last.set(now.Add(-time.Minute))
		now = withClock(now, tt.jump+tt.slept) // the monotonic clock stands still while the machine sleeps
		got := last.shown(now, last.slept+tt.slept)
		if unused := now.Round(0).Sub(got); (unused - tt.want).Abs() > time.Millisecond {
			t.Errorf("clock set %s: the session is unused for %v, want %v", tt.name, unused, tt.want)
		}
	}
}

// For how long the machine has slept is read again if its clocks have diverged, as after a sleep, and only then.
func TestSleepIsReadAgain(t *testing.T) {
	var last instant
	first := time.Now()
	last.set(first)
	last.set(first.Add(time.Hour))
	if last.read != first {
		t.Errorf("read again at %v, although the clocks agree", last.read)
	}
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		now := withClock(first.Add(time.Hour), ahead)
		last.set(now)
		if last.read != now {
			t.Errorf("read at %v, and not since the clock is ahead by %v", last.read, ahead)
		}
	}
}

// An adopted session that has exited is not forgotten because the clock of the machine was set.
func TestKeepLeft(t *testing.T) {
	for ago, want := range map[time.Duration]time.Duration{
		0: 10 * time.Minute, 3 * time.Minute: 7 * time.Minute, 10 * time.Minute: 0, time.Hour: 10 * time.Minute, -time.Hour: 10 * time.Minute,
	} {
		if got := keepLeft(10*time.Minute, ago); got != want {
			t.Errorf("a session that exited %v ago is kept for %v, want %v", ago, got, want)
		}
	}
}
