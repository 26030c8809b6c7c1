// Package screen holds a session's terminal without a display. It makes snapshots and other
// views for viewers that attach later, and it collects the messages of the program to its
// terminal: its title, its questions, its notifications.
//
// Invariant: a snapshot and its offset belong together. The output from that offset on must
// continue the snapshot, even if it begins within a sequence.
//
// Not here: the terminal core (package vt, which only this package imports), the output's
// bytes (package ring), the viewers and the choice of the responder (package session).
package screen

import (
	"strconv"
	"strings"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/supervisor/internal/picture"
	"holdfast/supervisor/internal/vt"
)

const (
	// maxSnapshot bounds the history in a snapshot, in bytes and in cells. If the history is
	// longer, the snapshot has its last lines. The screen's own rows come in addition.
	maxSnapshot = 8 << 20
	// maxLaid is the number of cells of the history that one request lays out for another size.
	// It takes about 100 ms if the cells are more than ASCII. The largest screen has half as
	// many cells.
	maxLaid = 4 << 20
	// These bound the bytes of the history. A history of short lines takes few bytes. One of
	// long lines is bounded by its bytes, after compression if the session is idle.
	minHistoryBytes = 16 << 20
	maxHistoryBytes = 64 << 20
	// pictureBytes bounds the bytes of a session's pictures. They are part of each saved screen.
	pictureBytes = 8 << 20
	// writeCost is the cost of a piece of Write.
	writeCost = 1 << 20
)

// A Screen is the terminal of a session. Only the session's owner goroutine may use it.
type Screen struct {
	term   *vt.Term
	size   protocol.Size
	offset uint64 // number of bytes written
	events events
	heard  Heard // not saved: the session takes it before it saves a screen
	masker *mask.Masker

	tracker *tracker // nil until a reader has asked for changes; not saved
}

// New returns the screen of a terminal that has printed nothing. scrollbackLines bounds the
// number of lines above the screen.
func New(size protocol.Size, scrollbackLines int) *Screen {
	s := &Screen{size: size}
	s.term = newTerm(size, min(max(scrollbackLines, 0), protocol.MaxScrollback), s.event)
	return s
}

// event records an event of the core. It is called while a piece is written; s.offset is the
// offset at which that piece begins.
func (s *Screen) event(v vt.Event) {
	s.events.add(v, s.offset)
	s.heard.add(v, s.offset, s.events.cwd)
}

func newTerm(size protocol.Size, lines int, events func(vt.Event)) *vt.Term {
	return vt.New(vt.Config{
		Cols: size.Cols, Rows: size.Rows, Events: events,
		HistoryLines: lines, HistoryBytes: min(max(lines<<10, minHistoryBytes), maxHistoryBytes),
		PictureBytes: pictureBytes,
	})
}

// Write parses the next bytes of the session's output. All output must be written in order.
func (s *Screen) Write(p []byte) {
	for len(p) > 0 { // in pieces, because each event has the offset of its piece
		before := s.offset
		s.WriteSome(p, writeCost)
		p = p[s.offset-before:]
	}
}

// WriteSome parses bytes of p, at least one, until they have cost about budget, and returns
// that cost. Offset then tells how many bytes were parsed. A budget of 1<<20 takes some
// milliseconds, and is used up by at most 64 KiB.
func (s *Screen) WriteSome(p []byte, budget int) (cost int) {
	n, cost := s.term.WriteSome(p, budget)
	s.offset += uint64(n)
	return cost
}

// HasReader reports whether a reader has asked for changes. Its position is not saved.
func (s *Screen) HasReader() bool { return s.tracker != nil }

// Erased tells when the screen was erased. SetErased sets it in a screen that was restored from the output in other
// pieces, because the offset of the erasure depends on the pieces.
func (s *Screen) Erased() Erased     { return s.events.erased }
func (s *Screen) SetErased(e Erased) { s.events.erased = e }

// Offset returns the number of bytes written, which is the output offset of the next byte.
func (s *Screen) Offset() uint64 { return s.offset }

// Skip sets the offset without writing the bytes before it. It is for bytes that are no longer
// kept, or that must not be parsed.
func (s *Screen) Skip(offset uint64) { s.offset = offset }

// Size returns the terminal's size.
func (s *Screen) Size() protocol.Size { return s.size }

