// Package logging makes the logger of a process and defines the names of the fields of log
// lines.
//
// The logger writes to standard error, or to a file that is rotated when it reaches a size.
// main makes the logger and passes it down. There is no global logger.
//
// Invariant: input of a user and output of a child must never be logged, at no level. A line
// about such bytes contains their offset and length instead.
//
// Not here: metrics, and the decision which events are logged.
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
	defaultMaxBytes = 10 << 20
	defaultKeep     = 3
)

// maxCrash is the size in bytes above which a crash file is rotated before its next use. A
// crash with thousands of goroutines writes some megabytes.
const maxCrash = 8 << 20

// Options configure the logger. The zero value logs to standard error.
type Options struct {
	Path     string // path of a file of mode 0600; default: standard error
	MaxBytes int64  // size at which the file is rotated; default 10 MiB
	Keep     int    // number of rotated files, from PATH.1 (the newest) on; default 3
	Level    string // trace, debug, info, warn or error; default info
	Process  string // name of the process, for each line
}

// New returns a logger and the closer of its file. Several processes may use the same file, as
// two proxies do during a handoff.
func New(opts Options) (zerolog.Logger, io.Closer, error) {
	level, err := zerolog.ParseLevel(cmp.Or(opts.Level, "info"))
	if err != nil {
		return zerolog.Nop(), nil, fmt.Errorf("log level: %w", err)
	}
	out, err := open(opts)
	if err != nil {
		return zerolog.Nop(), nil, fmt.Errorf("log file: %w", err)
	}
	out = newQueue(out)
	ctx := zerolog.New(out).Level(level).Hook(stamp{}).With()
	if opts.Process != "" {
		ctx = ctx.Str(Process, opts.Process)
	}
	return ctx.Logger(), out, nil
}

func open(opts Options) (io.WriteCloser, error) {
	if opts.Path != "" {
		return openRotated(opts.Path, cmp.Or(opts.MaxBytes, defaultMaxBytes), cmp.Or(opts.Keep, defaultKeep))
	}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return keepOpen{zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly}}, nil
	}
	return keepOpen{os.Stderr}, nil
}

// A keepOpen writes to standard error. Close has no effect, because standard error must stay
// open.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// A stamp adds the time in milliseconds to each line. zerolog could add it only if a global
// variable were set.
type stamp struct{}

func (stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().Format("2006-01-02T15:04:05.000Z07:00"))
}

// CrashOutput makes the runtime write the stack traces of a fatal error to the file at path
// as well, because the standard error of a daemon is not kept.
func CrashOutput(path string) error {
	f, err := openRotated(path, maxCrash, 1)
	if err != nil {
		return fmt.Errorf("crash output: %w", err)
	}
	defer func() { _ = f.Close() }() // the runtime uses its own duplicate
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
