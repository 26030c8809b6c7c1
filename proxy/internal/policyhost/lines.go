package policyhost

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// maxLine is the number of bytes of a line that are logged.
const maxLine = 4 << 10

// lines is a writer that splits a program's output into lines. The goroutine that reads the
// output uses it and, for an instant at the end, the goroutine that flushes it.
type lines struct {
	says *says

	mu      sync.Mutex
	buf     []byte
	cut     int  // number of bytes of the line beyond maxLine
	isPanic bool // a panic was printed, so the next lines are its stack
}

func (s *says) lines() *lines { return &lines{says: s} }

// Write implements io.Writer. It waits if the program prints too fast.
func (l *lines) Write(b []byte) (int, error) {
	for n := len(b) + lineCost*bytes.Count(b, []byte{'\n'}); n > 0; n -= readBurst {
		_ = l.says.reads.WaitN(context.Background(), min(n, readBurst)) // fails only for more than a burst
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		part, remainder, hasNewline := bytes.Cut(b, []byte{'\n'})
		room := min(len(part), maxLine-len(l.buf))
		l.buf = append(l.buf, part[:room]...)
		l.cut += len(part) - room
		if hasNewline {
			l.flushLocked()
		}
		b = remainder
	}
	return n, nil
}

// end logs an unfinished last line and the number of dropped lines.
func (l *lines) end() {
	l.mu.Lock()
	l.flushLocked()
	l.mu.Unlock()
	l.says.logLost()
}

func (l *lines) flushLocked() {
	if len(bytes.TrimSpace(l.buf)) > 0 {
		parsed, ok := parseJSON(l.buf)
		if !ok {
			parsed = l.plainLocked(string(bytes.TrimSuffix(l.buf, []byte{'\r'})))
		}
		l.says.line(parsed, l.cut)
	}
	l.buf, l.cut = l.buf[:0], 0
}

// A line is a log line of the program, with its level and its fields.
type line struct {
	level  zerolog.Level
	text   string
	fields []field
}

type field struct {
	key   string
	value json.RawMessage
}

// parseJSON parses a line of hclog. The values are checked to be JSON and otherwise kept as they
// are, because a key may occur twice.
func parseJSON(b []byte) (line, bool) {
	var all map[string]json.RawMessage
	if json.Unmarshal(b, &all) != nil {
		return line{}, false
	}
	var level, text string
	if json.Unmarshal(all["@level"], &level) != nil || json.Unmarshal(all["@message"], &text) != nil {
		return line{}, false
	}
	l := line{level: levelOf(level), text: text}
	delete(all, "@level")
	delete(all, "@message")
	delete(all, "@timestamp")
	for _, k := range slices.Sorted(maps.Keys(all)) {
		key := k
		if key == "text" {
			key = "text_"
		}
		l.fields = append(l.fields, field{key, all[k]})
	}
	return l, true
}

var levels = map[string]zerolog.Level{
	"trace": zerolog.TraceLevel, "debug": zerolog.DebugLevel, "info": zerolog.InfoLevel, "warn": zerolog.WarnLevel, "error": zerolog.ErrorLevel,
}

func levelOf(name string) zerolog.Level {
	if l, ok := levels[strings.ToLower(name)]; ok {
		return l
	}
	return zerolog.InfoLevel
}

// plainLocked chooses the level of a plain line: the level in brackets if there is one, error for
// a panic and its stack, and info for any other line.
func (l *lines) plainLocked(text string) line {
	l.isPanic = l.isPanic || strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")
	level := zerolog.InfoLevel
	if name, _, ok := strings.Cut(strings.TrimPrefix(text, "["), "]"); ok && text[0] == '[' {
		level = levelOf(name)
	}
	if l.isPanic {
		level = zerolog.ErrorLevel
	}
	return line{level: level, text: text}
}
