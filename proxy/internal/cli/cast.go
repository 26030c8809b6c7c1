package cli

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
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/sysexits"
)

// castHeader is the first line of an asciicast of version 2.
type castHeader struct {
	Version       int               `json:"version"`
	Width         int               `json:"width"`
	Height        int               `json:"height"`
	Timestamp     int64             `json:"timestamp,omitempty"` // the beginning of the recording, in Unix time
	IdleTimeLimit float64           `json:"idle_time_limit,omitempty"`
	Title         string            `json:"title,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
}

func newCastHeader(s *protocol.SessionInfo, began time.Time) castHeader {
	title := s.Title
	if title == "" {
		title = commandLine(s.Argv)
	}
	env := map[string]string{"TERM": "xterm-256color"} // the supervisor sets it
	if shell := os.Getenv("SHELL"); shell != "" {
		env["SHELL"] = shell
	}
	return castHeader{Version: 2, Width: s.Size.Cols, Height: s.Size.Rows, Timestamp: began.Unix(), Title: title, Env: env}
}

// A castWriter writes an asciicast: a header, and a line for each event. It writes each line with
// one call, so that the lines before a crash are a valid asciicast.
type castWriter struct {
	w             io.Writer
	output, input textStream
	last          time.Duration // time of the previous event, because times must not decrease
}

// line writes v as one line of JSON.
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

// event writes one event.
func (c *castWriter) event(at time.Duration, kind, data string) error {
	c.last = max(c.last, at)
	return c.line([]any{math.Round(c.last.Seconds()*1e6) / 1e6, kind, data})
}

// text writes an event, unless data is empty because no character is complete.
func (c *castWriter) text(at time.Duration, kind string, data string) error {
	if data == "" {
		return nil
	}
	return c.event(at, kind, data)
}

// writeOutput writes an event of output.
func (c *castWriter) writeOutput(at time.Duration, p []byte) error {
	return c.text(at, "o", c.output.take(p))
}

// writeInput writes an event of input.
func (c *castWriter) writeInput(at time.Duration, p []byte) error {
	return c.text(at, "i", c.input.take(p))
}

// writeSize writes an event of a new size.
func (c *castWriter) writeSize(at time.Duration, size protocol.Size) error {
	return c.event(at, "r", size.String())
}

// flush writes the incomplete characters that are still held back.
func (c *castWriter) flush(at time.Duration) error {
	return errors.Join(c.text(at, "o", c.output.end()), c.text(at, "i", c.input.end()))
}

// A textStream splits a stream of bytes at characters: the beginning of an incomplete character is
// returned together with the bytes that complete it. JSON encodes bytes that are not UTF-8 as
// U+FFFD.
type textStream struct{ rest []byte }

// take returns the complete characters of the stream so far.
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

// end returns the incomplete character at the end of the stream.
func (s *textStream) end() string {
	text := string(s.rest)
	s.rest = nil
	return text
}

// openCast opens the file of a recording; "-" stands for out. If goOn is set and the file has a
// recording, openCast returns its length, and w appends to it.
func openCast(name string, out io.Writer, overwrite, goOn bool) (w io.Writer, length time.Duration, done func() error, err error) {
	if name == "-" {
		return out, 0, func() error { return nil }, nil
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600) // the recording may contain secrets
	if err != nil {
		return nil, 0, nil, exitcode.New(sysexits.CantCreate, err.Error())
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
	case !lockFile(f):
		err = exitcode.New(sysexits.CantCreate, name+" is written by another recorder")
	case overwrite:
		err = f.Truncate(0)
	case info.Size() == 0:
	case goOn:
		length, err = castEnd(f)
		if err == nil && length == 0 {
			length = 1 // the file has only a header, which must not be written again
		}
	default:
		err = exitcode.New(sysexits.CantCreate, name+" exists; --overwrite replaces it")
	}
	if err != nil {
		return nil, 0, nil, errors.Join(err, f.Close())
	}
	return f, length, f.Close, nil
}

// castEnd seeks to the end of an asciicast and returns the time of its last event. It removes an
// incomplete line, which a crash may have left, and completes an event that lacks only the line end.
func castEnd(f *os.File) (time.Duration, error) {
	refuse := func(reason string) error {
		return exitcode.New(sysexits.Usage, f.Name()+" is not an asciicast of version 2, so --append cannot continue it"+reason)
	}
	r := bufio.NewReader(f)
	var end int64
	var last time.Duration
	var missing string // the line end of the last event, if the file lacks that
	for first := true; ; first = false {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if first {
				return 0, refuse("")
			}
			if at, isEvent := eventTime(line); isEvent {
				last, end, missing = at, end+int64(len(line)), "\n"
			}
			break
		}
		if err != nil {
			return 0, err
		}
		if first {
			var h castHeader
			if json.Unmarshal(line, &h) != nil || h.Version != 2 {
				return 0, refuse("")
			}
		} else if len(bytes.TrimSpace(line)) > 0 {
			at, isEvent := eventTime(line)
			if !isEvent {
				return 0, refuse(fmt.Sprintf(": the line at byte %d is no event", end))
			}
			last = at
		}
		end += int64(len(line))
	}
	if err := f.Truncate(end); err != nil {
		return 0, err
	}
	if _, err := f.Seek(end, io.SeekStart); err != nil {
		return 0, err
	}
	_, err := f.WriteString(missing)
	return last, err
}

// eventTime returns the time of the event in a line, and whether the line is a complete event.
func eventTime(line []byte) (time.Duration, bool) {
	var event []json.RawMessage
	var at float64
	if json.Unmarshal(line, &event) != nil || len(event) != 3 || json.Unmarshal(event[0], &at) != nil {
		return 0, false
	}
	return time.Duration(at * float64(time.Second)), true
}
