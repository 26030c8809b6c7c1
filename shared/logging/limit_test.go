package logging

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// A flood must cost a bounded number of lines, and the omitted lines must be counted.
func TestLimiter(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	l := &Limiter{now: func() time.Time { return now }}
	log, other := zerolog.New(&out), zerolog.New(&out).With().Str(Client, "c").Logger()
	lines := func() int { return strings.Count(out.String(), "\n") }
	for range 3000 {
		l.Of(log).Warn().Msg("refused")
		l.Of(other).Warn().Msg("refused") // the limit is shared by all connections
	}
	if lines() != limitBurst || strings.Contains(out.String(), LeftOut) {
		t.Errorf("%d lines, want %d", lines(), limitBurst)
	}
	out.Reset()
	now = now.Add(limitEvery)
	l.Of(log).Warn().Msg("refused")
	l.Of(log).Warn().Msg("refused")
	if want := `"left_out":5980`; lines() != 1 || !strings.Contains(out.String(), want) {
		t.Errorf("after a while: %s, want one line with %s", out.String(), want)
	}
	out.Reset()
	now = now.Add(time.Hour)
	for range 100 {
		l.Of(log).Warn().Msg("refused")
	}
	if lines() != limitBurst {
		t.Errorf("%d lines after an hour, want %d", lines(), limitBurst)
	}
}
