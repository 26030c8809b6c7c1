package policyhost

import (
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"holdfast/shared/logging"
)

// A program's output is logged below one field, so that it cannot look like the proxy's own log.
// Its rate is limited to saysRate lines per second, with bursts of saysBurst lines.
const (
	saysField = "policy"
	saysRate  = 100
	saysBurst = 200
)

// readRate limits, in bytes per second, how fast the output is read, with bursts of readBurst bytes. It is ten times as much
// as saysRate lines of maxLine bytes. Each line counts as lineCost bytes more, because most of the time is needed for lines.
// A program that floods its output waits for its pipe, and does not keep a processor of the proxy busy.
const (
	readRate  = 10 * saysRate * maxLine
	readBurst = 1 << 20
	lineCost  = 100
)

// says writes a program's output to the proxy's log.
type says struct {
	log   zerolog.Logger
	limit *rate.Limiter // of lines
	reads *rate.Limiter // of bytes

	mu   sync.Mutex
	lost int    // dropped lines that are not logged yet
	last string // the last line that was not blank
}

func newSays(log zerolog.Logger) *says {
	return &says{log: log, limit: rate.NewLimiter(saysRate, saysBurst), reads: rate.NewLimiter(readRate, readBurst)}
}

// line logs one line, of which cut bytes are missing. If the rate is exceeded, the line is
// dropped and counted. The count is logged before the next line that is let through, or at the
// end.
func (s *says) line(l line, cut int) {
	if strings.TrimSpace(l.text) != "" {
		s.mu.Lock()
		s.last = l.text
		s.mu.Unlock()
	}
	if l.level < s.log.GetLevel() || l.level < zerolog.GlobalLevel() {
		return // does not count towards the rate
	}
	if !s.limit.Allow() {
		s.mu.Lock()
		s.lost++
		s.mu.Unlock()
		return
	}
	s.logLost()
	d := zerolog.Dict().Str("text", l.text)
	for _, f := range l.fields {
		d = d.RawJSON(f.key, f.value)
	}
	e := s.log.WithLevel(l.level).Dict(saysField, d)
	if cut > 0 {
		e = e.Int(logging.Missed, cut)
	}
	e.Msg("policy says")
}

// lastLine returns the last line of the program's output that is not blank, or "".
func (s *says) lastLine() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(s.last)
}

func (s *says) logLost() {
	s.mu.Lock()
	lost := s.lost
	s.lost = 0
	s.mu.Unlock()
	if lost > 0 {
		s.log.Warn().Int(logging.Count, lost).Msg("policy printed too many lines; some were dropped")
	}
}

// chatter returns a logger for go-plugin's own messages. It writes them with level debug, and
// drops trace messages.
func chatter(log zerolog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off})
	l.RegisterSink(&sink{log}) // sinks are the keys of a map, so they must be pointers; a logger cannot be one
	return l
}

type sink struct{ log zerolog.Logger }

// Accept implements hclog.SinkAdapter.
func (s *sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	if level >= hclog.Debug {
		s.log.Debug().Dict("go_plugin", zerolog.Dict().Str("text", msg).Fields(args)).Msg("policy's library says")
	}
}
