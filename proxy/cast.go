package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"
	"unicode/utf8"

	"holdfast/protocol"
)

// castHeader is the first line of an asciicast, version 2.
type castHeader struct {
	Version       int               `json:"version"`
	Width         int               `json:"width"`
	Height        int               `json:"height"`
	Timestamp     int64             `json:"timestamp,omitempty"` // when it began, Unix time
	IdleTimeLimit float64           `json:"idle_time_limit,omitempty"`
	Title         string            `json:"title,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
}

func newCastHeader(s *protocol.SessionInfo, began time.Time) castHeader {
	title := s.Title
	if title == "" {
		title = commandLine(s.Argv)
	}
	env := map[string]string{"TERM": "xterm-256color"} // which the supervisor sets
	if shell := os.Getenv("SHELL"); shell != "" {
		env["SHELL"] = shell
	}
	return castHeader{Version: 2, Width: s.Size.Cols, Height: s.Size.Rows, Timestamp: began.Unix(), Title: title, Env: env}
}

// A castWriter writes an asciicast: a header, then a line for each event. Each is
// one write, so that what a crash leaves behind is one as well.
type castWriter struct {
	w             io.Writer
	output, input textStream
	last          time.Duration // of the event before: time does not go back
}

// line writes one value as one line.
func (c *castWriter) line(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := c.w.Write(b.Bytes())
	return err
}

func (c *castWriter) event(at time.Duration, kind, data string) error {
	c.last = max(c.last, at)
	return c.line([]any{math.Round(c.last.Seconds()*1e6) / 1e6, kind, data})
}

// text writes an event of text, if there is a whole character in it.
func (c *castWriter) text(at time.Duration, kind string, data string) error {
	if data == "" {
		return nil
	}
	return c.event(at, kind, data)
}

func (c *castWriter) printed(at time.Duration, p []byte) error {
	return c.text(at, "o", c.output.take(p))
}

func (c *castWriter) typed(at time.Duration, p []byte) error {
	return c.text(at, "i", c.input.take(p))
}

func (c *castWriter) resized(at time.Duration, size protocol.Size) error {
	return c.event(at, "r", size.String())
}

// flush writes halves of characters whose rest has not come.
func (c *castWriter) flush(at time.Duration) error {
	return errors.Join(c.text(at, "o", c.output.end()), c.text(at, "i", c.input.end()))
}

// A textStream makes text of bytes that come in pieces: a character that is cut in
// two goes with the later piece. What is no UTF-8 becomes U+FFFD when it is written.
type textStream struct{ rest []byte }

func (s *textStream) take(p []byte) string {
	p = append(s.rest, p...)
	whole := len(p)
	for i := len(p) - 1; i >= 0 && i >= len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if !utf8.FullRune(p[i:]) {
				whole = i
			}
			break
		}
	}
	s.rest = append([]byte(nil), p[whole:]...)
	return string(p[:whole])
}

func (s *textStream) end() string {
	text := string(s.rest)
	s.rest = nil
	return text
}

// openCast opens the file of a recording, "-" for out. For one that is gone on with
// it returns how long that is.
func openCast(name string, out io.Writer, overwrite, goOn bool) (w io.Writer, length time.Duration, done func() error, err error) {
	if name == "-" {
		return out, 0, func() error { return nil }, nil
	}
	flags := os.O_RDWR | os.O_CREATE
	if overwrite {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(name, flags, 0o600) // it may hold secrets
	if err != nil {
		return nil, 0, nil, &exitError{exitCantCreate, err.Error()}
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.Size() == 0 || !info.Mode().IsRegular():
	case goOn:
		length, err = castEnd(f)
		if err == nil && length == 0 {
			length = 1 // a header alone; it is not written again
		}
	default:
		err = &exitError{exitCantCreate, name + " exists; --overwrite replaces it"}
	}
	if err != nil {
		return nil, 0, nil, errors.Join(err, f.Close())
	}
	return f, length, f.Close, nil
}

// castEnd goes to the end of an asciicast, and returns the time of its last event.
// Half a line that a crash has left there is removed.
func castEnd(f *os.File) (time.Duration, error) {
	none := &exitError{exitUsage, f.Name() + " is no asciicast of version 2, so that --append has nothing to go on with"}
	r := bufio.NewReader(f)
	var end int64
	var last time.Duration
	for first := true; ; first = false {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if first {
				return 0, none
			}
			break
		}
		if err != nil {
			return 0, err
		}
		if first {
			var h castHeader
			if json.Unmarshal(line, &h) != nil || h.Version != 2 {
				return 0, none
			}
		} else if len(bytes.TrimSpace(line)) > 0 {
			var event []json.RawMessage
			var at float64
			if json.Unmarshal(line, &event) != nil || len(event) != 3 || json.Unmarshal(event[0], &at) != nil {
				return 0, fmt.Errorf("%w: byte %d", none, end)
			}
			last = time.Duration(at * float64(time.Second))
		}
		end += int64(len(line))
	}
	if err := f.Truncate(end); err != nil {
		return 0, err
	}
	_, err := f.Seek(end, io.SeekStart)
	return last, err
}