// Resize changes the terminal's size.
func (s *Screen) Resize(size protocol.Size) {
	s.size = size
	s.term.Resize(size.Cols, size.Rows)
	s.tracker.noteResize(s)
}

// Clear drops the lines above the screen. If all is set, it also drops the rows on the screen,
// except for the cursor's row, which moves to the top. It does nothing while the alternate
// screen is shown.
func (s *Screen) Clear(all bool) { s.term.Clear(all) }

// Replies returns the answers to the questions that the program has asked since the last call.
func (s *Screen) Replies() []byte { return s.term.Replies() }

// RequiredReplies returns those of Replies that the program must get even if a viewer's
// terminal answers its other questions. It must be called before Replies.
func (s *Screen) RequiredReplies() []byte { return s.term.RequiredReplies() }

// ReportSize adds a report of the size to Replies if the program has set mode 2048.
func (s *Screen) ReportSize() { s.term.ReportSize() }

// Line returns the number of the cursor's line on the normal screen, as History counts. This
// is the first line that is not complete. A program on the alternate screen does not move it.
func (s *Screen) Line() uint64 { return s.term.CursorLine() }

// Title returns the title that the program has set, and Cwd the directory that it has
// reported. Each is "" if the program has set none.
func (s *Screen) Title() string { return s.events.title }
func (s *Screen) Cwd() string   { return s.events.cwd }

// Events returns the events since the last call. Many events of one kind are returned as one,
// or as the last few.
func (s *Screen) Events() []Event { return s.events.take() }

// Pack compresses the history. It should be called when the session has been idle for a while.
func (s *Screen) Pack() { s.term.Pack() }

// PackOld compresses the history except for its newest lines, and returns how many bytes that saves. It is for
// a session that prints slowly.
func (s *Screen) PackOld() (saved int) { return s.term.PackOld() }

// Snapshot returns bytes that bring a new terminal of the given size into the state of the
// screen, with up to history lines above it. offset is the output offset after which they were
// taken. The zero size means the screen's own size. The bytes contain no question and no bell, and
// only pictures that the terminal shows; look describes that terminal, or is nil.
func (s *Screen) Snapshot(history int, size protocol.Size, look *protocol.Appearance) (data []byte, offset uint64) {
	if _, y := s.term.Cursor(); s.offset == 0 && y == 0 && s.term.HistoryLines() == 0 {
		return nil, 0 // a new terminal is in this state already; after Continue there are lines above the cursor
	}
	t := s.term
	if size != (protocol.Size{}) && size != s.size {
		rows := max(t.HistoryWithin(max(history, 0), maxSnapshot), pulledRows(s.size, size))
		t = t.Copy(t.LayoutWithin(rows, maxLaid))
		t.Resize(size.Cols, size.Rows)
	}
	rows := t.HistoryWithin(max(history, 0), maxSnapshot)
	const perRow = 64 // an ordinary row takes about so many bytes
	return t.AppendSnapshot(make([]byte, 0, (rows+s.size.Rows)*perRow), rows, shows(look)), s.offset
}

// SetAppearance sets the appearance that answers to the program report. It is that of the last
// viewer's terminal that has reported one.
func (s *Screen) SetAppearance(a protocol.Appearance) {
	s.term.SetAppearance(vt.Appearance{
		Foreground: rgb(a.Foreground), Background: rgb(a.Background), Cursor: rgb(a.Cursor),
		CellWidth: a.CellWidth, CellHeight: a.CellHeight, Version: a.Version, NoGraphemes: a.NoGraphemes,
		Pictures: shows(&a).Formats, PictureCell: picture.Cell{Width: a.Pictures.CellWidth, Height: a.Pictures.CellHeight},
	})
}

// rgb parses #rrggbb. It returns nil if s is no such colour.
func rgb(s string) *uint32 {
	digits, ok := strings.CutPrefix(s, "#")
	v, err := strconv.ParseUint(digits, 16, 24)
	if !ok || err != nil {
		return nil
	}
	c := uint32(v)
	return &c
}

// Focus reports whether the program wants reports of focus, and how often it has requested
// them so far. After each request the focus may be reported again.
func (s *Screen) Focus() (on bool, asked uint64) {
	return s.term.Modes().Focus, s.term.FocusAsked()
}
