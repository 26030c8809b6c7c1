package cli

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1": time.Second, "0": 0, "1.5": 1500 * time.Millisecond, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1d": 24 * time.Hour, "10ms": 10 * time.Millisecond,
	} {
		var s span
		if err := s.Set(text); err != nil || time.Duration(s) != want {
			t.Errorf("%s: got %v, %v, want %v", text, time.Duration(s), err, want)
		}
	}
	for _, text := range []string{"", "soon", "d", "1w", "1e300", "NaN", "-"} {
		var s span
		if err := s.Set(text); err == nil {
			t.Errorf("%q was accepted as %v", text, time.Duration(s))
		}
	}
}
