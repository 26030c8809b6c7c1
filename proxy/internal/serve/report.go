package serve

import (
	"encoding/json"
	"os"
	"sync"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/handoff"
)

// A report writes the progress of a handoff. A nil report writes nothing.
type report struct {
	begun time.Time

	mu sync.Mutex
	f  *os.File
}

// openReport opens the file that the environment names. It removes the variable, so that child
// processes do not inherit it.
func openReport() *report {
	path := os.Getenv(handoff.ReportEnv)
	if path == "" {
		return nil
	}
	_ = os.Unsetenv(handoff.ReportEnv)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0) // the open of a pipe without a reader must not wait
	if err != nil {
		return nil // the process that started this one has ended
	}
	return &report{begun: time.Now(), f: f}
}

// say writes a step.
func (r *report) say(p handoff.Progress) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.AtMS = ms(time.Since(r.begun))
	b, _ := json.Marshal(p)           // cannot fail for numbers and strings
	_, _ = r.f.Write(append(b, '\n')) // fails only if the process that reads has ended
}

// end writes the step failed if err is not nil, and closes the report. No step is written after
// that.
func (r *report) end(err error) {
	if r == nil {
		return
	}
	if err != nil {
		r.say(handoff.Progress{Step: "failed", Error: exitcode.Text(err), Code: protocol.CodeOf(err), ExitCode: exitcode.Of(err)})
	}
	_ = r.f.Close() // the file may already be closed
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
