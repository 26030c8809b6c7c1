package policyhost

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// maxLine is what is logged of a line.
const maxLine = 4 << 10

// lines is a writer that makes lines of what a program prints. It has two users
// at most: who reads it, and for an instant at the end who flushes it.
type lines struct {
	says *says

	mu     sync.Mutex
	buf    []byte
	cut    int  // bytes of the line over maxLine
	panics bool // what follows is a stack
}

func (s *says) lines() *lines { return &lines{says: s} }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		part, rest, ended := bytes.Cut(b, []byte{'\n'})
		room := min(len(part), maxLine-len(l.buf))
		l.buf = append(l.buf, part[:room]...)
		l.cut += len(part) - room
		if ended {
			l.flushLocked()
		}
		b = rest
	}
	return n, nil
}

// end logs a last line that was not ended, and what was dropped.
func (l *lines) end() {
	l.mu.Lock()
	l.flushLocked()
	l.mu.Unlock()
	l.says.tellLost()
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

// A line is what was said with it.
type line struct {
	level  zerolog.Level
	text   string
	fields []field
}

type field struct {
	key   string
	value json.RawMessage
}

// parseJSON reads a line of hclog's. What a line may say twice is kept as it is:
// the fields are checked to be JSON, and not understood.
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

// plainLocked judges a line of text: by a level in brackets, and a panic with its
// stack is an error. Else it is info: who prints wants to be read.
func (l *lines) plainLocked(text string) line {
	l.panics = l.panics || strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")
	level := zerolog.InfoLevel
	if name, _, ok := strings.Cut(strings.TrimPrefix(text, "["), "]"); ok && text[0] == '[' {
		level = levelOf(name)
	}
	if l.panics {
		level = zerolog.ErrorLevel
	}
	return line{level: level, text: text}
}
