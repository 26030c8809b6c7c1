package policyhost

import (
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"holdfast/shared/logging"
)

// What a program says is kept below one field, so that it cannot look like ours,
// and so much of it in a second and at once.
const (
	saysField = "policy"
	saysRate  = 100
	saysBurst = 200
)

// says takes a program's words to our log.
type says struct {
	log   zerolog.Logger
	limit *rate.Limiter

	mu   sync.Mutex
	lost int    // lines dropped and not told of
	last string // the last line that was not blank
}

func newSays(log zerolog.Logger) *says {
	return &says{log: log, limit: rate.NewLimiter(saysRate, saysBurst)}
}

// line logs one line, of which cut bytes are missing. Lines too many are counted,
// and told of with the next one that is let through, or at the end.
func (s *says) line(l line, cut int) {
	if strings.TrimSpace(l.text) != "" {
		s.mu.Lock()
		s.last = l.text
		s.mu.Unlock()
	}
	if l.level < s.log.GetLevel() || l.level < zerolog.GlobalLevel() {
		return // and costs nothing of the rate
	}
	if !s.limit.Allow() {
		s.mu.Lock()
		s.lost++
		s.mu.Unlock()
		return
	}
	s.tellLost()
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

// lastLine returns what the program said last, "" if it said nothing.
func (s *says) lastLine() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(s.last)
}

func (s *says) tellLost() {
	s.mu.Lock()
	lost := s.lost
	s.lost = 0
	s.mu.Unlock()
	if lost > 0 {
		s.log.Warn().Int(logging.Count, lost).Msg("policy says too much, lines were dropped")
	}
}

// chatter is a logger for go-plugin's own words: at debug, and nothing of trace.
func chatter(log zerolog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off})
	l.RegisterSink(&sink{log}) // they are keys of a map, and a logger is none
	return l
}

type sink struct{ log zerolog.Logger }

// Accept implements hclog.SinkAdapter.
func (s *sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	if level >= hclog.Debug {
		s.log.Debug().Dict("go_plugin", zerolog.Dict().Str("text", msg).Fields(args)).Msg("policy's library says")
	}
}
