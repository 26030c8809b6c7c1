package cli

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

// A span is the value of a flag for a time: in Go's form (90s, 1h30m), in days (1d), or a plain
// number of seconds.
type span time.Duration

// noDefault is a default value that the help text omits.
const noDefault = "0"

var errTooLong = errors.New("the time is too long")

// spanForm matches a time in Go's form. If time.ParseDuration refuses such a text, the time is too
// long for a time.Duration (292 years).
// It is compiled when it is needed, because each command would do so at its start.
var spanForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-?(\d+(\.\d+)?(h|m|s|ms|us|µs|ns))+$`) })

// SpanVar adds a flag for a time.
func SpanVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*span)(p), name, usage)
	if value == 0 {
		f.Lookup(name).DefValue = noDefault
	}
}

// String implements pflag.Value.
func (s *span) String() string { return time.Duration(*s).String() }

// Type implements pflag.Value.
func (s *span) Type() string { return "duration" }

// Set implements pflag.Value.
func (s *span) Set(text string) error {
	unit, number := time.Second, text
	if days, ok := strings.CutSuffix(text, "d"); ok {
		unit, number = 24*time.Hour, days
	}
	if n, err := strconv.ParseFloat(number, 64); err == nil && !math.IsNaN(n) {
		d := n * float64(unit)
		if math.Abs(d) >= math.MaxInt64 {
			return errTooLong
		}
		*s = span(d)
		return nil
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && spanForm().MatchString(text):
		return errTooLong
	case err != nil:
		return errors.New("it must be a time such as 90s, 10m or 1d, or a number of seconds")
	}
	*s = span(d)
	return nil
}
