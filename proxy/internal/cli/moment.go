package cli

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"holdfast/protocol"
)

// A moment is the value of a flag for a moment of a session's past.
type moment struct {
	text string
	at   **protocol.Moment
}

// MomentVar adds a flag for a moment.
func MomentVar(f *pflag.FlagSet, p **protocol.Moment, name, usage string) {
	f.Var(&moment{at: p}, name, usage)
}

// momentHelp describes the forms of a moment.
const momentHelp = "A MOMENT is an offset of the output (81920), a time (14:30, 2026-01-31, 2026-01-31 14:30:05, RFC 3339),\n" +
	"a time before now (-5m, -1h30m, -2d), or the end of a command of the shell: 'command -1' is the last\n" +
	"one that has ended, 'command -2' the one before."

// String implements pflag.Value.
func (m *moment) String() string { return m.text }

// Type implements pflag.Value.
func (m *moment) Type() string { return "moment" }

// Set implements pflag.Value.
func (m *moment) Set(text string) error {
	at, err := parseMoment(text, time.Now())
	if err != nil {
		return err
	}
	m.text, *m.at = text, at
	return nil
}

// parseMoment parses a moment.
func parseMoment(text string, now time.Time) (*protocol.Moment, error) {
	text = strings.TrimSpace(text)
	if n, ok := strings.CutPrefix(text, "command"); ok {
		i, err := strconv.Atoi(strings.TrimSpace(n))
		if err != nil || i >= 0 {
			return nil, errors.New("the command must be a negative number: -1 is the last one, -2 the one before")
		}
		return &protocol.Moment{Command: i}, nil
	}
	if ago, ok := strings.CutPrefix(text, "-"); ok {
		var d span
		switch err := d.Set(ago); {
		case errors.Is(err, errTooLong):
			return nil, err
		case err != nil || d < 0:
			return nil, errors.New("the time before now must be like -90s, -5m or -2d")
		}
		ms := time.Duration(d).Milliseconds()
		return &protocol.Moment{AgoMS: &ms}, nil
	}
	if text == "now" {
		return &protocol.Moment{AgoMS: new(int64)}, nil
	}
	if offset, err := strconv.ParseUint(text, 10, 64); err == nil {
		return &protocol.Moment{Offset: &offset}, nil
	}
	if t, ok := parseTime(text, now); ok {
		return &protocol.Moment{Time: t}, nil
	}
	return nil, errors.New("it must be an offset, a time such as 14:30 or 2026-01-31 14:30:05, a time before now such as -5m, or 'command -1'")
}

// parseTime parses a time. One without a date is the last such time before now.
func parseTime(text string, now time.Time) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, !t.IsZero()
		}
	}
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			t = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), now.Location())
			if t.After(now) {
				t = t.AddDate(0, 0, -1)
			}
			return t, true
		}
	}
	return time.Time{}, false
}
