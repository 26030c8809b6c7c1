package cli

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"holdfast/protocol"
)

func TestMoment(t *testing.T) {
	zone := time.FixedZone("zone", 3600)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, zone)
	at := func(year int, month time.Month, day, hour, minute, second int) *protocol.Moment {
		return &protocol.Moment{Time: time.Date(year, month, day, hour, minute, second, 0, zone)}
	}
	for text, want := range map[string]*protocol.Moment{
		"0":                         {Offset: new(uint64(0))},
		"81920":                     {Offset: new(uint64(81920))},
		"-5m":                       {AgoMS: new(int64(300_000))},
		"-2d":                       {AgoMS: new(int64(172_800_000))},
		"-90":                       {AgoMS: new(int64(90_000))},
		"now":                       {AgoMS: new(int64(0))},
		"command -1":                {Command: -1},
		" command  -20 ":            {Command: -20},
		"11:30":                     at(2026, 3, 1, 11, 30, 0),
		"14:30":                     at(2026, 2, 28, 14, 30, 0),
		"14:30:05":                  at(2026, 2, 28, 14, 30, 5),
		"2026-01-31":                at(2026, 1, 31, 0, 0, 0),
		"2026-01-31 14:30:05":       at(2026, 1, 31, 14, 30, 5),
		"2026-01-31T14:30:05+01:00": at(2026, 1, 31, 14, 30, 5),
		"":                          nil, "x": nil, "command": nil, "command 1": nil, "--5m": nil, "-": nil, "25:00": nil, "1.5": nil, "0001-01-01T00:00:00Z": nil,
	} {
		got, err := parseMoment(text, now)
		if want == nil {
			if err == nil {
				t.Errorf("%q was accepted as %+v, want an error", text, got)
			}
			continue
		}
		if err != nil || !got.Time.Equal(want.Time) {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
			continue
		}
		if got.Time = want.Time; !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A time before now that is too long is refused for that reason, and not for its form.
func TestMomentTooLong(t *testing.T) {
	for _, text := range []string{"-99999999h", "-99999999d"} {
		if _, err := parseMoment(text, time.Now()); !errors.Is(err, errTooLong) {
			t.Errorf("%q: got %v, want %v", text, err, errTooLong)
		}
	}
}

func FuzzMoment(f *testing.F) {
	for _, s := range []string{"12", "-5m", "command -1", "14:30", "2026-01-31 14:30:05"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := parseMoment(text, time.Unix(1e9, 0)); err == nil && m.Validate() != nil {
			t.Errorf("%q became %+v, which is not valid: %v", text, m, m.Validate())
		}
	})
}
