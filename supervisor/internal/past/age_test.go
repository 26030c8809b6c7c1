package past

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// A clock that jumps ahead makes no output too old, also if the program ends meanwhile. Output that is really too old is
// deleted, also if no program ran for a long time.
func TestClockThatJumps(t *testing.T) {
	const day = 24 * time.Hour
	s, c := newStore(t)
	s.disk = systemDisk{}
	w, err := s.OpenWriter(Life{"a", "1"}, Full)
	testkit.Must(t, err)
	testkit.Must(t, w.SetMeta(Meta{}))
	for i := range uint64(10) {
		testkit.Must(t, w.Keyframe(10_000*i, []byte("k")), w.Append(10_000*i, bytes.Repeat([]byte{byte(i)}, 10_000)))
	}
	testkit.Must(t, w.Close())
	for i, name := range names(t, s.path(Life{"a", "1"})) {
		at := c.Add(time.Duration(i) * day)
		testkit.Must(t, os.Chtimes(filepath.Join(s.path(Life{"a", "1"}), name), at, at))
	}
	var ran time.Duration // by the program of s
	start := func() {
		s = New(s.dir, nil)
		ran, s.now = 0, c.now
		s.age.Now, s.age.Uptime = c.now, func() time.Duration { return ran }
	}
	run := func(d time.Duration) {
		c.advance(d)
		ran += d
	}
	start()
	for _, step := range []struct {
		name    string
		do      func()
		deleted int
	}{
		{"the first program", func() {}, 0},
		{"a day", func() { run(day) }, 0},
		{"eight days", func() { run(7 * day) }, 0},
		{"ten days and a half, of which the last one has made a segment too old", func() { run(2*day + day/2) }, 1},
		{"the clock jumps ten years ahead", func() { c.advance(3650 * day) }, 0},
		{"an hour with that clock", func() { run(time.Hour) }, 0},
		{"the next program starts with it", start, 0},
		{"22 hours with it, in which a segment becomes too old", func() { run(22 * time.Hour) }, 1},
		{"the clock is corrected", func() { c.advance(-3650 * day) }, 0},
		{"it jumps again", func() { c.advance(3650 * day) }, 0},
		{"23 hours with it", func() { run(23 * time.Hour) }, 1},
		{"it is corrected again", func() { c.advance(-3650 * day) }, 0},
		{"the clock jumps back", func() { c.advance(-3650 * day) }, 0},
		{"an hour with that clock", func() { run(time.Hour) }, 0},
		{"it is corrected", func() { c.advance(3650 * day) }, 0},
		{"the machine was off for three days", func() { c.advance(3 * day); start() }, 0},
		{"it runs for eight hours", func() { run(8 * time.Hour) }, 0},
		{"it was off for two days", func() { c.advance(2 * day); start() }, 0},
		{"it runs for eight hours again", func() { run(8 * time.Hour) }, 1},
		{"it was off for a night, and runs for the rest of a day", func() { c.advance(day / 2); start(); s.age.Time(); run(8 * time.Hour) }, 4},
	} {
		step.do()
		got, err := s.Trim(Policy{Age: 10 * day})
		testkit.Must(t, err)
		if got.Segments != step.deleted {
			t.Errorf("%s: %d segments are deleted, want %d", step.name, got.Segments, step.deleted)
		}
	}
}

// Segments that are written while the clock of the machine is far from the time are not older than others after the clock was
// corrected, whether the program knew the time before, or not.
func TestWrittenByWrongClock(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name  string
		knows bool          // an earlier program has noted the time
		wrong time.Duration // clock of the machine at its start, from the time
	}{
		{"the clock is broken", true, -20000 * day}, {"and no program has run before", false, -20000 * day},
		{"the clock begins where the machine was switched off", true, -40 * day}, {"the clock is ahead", true, 40 * day},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := newStore(t)
			var ran time.Duration
			start := func() {
				s = New(s.dir, nil)
				ran, s.now, s.disk = 0, c.now, stampingDisk{systemDisk{}, c}
				s.age.Now, s.age.Uptime = c.now, func() time.Duration { return ran }
			}
			run := func(d time.Duration) {
				c.advance(d)
				ran += d
			}
			trim := func() int {
				t.Helper()
				got, err := s.Trim(Policy{Age: 10 * day})
				testkit.Must(t, err)
				return got.Segments
			}
			if tt.knows {
				testkit.Must(t, os.MkdirAll(s.dir, 0o700))
				off := time.Duration(0)
				if tt.wrong == -40*day {
					off = tt.wrong
				}
				c.advance(off)
				start()
				for range 2 {
					trim()
					run(day)
				}
				trim()
				c.advance(-off)
			}
			c.advance(tt.wrong)
			start()
			w, err := s.OpenWriter(Life{"a", "1"}, Full)
			testkit.Must(t, err)
			testkit.Must(t, w.SetMeta(Meta{}))
			for i := range uint64(10) {
				testkit.Must(t, w.Keyframe(10_000*i, []byte("k")), w.Append(10_000*i, bytes.Repeat([]byte{byte(i)}, 10_000)), w.Sync())
				if n := trim(); n > 0 {
					t.Errorf("%d segments are deleted before the clock is corrected", n)
				}
			}
			testkit.Must(t, w.Close())
			run(time.Hour)
			c.advance(-tt.wrong)
			for range 9 {
				if n := trim(); n > 0 {
					t.Errorf("%d segments are deleted %v after they were written", n, ran)
				}
				run(day)
			}
			run(2 * day)
			if n := trim(); n != 8 {
				t.Errorf("%d segments are deleted after 11 days, want all 8 that are not needed", n)
			}
		})
	}
}

// A stampingDisk has files whose times are those of a clock.
type stampingDisk struct {
	disk
	clock *clock
}

func (d stampingDisk) Rename(from, to string) error {
	return errors.Join(os.Chtimes(from, d.clock.now(), d.clock.now()), d.disk.Rename(from, to))
}
