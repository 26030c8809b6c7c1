package main

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"holdfast/protocol"
)

// reportEnv names the file in which a successor tells whoever started it how it
// gets on. It is a variable, because an older program is told of it in vain.
const reportEnv = "HOLDFAST_HANDOFF_REPORT"

// progress is one step of a handoff.
type progress struct {
	Step string  `json:"step"`  // linked, offered, compared, moved, serving; looked where it was only tried; failed
	AtMS float64 `json:"at_ms"` // since the successor began

	PID     int    `json:"pid,omitempty"`     // of the supervisor that is linked, the old proxy that has offered, the new one that serves
	Version string `json:"version,omitempty"` // the same one's

	Sessions int `json:"sessions,omitempty"`  // that the two proxies see alike,
	ByOutput int `json:"by_output,omitempty"` // of them by a piece of what they print,
	Unseen   int `json:"unseen,omitempty"`    // and that could not be compared

	Connections   int     `json:"connections,omitempty"` // that were moved
	Closed        int     `json:"closed,omitempty"`      // that could not be
	StallMedianMS float64 `json:"stall_median_ms,omitempty"`
	StallMaxMS    float64 `json:"stall_max_ms,omitempty"`

	Error string        `json:"error,omitempty"`
	Code  protocol.Code `json:"code,omitempty"`
}

// A report tells how a handoff gets on. One that is nil tells nobody.
type report struct {
	begun time.Time

	mu sync.Mutex
	f  *os.File
}

// openReport opens the file that we are asked for. What we start is not.
func openReport() *report {
	path := os.Getenv(reportEnv)
	if path == "" {
		return nil
	}
	_ = os.Unsetenv(reportEnv)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil // nobody listens any more
	}
	return &report{begun: time.Now(), f: f}
}

func (r *report) say(p progress) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.AtMS = ms(time.Since(r.begun))
	b, _ := json.Marshal(p) // of numbers and strings
	_, _ = r.f.Write(append(b, '\n'))
}

// end says why it ended, if it was for an error, and ends the report. Nothing is
// said after that.
func (r *report) end(err error) {
	if r == nil {
		return
	}
	if err != nil {
		r.say(progress{Step: "failed", Error: errorText(err), Code: protocol.CodeOf(err)})
	}
	_ = r.f.Close() // again, where it served
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
