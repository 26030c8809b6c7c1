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
	const form = "it must be a time such as 90s, 10m or 1d, or a number of seconds"
	for text, want := range map[string]string{
		"": form, "soon": form, "d": form, "1w": form, "-": form, "1h5": form, "NaN": form, "nand": form,
		"1e300": errTooLong.Error(), "inf": errTooLong.Error(), "99999999h": errTooLong.Error(), "-99999999h30m": errTooLong.Error(), "99999999d": errTooLong.Error(),
	} {
		var s span
		if err := s.Set(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, %v, want %s", text, time.Duration(s), err, want)
		}
	}
}
