// Package screen is a session's terminal without a display: what a viewer
// that comes later has to be shown.
//
// At present it remembers nothing of its own: a snapshot is what the ring
// holds, and text is that with the escape sequences taken out.
//
// Invariant: a snapshot and its offset belong together; the output from that
// offset on continues it.
//
// Not here: the bytes themselves (package ring), who looks (package session).
package screen

import (
	"bytes"
	"math"

	"holdfast/protocol"
)

// Source is where the bytes printed can be had again: the ring.
type Source interface {
	// Tail returns a copy of the last n bytes kept and the first one's offset.
	Tail(n int) ([]byte, uint64)
}

// How many bytes of output are looked at for lines of text: colours and
// redrawn progress bars make a line several times as long as it looks.
const (
	minText      = 16 << 10
	bytesPerLine = 1 << 10
)

// A Screen belongs to its session's owner goroutine.
type Screen struct {
	source Source
	size   protocol.Size
	end    uint64 // bytes written
}

// New returns the screen of a terminal that has printed nothing.
// scrollbackLines bounds the lines kept above the screen.
func New(size protocol.Size, scrollbackLines int, source Source) *Screen {
	_ = scrollbackLines // the ring is the bound while there is no grid
	return &Screen{source: source, size: size}
}

// Write takes what the child printed, in order.
func (s *Screen) Write(p []byte) { s.end += uint64(len(p)) }

// Resize changes the terminal's size.
func (s *Screen) Resize(size protocol.Size) { s.size = size }

// Snapshot returns bytes that bring a fresh terminal to this state, the output
// offset they stand for, and how many bytes printed before are not in it.
func (s *Screen) Snapshot() (data []byte, offset, missed uint64) {
	data, from := s.source.Tail(math.MaxInt)
	end := from + uint64(len(data))
	if from > 0 {
		data = dropFirstLine(data)
	}
	return Quiet(data), end, end - uint64(len(data))
}

// Text returns the last lines without escape sequences, at most n of them; 0
// is the terminal's height.
func (s *Screen) Text(n int) []string {
	if n <= 0 {
		n = s.size.Rows
	}
	data, from := s.source.Tail(max(minText, min(n, math.MaxInt/bytesPerLine)*bytesPerLine))
	if from > 0 {
		data = dropFirstLine(data)
	}
	lines := Plain(data)
	return lines[max(0, len(lines)-n):]
}

// dropFirstLine is for data whose beginning is missing: its first line may
// begin within an escape sequence. Where there is no other it is kept.
func dropFirstLine(data []byte) []byte {
	if i := bytes.IndexByte(data, '\n'); i >= 0 && i+1 < len(data) {
		return data[i+1:]
	}
	return data
}
