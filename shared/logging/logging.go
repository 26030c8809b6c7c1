// Package logging makes the one logger of a process, and holds the names of
// the fields it logs.
//
// The logger goes to standard error, or to a file that is rotated by size. It
// is made once, in main, and passed down; there is no global one.
//
// Invariant: what a user typed or a child printed is never logged, at no level.
// A line that would need it names its offset and length.
//
// Not here: metrics, and what is worth a line.
package logging

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// Defaults of Options.
const (
	DefaultMaxBytes = 10 << 20
	DefaultKeep     = 3
)

// maxCrash is how large a crash file may be before it is put aside. A crash
// with thousands of goroutines writes some megabytes.
const maxCrash = 8 << 20

// Options say where to log. The zero value logs to standard error.
type Options struct {
	Path     string // a file of mode 0600; default standard error
	MaxBytes int64  // size at which the file is put aside; default 10 MiB
	Keep     int    // files put aside that are kept, as PATH.1 (the newest) and so on; default 3
	Level    string // trace, debug, info, warn or error; default info
	Process  string // name of the process, in each line
}

// New returns a logger, and what closes its file. A file may be shared: two
// proxies in a handoff log to the same one.
func New(opts Options) (zerolog.Logger, io.Closer, error) {
	level, err := zerolog.ParseLevel(cmp.Or(opts.Level, "info"))
	if err != nil {
		return zerolog.Nop(), nil, fmt.Errorf("log level: %w", err)
	}
	out, err := open(opts)
	if err != nil {
		return zerolog.Nop(), nil, fmt.Errorf("log file: %w", err)
	}
	ctx := zerolog.New(out).Level(level).Hook(stamp{}).With()
	if opts.Process != "" {
		ctx = ctx.Str(Process, opts.Process)
	}
	return ctx.Logger(), out, nil
}

func open(opts Options) (io.WriteCloser, error) {
	if opts.Path != "" {
		return openRotated(opts.Path, cmp.Or(opts.MaxBytes, DefaultMaxBytes), cmp.Or(opts.Keep, DefaultKeep))
	}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return keepOpen{zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly}}, nil
	}
	return keepOpen{os.Stderr}, nil
}

// keepOpen is standard error, which is not ours to close.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// stamp puts the time into each line, to the millisecond. zerolog's own way to
// have that is a global variable.
type stamp struct{}

func (stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().Format("2006-01-02T15:04:05.000Z07:00"))
}

// CrashOutput has the runtime write a fatal error's stack traces to the file,
// too, since a daemon's standard error goes nowhere.
func CrashOutput(path string) error {
	f, err := openRotated(path, maxCrash, 1)
	if err != nil {
		return fmt.Errorf("crash output: %w", err)
	}
	defer f.Close() // the runtime has its own duplicate
	if f.size > maxCrash {
		if err := f.rotate(); err != nil {
			return fmt.Errorf("crash output: %w", err)
		}
	}
	if err := debug.SetCrashOutput(f.file, debug.CrashOptions{}); err != nil {
		return fmt.Errorf("crash output: %w", err)
	}
	return nil
}
