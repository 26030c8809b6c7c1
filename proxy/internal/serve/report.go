package serve

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/internal/exitcode"
)

// ReportEnv is the environment variable with the path of the file in which a successor reports its
// progress. It is not a flag, because an older program would refuse an unknown flag.
const ReportEnv = "HOLDFAST_HANDOFF_REPORT"

// Progress is one step of a handoff, as a line of JSON in the report of the successor.
type Progress struct {
	Step string  `json:"step"`  // linked, offered, compared, moved, serving; looked for a dry run; failed
	AtMS float64 `json:"at_ms"` // since the successor began

	PID     int    `json:"pid,omitempty"`     // of the supervisor (linked), the old proxy (offered) or the new one (serving)
	Version string `json:"version,omitempty"` // of the same process

	Sessions int `json:"sessions,omitempty"`  // sessions of which both proxies see the same output,
	ByOutput int `json:"by_output,omitempty"` // of them those compared by a part of their output,
	Unseen   int `json:"unseen,omitempty"`    // sessions that could not be compared,
	Skipped  int `json:"skipped,omitempty"`   // and those outside the sample

	Connections   int     `json:"connections,omitempty"` // connections that were moved
	Closed        int     `json:"closed,omitempty"`      // connections that could not be moved
	StallMedianMS float64 `json:"stall_median_ms,omitempty"`
	StallMaxMS    float64 `json:"stall_max_ms,omitempty"`

	Error string        `json:"error,omitempty"`
	Code  protocol.Code `json:"code,omitempty"`
}

// A report writes the progress of a handoff. A nil report writes nothing.
type report struct {
	begun time.Time

	mu sync.Mutex
	f  *os.File
}

// openReport opens the file that the environment names. It removes the variable, so that child
// processes do not inherit it.
func openReport() *report {
	path := os.Getenv(ReportEnv)
	if path == "" {
		return nil
	}
	_ = os.Unsetenv(ReportEnv)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil // the process that started this one has ended
	}
	return &report{begun: time.Now(), f: f}
}

// say writes a step.
func (r *report) say(p Progress) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.AtMS = ms(time.Since(r.begun))
	b, _ := json.Marshal(p) // cannot fail for numbers and strings
	_, _ = r.f.Write(append(b, '\n'))
}

// end writes the step failed if err is not nil, and closes the report. No step is written after
// that.
func (r *report) end(err error) {
	if r == nil {
		return
	}
	if err != nil {
		r.say(Progress{Step: "failed", Error: exitcode.Text(err), Code: protocol.CodeOf(err)})
	}
	_ = r.f.Close() // the file may already be closed
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
