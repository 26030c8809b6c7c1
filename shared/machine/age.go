package machine

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	// maxStep is how far the clock of the machine may be from the time that programs have seen pass. A machine that was
	// off for a night is within it.
	maxStep = 24 * time.Hour
	// maxDoubt is how long programs must have run until a clock that is further away is believed.
	maxDoubt = 24 * time.Hour
	// saveEvery is how much time a program that ends may forget.
	saveEvery = 10 * time.Minute
	// startTime is how long a program may write files before it calls Time for the first time.
	startTime = time.Minute
)

// An AgeClock tells the time by which the age of stored data counts, for a program that deletes old data. It follows the
// clock of the machine, unless that clock was set by more than maxStep, because a machine that starts with a wrong clock,
// or corrects one, would make all data too old at once. A machine that was off for longer looks the same. So the clock of
// the machine is believed when programs have run for maxDoubt and it has not come back. Until the first program has done
// so, no data has an age.
//
// Data that was written by a clock that was then set by more than maxStep gets the time that the new clock would have shown,
// when that one is believed.
//
// A file tells later programs the time that earlier ones have seen. If it cannot be written, they doubt the clock for longer.
type AgeClock struct {
	Path   string               // of the file; "": there is none
	Data   string               // directory of the stored files, whose times are corrected; "": the files are elsewhere
	Now    func() time.Time     // the clock of the machine; nil: time.Now
	Uptime func() time.Duration // the time that passes, whatever that clock shows; nil: that since the first call of Time

	mu       sync.Mutex
	isLoaded bool
	state    ageState
	began    time.Time     // when the present clock was set, or this program was started
	lastNow  time.Time     // clock of the machine at the last call of Time
	last     time.Duration // Uptime of that call
	saved    time.Duration // Uptime when the file was written

	firstRead  time.Time // when read was called for the first time
	sinceStart time.Duration
}

// An ageState is the content of the file.
type ageState struct {
	Time     time.Time     `json:"time"` // the time that was believed last, and the time that programs have run since
	IsDoubt  bool          `json:"is_doubt"`
	Doubting time.Duration `json:"doubting_ns"`     // how long programs have run since the clock of the machine was found too far from Time
	Steps    []clockStep   `json:"steps,omitempty"` // how files are corrected when the clock is believed
}

// maxSteps bounds the steps of a clock that is set again and again. The files of older ones keep their times.
const maxSteps = 16

// A clockStep tells that the present clock of the machine is by ahead of the one by which files from From to To were written.
type clockStep struct {
	From, To time.Time
	By       time.Duration
}

// advance lets time pass, and returns the time by which age counts if the clock of the machine shows now.
func (s *ageState) advance(now time.Time, passed time.Duration) time.Time {
	s.Time = s.Time.Add(passed)
	if s.IsDoubt { // otherwise the clock may have been set just now
		s.Doubting += passed
	}
	if now.Sub(s.Time).Abs() <= maxStep || s.Doubting >= maxDoubt {
		*s = ageState{Time: now, Steps: s.Steps}
	} else {
		s.IsDoubt = true
	}
	if now.Before(s.Time) {
		return now
	}
	return s.Time
}

// Time returns the time by which age counts. A program must call it again and again, because a clock that is set
// between two calls is doubted from the second one on.
func (c *AgeClock) Time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, uptime := c.read()
	if !c.isLoaded {
		c.isLoaded, c.last, c.saved, c.lastNow = true, uptime, uptime-saveEvery, now
		c.began = now.Add(-startTime)
		if b, err := os.ReadFile(c.Path); err != nil || json.Unmarshal(b, &c.state) != nil {
			c.state = ageState{}
		}
	}
	passed := uptime - c.last
	if by := now.Sub(c.lastNow.Add(passed)); by.Abs() > maxStep {
		c.state.noteStep(clockStep{c.began, c.lastNow.Add(passed), by})
		c.began, c.saved = now, uptime-saveEvery
	}
	counted := c.state.advance(now, passed)
	c.last, c.lastNow = uptime, now
	var believed []clockStep
	if !c.state.IsDoubt && len(c.state.Steps) > 0 {
		believed, c.state.Steps, c.saved = c.state.Steps, nil, uptime-saveEvery
	}
	if c.Path != "" && uptime-c.saved >= saveEvery {
		if b, err := json.Marshal(c.state); err == nil && ReplaceFile(c.Path, bytes.NewReader(b), 0o600) == nil {
			c.saved = uptime // otherwise the next call tries again
		}
	}
	c.correct(believed) // after the file has no step any more, because no file may be corrected twice
	return counted
}

// noteStep notes that the clock was set.
func (s *ageState) noteStep(step clockStep) {
	all := append(s.Steps, step)
	for i := range all[:len(all)-1] {
		all[i].By += step.By
	}
	all = slices.DeleteFunc(all, func(e clockStep) bool { return e.By.Abs() <= maxStep }) // that clock has come back
	s.Steps = all[max(0, len(all)-maxSteps):]
}

// correct gives the files of Data that were written before a step the times that the present clock would have shown. A file
// whose time cannot be changed keeps it.
func (c *AgeClock) correct(steps []clockStep) {
	if c.Data == "" || len(steps) == 0 {
		return
	}
	_ = filepath.WalkDir(c.Data, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // files beside it can be corrected nevertheless
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		for _, s := range steps {
			if at := info.ModTime(); !at.Before(s.From) && !at.After(s.To) {
				_ = os.Chtimes(path, time.Time{}, at.Add(s.By))
				break
			}
		}
		return nil
	})
}

// read returns what both clocks show.
func (c *AgeClock) read() (now time.Time, uptime time.Duration) {
	if c.firstRead.IsZero() {
		c.firstRead, c.sinceStart = time.Now(), sinceStart()
	}
	now = time.Now()
	uptime = max(now.Sub(c.firstRead), sinceStart()-c.sinceStart) // the first one is shorter if the machine has slept
	if c.Now != nil {
		now = c.Now()
	}
	if c.Uptime != nil {
		uptime = c.Uptime()
	}
	return now.Round(0), uptime // without the reading of the monotonic clock, which would decide in Sub
}
