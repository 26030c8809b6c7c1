// Package screen is a session's terminal without a display: what a viewer
// that comes later has to be shown, and what the child's program says to
// whoever holds its terminal: its title, its questions.
//
// Invariant: a snapshot and its offset belong together; the output from that
// offset on continues it, be it within a sequence.
//
// Not here: the terminal itself (package vt, which only this one knows), the
// bytes (package ring), who looks and who answers (package session).
package screen

import (
	"math"
	"strconv"
	"strings"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vt"
)

const (
	// maxSnapshot is what a snapshot may take; for a longer one its history is
	// shortened. A screen alone may be longer.
	maxSnapshot = 8 << 20
	// A history of short lines takes little; one of long lines is bounded by
	// what they take, compressed as soon as the session is idle.
	minHistoryBytes = 16 << 20
	maxHistoryBytes = 64 << 20
)

// A Screen belongs to its session's owner goroutine.
type Screen struct {
	term   *vt.Term
	size   protocol.Size
	offset uint64 // bytes written
	events events
	heard  Heard // it is no part of what is saved: whoever saves a screen has taken it
}

// New returns the screen of a terminal that has printed nothing.
// scrollbackLines bounds the lines kept above the screen.
func New(size protocol.Size, scrollbackLines int) *Screen {
	s := &Screen{size: size}
	s.term = newTerm(size, min(max(scrollbackLines, 0), protocol.MaxScrollback), s.event)
	return s
}

// event is told of while a piece is written, which the offset is of.
func (s *Screen) event(v vt.Event) {
	s.events.add(v, s.offset)
	s.heard.add(v, s.offset)
}

func newTerm(size protocol.Size, lines int, events func(vt.Event)) *vt.Term {
	return vt.New(vt.Config{
		Cols: size.Cols, Rows: size.Rows, Events: events,
		HistoryLines: lines, HistoryBytes: min(max(lines<<10, minHistoryBytes), maxHistoryBytes),
	})
}

// Write takes what the child printed, in order.
func (s *Screen) Write(p []byte) { s.WriteSome(p, math.MaxInt) }

// WriteSome is Write that stops early: it takes bytes of p, at least one, until
// they have cost about budget, and returns that cost. Offset says how many it
// took. A budget of 1<<20 is some milliseconds, and at most 64 KiB.
func (s *Screen) WriteSome(p []byte, budget int) (cost int) {
	n, cost := s.term.WriteSome(p, budget)
	s.offset += uint64(n)
	return cost
}

// Offset returns how many bytes were written: what has the offset of the next
// one.
func (s *Screen) Offset() uint64 { return s.offset }

// Skip has the bytes up to an offset count as written, which nobody has: they are
// not kept any more, or not looked at.
func (s *Screen) Skip(offset uint64) { s.offset = offset }

// Size is the terminal's.
func (s *Screen) Size() protocol.Size { return s.size }

// Resize changes the terminal's size.
func (s *Screen) Resize(size protocol.Size) {
	s.size = size
	s.term.Resize(size.Cols, size.Rows)
}

// Clear forgets the lines above the screen, and with all also those on it, but the row with
// the cursor, which moves to the top; not while the alternate screen is shown.
func (s *Screen) Clear(all bool) { s.term.Clear(all) }

// Replies returns, once, what a terminal answers to the questions that were
// asked since.
func (s *Screen) Replies() []byte { return s.term.Replies() }

// RepliesAlone returns those of Replies that have to be given also if a viewer's
// terminal answers the others.
func (s *Screen) RepliesAlone() []byte { return s.term.RepliesAlone() }

// TellSize has Replies tell the program of its size, if it wants to be told.
func (s *Screen) TellSize() { s.term.TellSize() }

// Line is the number of the first line that is not whole, as History counts: that
// of the cursor, which a program on the alternate screen leaves where it was.
func (s *Screen) Line() uint64 { return s.term.CursorLine() }

// Title is what the program calls its window, and Cwd where it says that it
// is; "" where it has not said.
func (s *Screen) Title() string { return s.events.title }
func (s *Screen) Cwd() string   { return s.events.cwd }

// Events returns, once, what happened since, in few events however much it
// was.
func (s *Screen) Events() []Event { return s.events.take() }

// Pack makes the screen small; it is for one that has been idle for a while.
func (s *Screen) Pack() { s.term.Pack() }

// Snapshot returns bytes that bring a fresh terminal of the given size to this
// state, with as many as history lines above the screen, and the output offset
// they stand for. The zero size is the screen's own. The snapshot asks nothing
// and rings nothing.
func (s *Screen) Snapshot(history int, size protocol.Size) (data []byte, offset uint64) {
	if s.offset == 0 {
		return nil, 0 // that is what a fresh terminal is
	}
	t := s.term
	if size != (protocol.Size{}) && size != s.size {
		t = s.term.Copy(max(history, comes(s.size, size)))
		t.Resize(size.Cols, size.Rows)
	}
	// A snapshot is at least about as long as the text that is in it.
	for n := t.HistoryWithin(max(history, 0), maxSnapshot); ; n /= 2 {
		if data = t.AppendSnapshot(nil, n); n == 0 || len(data) <= maxSnapshot {
			return data, s.offset
		}
	}
}

// SetAppearance says what programs are told of the terminal, which is that of a
// viewer, or was.
func (s *Screen) SetAppearance(a protocol.Appearance) {
	s.term.SetAppearance(vt.Appearance{
		Foreground: rgb(a.Foreground), Background: rgb(a.Background), Cursor: rgb(a.Cursor),
		CellWidth: a.CellWidth, CellHeight: a.CellHeight, Version: a.Version, NoGraphemes: a.NoGraphemes,
	})
}

// rgb reads #rrggbb; nil is none.
func rgb(s string) *uint32 {
	digits, ok := strings.CutPrefix(s, "#")
	v, err := strconv.ParseUint(digits, 16, 24)
	if !ok || err != nil {
		return nil
	}
	c := uint32(v)
	return &c
}

// Focus reports whether the program wants to be told of focus, and how often it
// has asked for that so far: each time it may be told anew.
func (s *Screen) Focus() (on bool, asked uint64) {
	return s.term.Modes().Focus, s.term.FocusAsked()
}
