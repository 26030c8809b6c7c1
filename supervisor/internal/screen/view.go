package screen

import (
	"cmp"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vt"
)

// maxAbove is how many lines above a screen a View holds at most.
const maxAbove = 50_000

// A View is a picture of a screen and of some lines above it. It is taken in
// the owner's goroutine, quickly, and may be looked at in any, by several at a
// time.
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
// of another size; the zero size is its own.
func (v *View) as(size protocol.Size, above int) *vt.Term {
	t := v.term.Copy(min(above, v.above))
	if size != (protocol.Size{}) && size != v.size {
		t.Resize(size.Cols, size.Rows)
	}
	return t
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
	p := newPicture(v.as(size, v.above).State())
	c = protocol.ScreenContent{
		Offset: v.offset, Cols: size.Cols, Rows: size.Rows, Title: v.title,
		Cursor: p.cursor, Alternate: p.alternate,
	}
	short := v.above < v.all && (spec.Scrollback == protocol.AllScrollback || spec.Scrollback == 0 && spec.Lines > 0 || p.above < spec.Scrollback)
	lines := p.lines(spec)
	// The first row of a view may be the end of a longer line.
	if want := spec.Lines + spec.Skip; spec.Lines > 0 && (len(lines) > want || len(lines) == want && lines[0].first > 0) {
		short = false
	}
	if short && v.above < maxAbove {
		return c, 4*v.above + v.size.Rows
	}
	lines = lines[:max(0, len(lines)-spec.Skip)]
	if spec.Lines > 0 {
		lines = lines[max(0, len(lines)-spec.Lines):]
	}
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
	c.Truncated = cut || short
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
	for rows := Rows(spec); ; {
		v := s.View(rows)
		if rows >= maxLook {
			v.all = v.above // what is above that does not matter
		}
		c, next := v.Content(spec)
		if next == 0 {
			for i, l := range c.Lines {
				c.Lines[i] = cut(l, protocol.MaxTailLine)
			}
			return c.Lines
		}
		rows = min(next, maxLook)
	}
}

// picture is the rows of a state, the screen's last.
type picture struct {
	cols      int
	rows      []vt.Line
	above     int
	looks     []vt.Attr
	cursor    protocol.Cursor
	alternate bool
}

func newPicture(s *vt.State) *picture {
	b := s.Normal
	p := &picture{cols: s.Cols, rows: b.Lines, above: b.History, looks: s.Attrs}
	if s.Alternate != nil {
		p.alternate = true
		b = *s.Alternate
		p.rows = append(p.rows[:p.above:p.above], b.Lines...)
	}
	p.cursor = protocol.Cursor{X: min(b.X, s.Cols-1), Y: b.Y, Hidden: s.Modes.CursorHidden}
	return p
}

// line is the rows [first, end) of a picture.
type line struct{ first, end int }

// lines returns those that spec is about, before any are counted: of text,
// rows that were wrapped are one line. Empty ones at the end are left out.
func (p *picture) lines(spec protocol.ScreenSpec) []line {
	cells := spec.Format == protocol.ScreenCells
	from := 0
	if above := max(spec.Scrollback, 0); spec.Scrollback > 0 || spec.Scrollback == 0 && spec.Lines == 0 {
		from = max(0, p.above-above)
	}
	end := len(p.rows)
	for end > from && p.blank(end-1, spec.Format != "" && spec.Format != protocol.ScreenText) {
		end--
	}
	var out []line
	for i := from; i < end; i++ {
		if k := len(out) - 1; k >= 0 && p.rows[i].Wrapped && !cells && out[k].end == i {
			out[k].end = i + 1
			continue
		}
		out = append(out, line{i, i + 1})
	}
	if !spec.NonEmpty {
		return out
	}
	some := out[:0]
	for _, l := range out {
		for i := l.first; i < l.end; i++ {
			if !p.blank(i, false) {
				some = append(some, l)
				break
			}
		}
	}
	return some
}

// blank reports whether a row has no text and, where looks count, none that is
// not the default.
func (p *picture) blank(i int, looks bool) bool {
	for _, c := range p.rows[i].Cells {
		if c.Text != "" && c.Text != " " && c.Text != "\u3000" || looks && c.Attr != 0 {
			return false
		}
	}
	return true
}
