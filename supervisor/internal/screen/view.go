package screen

import (
	"cmp"
	"iter"
	"slices"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/shared/plain"
	"holdfast/supervisor/internal/vt"
)

// maxAbove is the largest number of rows above the screen in a View.
const maxAbove = 50_000

// A View is a copy of a screen and of rows above it. It must be made in the owner's goroutine,
// which takes little time. Content or Own.Update may then read it in any goroutine. They use it
// up, because another copy of a large screen would take much memory.
type View struct {
	term   *vt.Term // nil when the view is used up
	size   protocol.Size
	offset uint64
	title  string
	above  int // number of rows above the screen in the view
	all    int // number of rows above the screen in the session
	masker *mask.Masker
}

// View returns a view with up to above rows above the screen.
func (s *Screen) View(above int) *View {
	v := &View{size: s.size, offset: s.offset, title: s.Title(), all: s.term.HistoryLines(), masker: s.masker}
	v.above = min(max(above, 0), v.all, maxAbove)
	v.term = s.term.Copy(v.above)
	return v
}

// ViewAs returns a view for a viewer of another size. It has as many rows above the screen as
// that size may show.
func (s *Screen) ViewAs(size protocol.Size) *View {
	return s.View(s.term.LayoutWithin(pulledRows(s.size, size), maxLaid))
}

// Offset returns the output offset at which the view was made.
func (v *View) Offset() uint64 { return v.offset }

// layOut uses the view up. It returns a terminal with the view in another size, with as many
// rows above the screen as can be laid out in the time of a request. cut reports whether rows
// of the view had no room.
func (v *View) layOut(size protocol.Size) (t *vt.Term, cut bool) {
	t, v.term = v.term, nil
	if size == v.size {
		return t, false
	}
	rows := t.LayoutWithin(v.above, maxLaid)
	t.KeepHistory(rows)
	t.LimitHistory(maxAbove)
	first, _, _ := t.LineNumbers()
	t.Resize(size.Cols, size.Rows)
	kept, _, _ := t.LineNumbers()
	return t, rows < v.above || kept > first
}

// Rows returns the number of rows above the screen that a View should have at the first
// attempt to answer spec.
func Rows(spec protocol.ScreenSpec) int {
	switch {
	case spec.Scrollback == protocol.AllScrollback:
		return maxAbove
	case spec.Scrollback > 0:
		return spec.Scrollback
	case spec.Lines > 0: // more are needed if lines are wrapped, or if empty lines are skipped
		return min(spec.Lines, maxAbove) + min(spec.Skip, maxAbove)
	}
	return 0
}

// Content returns the content for spec, as far as the view has it. If a view with more rows
// would have more of it, Content also returns the number of rows for the next attempt, and
// otherwise 0. The view must not be used afterwards.
func (v *View) Content(spec protocol.ScreenSpec) (c protocol.ScreenContent, next int) {
	size := protocol.Size{Cols: cmp.Or(spec.Cols, v.size.Cols), Rows: cmp.Or(spec.Rows, v.size.Rows)}.Normalize()
	if need := pulledRows(v.size, size); size != v.size && v.above < min(need, v.all, maxAbove) {
		return c, need
	}
	t, isCut := v.layOut(size)
	p := newSheet(t, v.masker)
	c = protocol.ScreenContent{
		Offset: v.offset, Cols: size.Cols, Rows: size.Rows, Title: v.masker.CutText(v.title),
		Cursor: p.cursor, Alternate: p.alternate,
	}
	wantsMore := spec.Scrollback == protocol.AllScrollback || spec.Scrollback == 0 && spec.Lines > 0 || p.above < spec.Scrollback
	short := v.above < v.all && wantsMore
	isCut = isCut && wantsMore
	lines := p.lines(spec)
	if want := min(spec.Lines, maxAbove) + min(spec.Skip, maxAbove); spec.Lines > 0 {
		some := firstLines(lines, want+1)
		// The first row of a view may be the end of a longer line.
		if len(some) > want || len(some) == want && some[want-1].first > 0 {
			short, isCut = false, false
		}
		lines = slices.Values(some[:min(len(some), want)])
	}
	if short && !isCut && v.above < maxAbove && p.room > 0 {
		return c, 4*v.above + v.size.Rows
	}
	lines = withoutFirst(lines, spec.Skip)
	room := protocol.MaxScreenBytes
	var cut bool
	switch spec.Format {
	case protocol.ScreenCells:
		cut = p.cells(&c, lines, room, spec.Pictures)
	case protocol.ScreenANSI:
		cut = p.ansi(&c, lines, room)
	case protocol.ScreenState:
		cut = p.state(&c, t, spec.Scrollback)
	default:
		cut = p.texts(&c, lines, room)
	}
	c.Truncated = cut || short || isCut || p.room <= 0
	return c, 0
}

// maxStateBytes bounds a state, so that its base64 fits into an answer.
const maxStateBytes = protocol.MaxScreenBytes / 4 * 3

