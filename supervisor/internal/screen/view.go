package screen

import (
	"cmp"
	"iter"
	"slices"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vt"
)

// maxAbove is how many lines above a screen a View holds at most.
const maxAbove = 50_000

// A View is a picture of a screen and of some lines above it. It is taken in
// the owner's goroutine, quickly, and may be looked at in any, one at a time.
type View struct {
	term   *vt.Term // only copied
	size   protocol.Size
	offset uint64
	title  string
	above  int // rows above the screen that are in it
	all    int // rows above the screen that there are
}

// View takes a picture with as many as above rows above the screen.
func (s *Screen) View(above int) *View {
	v := &View{size: s.size, offset: s.offset, title: s.Title(), all: s.term.HistoryLines()}
	v.above = min(max(above, 0), v.all, maxAbove)
	v.term = s.term.Copy(v.above)
	return v
}

// ViewAs is View with as many rows above the screen as one of another size may
// show.
func (s *Screen) ViewAs(size protocol.Size) *View { return s.View(comes(s.size, size)) }

// Offset is what has the offset of the next byte printed.
func (v *View) Offset() uint64 { return v.offset }

// as returns a copy of the terminal with so many rows above its screen and then
// of another size; the zero size is its own. It reports whether rows of the view
// had no room any more.
func (v *View) as(size protocol.Size, above int) (t *vt.Term, cut bool) {
	t = v.term.Copy(min(above, v.above))
	if size != (protocol.Size{}) && size != v.size {
		t.LimitHistory(maxAbove)
		first, _, _ := t.LineNumbers()
		t.Resize(size.Cols, size.Rows)
		kept, _, _ := t.LineNumbers()
		cut = kept > first
	}
	return t, cut
}

// Rows is how many rows above the screen a View should have for a first try
// at what spec asks for.
func Rows(spec protocol.ScreenSpec) int {
	switch {
	case spec.Scrollback == protocol.AllScrollback:
		return maxAbove
	case spec.Scrollback > 0:
		return spec.Scrollback
	case spec.Lines > 0: // unless lines are wrapped, or empty ones do not count
		return min(spec.Lines, maxAbove) + min(spec.Skip, maxAbove)
	}
	return 0
}

// Content returns what spec asks for as far as the view has it. Where more
// rows would have more, it also returns how many to try next; else 0.
func (v *View) Content(spec protocol.ScreenSpec) (c protocol.ScreenContent, next int) {
	size := protocol.Size{Cols: cmp.Or(spec.Cols, v.size.Cols), Rows: cmp.Or(spec.Rows, v.size.Rows)}.Normalize()
	if need := comes(v.size, size); size != v.size && v.above < min(need, v.all, maxAbove) {
		return c, need
	}
	t, forgot := v.term, false
	if size != v.size {
		t, forgot = v.as(size, v.above)
	}
	p := newPicture(t)
	c = protocol.ScreenContent{
		Offset: v.offset, Cols: size.Cols, Rows: size.Rows, Title: v.title,
		Cursor: p.cursor, Alternate: p.alternate,
	}
	short := v.above < v.all && (spec.Scrollback == protocol.AllScrollback || spec.Scrollback == 0 && spec.Lines > 0 || p.above < spec.Scrollback)
	forgot = forgot && (spec.Scrollback == protocol.AllScrollback || p.above < spec.Scrollback)
	lines := p.lines(spec)
	if want := min(spec.Lines, maxAbove) + min(spec.Skip, maxAbove); spec.Lines > 0 {
		some := take(lines, want+1)
		// The first row of a view may be the end of a longer line.
		if len(some) > want || len(some) == want && some[want-1].first > 0 {
			short, forgot = false, false
		}
		lines = slices.Values(some[:min(len(some), want)])
	}
	if short && v.above < maxAbove && p.room > 0 {
		return c, 4*v.above + v.size.Rows
	}
	lines = without(lines, spec.Skip)
	room := protocol.MaxScreenBytes
	var cut bool
	switch spec.Format {
	case protocol.ScreenCells:
		cut = p.cells(&c, lines, room)
	case protocol.ScreenANSI:
		cut = p.ansi(&c, lines, room)
	default:
		cut = p.texts(&c, lines, room)
	}
	c.Truncated = cut || short || forgot || p.room <= 0
	return c, 0
}

