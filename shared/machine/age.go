package machine

import (
	"bytes"
	"encoding/json"
	"os"
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
)

// An AgeClock tells the time by which the age of stored data counts, for a program that deletes old data. It follows the
// clock of the machine, unless that clock was set by more than maxStep, because a machine that starts with a wrong clock,
// or corrects one, would make all data too old at once. A machine that was off for longer looks the same. So the clock of
// the machine is believed when programs have run for maxDoubt and it has not come back. Until the first program has done
// so, no data has an age.
//
// A file tells later programs the time that earlier ones have seen. If it cannot be written, they doubt the clock for longer.
type AgeClock struct {
	Path   string               // of the file; "": there is none
	Now    func() time.Time     // the clock of the machine; nil: time.Now
	Uptime func() time.Duration // the time that passes, whatever that clock shows; nil: that of this process

	mu       sync.Mutex
	isLoaded bool
	state    ageState
	began    time.Time
	last     time.Duration // Uptime of the last call of Time
	saved    time.Duration // Uptime when the file was written
}

// An ageState is the content of the file.
type ageState struct {
	Time     time.Time     `json:"time"` // the time that was believed last, and the time that programs have run since
	IsDoubt  bool          `json:"is_doubt"`
	Doubting time.Duration `json:"doubting_ns"` // how long programs have run since the clock of the machine was found too far from Time
}

// advance lets time pass, and returns the time by which age counts if the clock of the machine shows now.
func (s *ageState) advance(now time.Time, passed time.Duration) time.Time {
	s.Time = s.Time.Add(passed)
	if s.IsDoubt { // otherwise the clock may have been set just now
		s.Doubting += passed
	}
	if now.Sub(s.Time).Abs() <= maxStep || s.Doubting >= maxDoubt {
		*s = ageState{Time: now}
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
		c.isLoaded, c.last, c.saved = true, uptime, uptime-saveEvery
		if b, err := os.ReadFile(c.Path); err != nil || json.Unmarshal(b, &c.state) != nil {
			c.state = ageState{}
		}
	}
	counted := c.state.advance(now, uptime-c.last)
	c.last = uptime
	if c.Path != "" && uptime-c.saved >= saveEvery {
		if b, err := json.Marshal(c.state); err == nil && ReplaceFile(c.Path, bytes.NewReader(b), 0o600) == nil {
			c.saved = uptime // otherwise the next call tries again
		}
	}
	return counted
}

// read returns what both clocks show.
func (c *AgeClock) read() (now time.Time, uptime time.Duration) {
	if c.began.IsZero() {
		c.began = time.Now()
	}
	now, uptime = time.Now(), time.Since(c.began)
	if c.Now != nil {
		now = c.Now()
	}
	if c.Uptime != nil {
		uptime = c.Uptime()
	}
	return now.Round(0), uptime // without the reading of the monotonic clock, which would decide in Sub
}