// state sets c.State to a snapshot of t with up to above rows above the screen. If the snapshot has
// no room, state leaves out these rows, or sets no state. It reports whether rows are missing.
func (p *sheet) state(c *protocol.ScreenContent, t *vt.Term, above int) (cut bool) {
	if above == protocol.AllScrollback {
		above = maxAbove
	}
	for rows := t.HistoryWithin(min(above, p.above), maxStateBytes); ; rows = 0 {
		if data := t.AppendSnapshot(nil, rows, vt.Shows{}); len(data) <= maxStateBytes {
			c.State = p.masker.Whole(data)
			return rows < min(above, p.above)
		}
		if rows == 0 {
			return true
		}
	}
}

// Text returns the last n lines of screen and history, without empty lines at the end. Each
// line is cut to the length that an exit record holds.
func (s *Screen) Text(n int) []string { return s.lastLines(protocol.ScreenSpec{Lines: n}) }

// NonEmpty returns the last n lines of screen and history that are not blank, unless they are
// more than maxTailRows rows above the screen.
func (s *Screen) NonEmpty(n int) []string {
	return s.lastLines(protocol.ScreenSpec{Lines: n, NonEmpty: true})
}

// maxTailRows is the number of rows above the screen that are read for the last few lines.
const maxTailRows = 1000

func (s *Screen) lastLines(spec protocol.ScreenSpec) []string {
	p := newSheet(s.term, s.masker)
	spec.Scrollback = maxTailRows
	var c protocol.ScreenContent
	p.texts(&c, slices.Values(firstLines(p.lines(spec), spec.Lines)), protocol.MaxScreenBytes)
	for i, l := range c.Lines {
		c.Lines[i] = plain.Cut(l, protocol.MaxTailLine)
	}
	return c.Lines
}

// maxCells is the number of cells that are read for one answer, in some 100 ms. It is needed
// because a row may have many cells that add no text to the answer.
const maxCells = 4 << 20

// sheet holds the rows of a terminal, of which the last are those of the screen. A row is
// read only when it is needed.
type sheet struct {
	*vt.Rows
	cols      int
	above     int
	room      int // cells that may still be read
	cursor    protocol.Cursor
	alternate bool
	masker    *mask.Masker
	hidden    hidden // cells of secrets in the rows that were read last

	// The text of the line that is being read, its last row first:
	buf  []byte
	rows []int // offsets in buf at which rows begin
}

func newSheet(t *vt.Term, m *mask.Masker) *sheet {
	p := &sheet{Rows: t.Rows(), room: maxCells, alternate: t.Alternate(), masker: m}
	p.cols, _ = t.Size()
	p.above = p.Above()
	x, y := t.Cursor()
	p.cursor = protocol.Cursor{X: min(x, p.cols-1), Y: y, Hidden: t.Modes().CursorHidden}
	return p
}

// Cells returns the cells of row i, without secrets, and counts them.
func (p *sheet) Cells(i int) []vt.Cell {
	if p.masker == nil {
		cells := p.Rows.Cells(i)
		p.room -= len(cells) + 1
		return cells
	}
	secrets := p.hiddenIn(i)
	cells := p.Rows.Cells(i)
	p.room -= len(cells) + 1
	return masked(cells, secrets)
}

// line is a line that has the rows [first, end) of a sheet.
type line struct{ first, end int }

// lines returns the lines that spec asks for, the newest first, before Skip and Lines are
// applied. If the format is text, wrapped rows are one line. Empty lines at the end are left
// out. The sequence ends early if the sheet may not read more cells.
func (p *sheet) lines(spec protocol.ScreenSpec) iter.Seq[line] {
	cells := spec.Format == protocol.ScreenCells
	from := 0
	if above := max(spec.Scrollback, 0); spec.Scrollback > 0 || spec.Scrollback == 0 && spec.Lines == 0 {
		from = max(0, p.above-above)
	}
	return func(yield func(line) bool) {
		end := p.Len()
		for end > from && p.room > 0 && p.isBlank(end-1, spec.Format != "" && spec.Format != protocol.ScreenText) {
			end--
		}
		for end > from && p.room > 0 {
			l := line{end - 1, end}
			for l.first > from && !cells && p.Wrapped(l.first) {
				l.first--
			}
			end = l.first
			if (!spec.NonEmpty || !p.isBlankLine(l)) && !yield(l) {
				return
			}
		}
	}
}

// isBlankLine reports whether no row of a line has text.
func (p *sheet) isBlankLine(l line) bool {
	for i := l.first; i < l.end && p.room > 0; i++ {
		if !p.isBlank(i, false) {
			return false
		}
	}
	return true
}

// firstLines returns the first n lines, or fewer if there are not as many.
func firstLines(lines iter.Seq[line], n int) (some []line) {
	for l := range lines {
		if some = append(some, l); len(some) == n {
			break
		}
	}
	return some
}

// withoutFirst returns the lines without the first n.
func withoutFirst(lines iter.Seq[line], n int) iter.Seq[line] {
	return func(yield func(line) bool) {
		i := 0
		for l := range lines {
			if i++; i > n && !yield(l) {
				return
			}
		}
	}
}

// isBlank reports whether a row has no text and, if styles is set, only the default style.
func (p *sheet) isBlank(i int, styles bool) bool {
	blank, cells := p.Blank(i, styles)
	p.room -= cells + 1
	return blank
}