// Text returns the last n lines of screen and history, without empty ones at
// the end; each is cut to what an exit record holds.
func (s *Screen) Text(n int) []string { return s.last(protocol.ScreenSpec{Lines: n}) }

// NonEmpty returns the last n lines of screen and history that are not blank,
// as far as they do not lie too far up.
func (s *Screen) NonEmpty(n int) []string {
	return s.last(protocol.ScreenSpec{Lines: n, NonEmpty: true})
}

// maxLook is how many rows above the screen are looked at for the last few
// lines.
const maxLook = 1000

func (s *Screen) last(spec protocol.ScreenSpec) []string {
	p := newPicture(s.term)
	spec.Scrollback = maxLook
	var c protocol.ScreenContent
	p.texts(&c, slices.Values(take(p.lines(spec), spec.Lines)), protocol.MaxScreenBytes)
	for i, l := range c.Lines {
		c.Lines[i] = cut(l, protocol.MaxTailLine)
	}
	return c.Lines
}

// maxCells is how many cells are looked at for one answer, some 100 ms: a row may
// have many of which nothing is told.
const maxCells = 4 << 20

// picture is the rows of a terminal, the screen's last, which are read when they
// are needed.
type picture struct {
	*vt.Rows
	cols      int
	above     int
	room      int // cells that may still be looked at
	cursor    protocol.Cursor
	alternate bool
}

func newPicture(t *vt.Term) *picture {
	p := &picture{Rows: t.Rows(), room: maxCells, alternate: t.Alternate()}
	p.cols, _ = t.Size()
	p.above = p.Above()
	x, y := t.Cursor()
	p.cursor = protocol.Cursor{X: min(x, p.cols-1), Y: y, Hidden: t.Modes().CursorHidden}
	return p
}

// Cells is that of the rows, and counts.
func (p *picture) Cells(i int) []vt.Cell {
	cells := p.Rows.Cells(i)
	p.room -= len(cells) + 1
	return cells
}

// line is the rows [first, end) of a picture.
type line struct{ first, end int }

// lines returns those that spec is about, the newest first, before any are
// counted: of text, rows that were wrapped are one line. Empty ones at the end are
// left out. They end where the picture has no room to look at more.
func (p *picture) lines(spec protocol.ScreenSpec) iter.Seq[line] {
	cells := spec.Format == protocol.ScreenCells
	from := 0
	if above := max(spec.Scrollback, 0); spec.Scrollback > 0 || spec.Scrollback == 0 && spec.Lines == 0 {
		from = max(0, p.above-above)
	}
	return func(yield func(line) bool) {
		end := p.Len()
		for end > from && p.room > 0 && p.blank(end-1, spec.Format != "" && spec.Format != protocol.ScreenText) {
			end--
		}
		for end > from && p.room > 0 {
			l := line{end - 1, end}
			for l.first > from && !cells && p.Wrapped(l.first) {
				l.first--
			}
			end = l.first
			if (!spec.NonEmpty || !p.blankLine(l)) && !yield(l) {
				return
			}
		}
	}
}

// blankLine reports whether no row of a line has text.
func (p *picture) blankLine(l line) bool {
	for i := l.first; i < l.end && p.room > 0; i++ {
		if !p.blank(i, false) {
			return false
		}
	}
	return true
}

// take returns the first n lines, or as many as there are.
func take(lines iter.Seq[line], n int) (some []line) {
	for l := range lines {
		if some = append(some, l); len(some) == n {
			break
		}
	}
	return some
}

// without returns the lines but for the first n.
func without(lines iter.Seq[line], n int) iter.Seq[line] {
	return func(yield func(line) bool) {
		i := 0
		for l := range lines {
			if i++; i > n && !yield(l) {
				return
			}
		}
	}
}

// blank reports whether a row has no text and, where looks count, none that is
// not the default.
func (p *picture) blank(i int, looks bool) bool {
	for _, c := range p.Cells(i) {
		if c.Text != "" && c.Text != " " && c.Text != "\u3000" || looks && c.Attr != 0 && p.Look(c.Attr) != (vt.Attr{}) {
			return false
		}
	}
	return true
}
