package machine

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Age counts by a clock that was set far only after a day, also if the program was silent before, or ends meanwhile.
func TestAgeClock(t *testing.T) {
	const day = 24 * time.Hour
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now, uptime, path := begin, time.Duration(0), filepath.Join(t.TempDir(), "clock")
	var c *AgeClock
	start := func() {
		uptime = 0
		c = &AgeClock{Path: path, Now: func() time.Time { return now }, Uptime: func() time.Duration { return uptime }}
	}
	run := func(d time.Duration) { now, uptime = now.Add(d), uptime+d }
	for _, step := range []struct {
		name string
		do   func()
		want time.Duration // since begin; -1: before all data
	}{
		{"the first program", start, -1},
		{"most of a day", func() { run(day - time.Minute) }, -1},
		{"a day", func() { run(time.Minute) }, day},
		{"a silent week", func() { run(7 * day) }, 8 * day},
		{"a silent week, then the clock is set", func() { run(7 * day); now = now.Add(1000 * day) }, 15 * day},
		{"another program", start, 15 * day},
		{"most of a day with that clock", func() { run(day - time.Minute) }, 16*day - time.Minute},
		{"the clock is corrected", func() { now = now.Add(-1000 * day) }, 16*day - time.Minute},
		{"it is set back", func() { now = now.Add(-1000 * day) }, -984*day - time.Minute},
		{"and corrected after an hour", func() { run(time.Hour); now = now.Add(1000 * day) }, 16*day + 59*time.Minute},
		{"off for most of a day", func() { now = now.Add(day - time.Hour); start() }, 17*day - time.Minute},
		{"off for a week", func() { now = now.Add(7 * day); start() }, 17*day - time.Minute},
		{"half a day", func() { run(day / 2) }, 17*day + day/2 - time.Minute},
		{"off for a week again", func() { now = now.Add(7 * day); start() }, 17*day + day/2 - time.Minute},
		{"half a day again", func() { run(day / 2) }, 32*day - time.Minute},
		{"the file is torn", func() {
			if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
			start()
		}, -1},
	} {
		step.do()
		want := begin.Add(step.want)
		if step.want == -1 {
			want = time.Time{}
		}
		if got := c.Time(); want.IsZero() && got.After(begin.Add(-day)) || !want.IsZero() && !got.Equal(want) {
			t.Errorf("%s: the time is %v, want %v", step.name, got, want)
		}
	}
}
