package vt

import "slices"

// State returns a copy of everything that can be seen of the terminal, or that a later byte
// may depend on. Later changes of the terminal do not change the copy.
func (t *Term) State() *State {
	d := dumper{t: t, s: &State{Cols: t.cols, Rows: t.rows}, index: make(map[Attr]int)}
	d.attr(style{})
	s := d.s
	s.Normal = d.buffer(&t.normal, t.hist.lines)
	if t.b == &t.alt {
		alt := d.buffer(&t.alt, 0)
		s.Alternate = &alt
	}
	s.Pen = d.attr(t.pen)
	s.Title, s.IconName = t.title, t.icon
	s.TitleStack, s.IconStack = slices.Clone(t.titleStack), slices.Clone(t.iconStack)
	s.Modes = t.modes
	s.Charset = t.cs.name()
	for _, g := range t.gsets {
		s.Charsets = append(s.Charsets, g.name())
	}
	s.GL = t.gl
	s.Pending = string(t.pending(nil))
	for n, rgb := range t.colors {
		s.Colors = append(s.Colors, Color{n, rgb})
	}
	slices.SortFunc(s.Colors, func(a, b Color) int { return a.Index - b.Index })
	s.Keyboard = t.keyboard
	for i := range s.Keyboard.Kitty {
		s.Keyboard.Kitty[i].Stack = slices.Clone(s.Keyboard.Kitty[i].Stack)
	}
	s.WorkDir = t.workDir
	return s
}

func (c *charset) name() string {
	if c == nil {
		return ""
	}
	return c.designators[:1]
}

type dumper struct {
	t     *Term
	s     *State
	index map[Attr]int
}

func (d *dumper) attr(s style) int {
	a := s.attr()
	i, ok := d.index[a]
	if !ok {
		i = len(d.s.Attrs)
		d.index[a] = i
		d.s.Attrs = append(d.s.Attrs, a)
	}
	return i
}

func (d *dumper) buffer(b *buffer, history int) Buffer {
	t := d.t
	out := Buffer{
		History: history, X: b.x, Y: b.y, ScrollTop: b.top, ScrollBottom: b.bot,
		SavedX: min(b.saved.x, t.cols-1), SavedY: min(max(b.saved.y-history, 0), t.rows-1),
		SavedPen: d.attr(style{fg: b.saved.pen.fg &^ fgUnderline, bg: b.saved.pen.bg}), SavedCharset: b.saved.cs.name(),
	}
	for x := range t.cols {
		if b.hasTab(x) {
			out.Tabs = append(out.Tabs, x)
		}
	}
	if history > 0 {
		t.hist.each(0, func(_ int, l storedLine) bool {
			t.scratch = t.storedCells(t.scratch[:0], l)
			out.Lines = append(out.Lines, d.line(t.scratch, l.flags&lineWrapped != 0))
			return true
		})
	}
	for y := range b.order {
		r := b.row(y)
		out.Lines = append(out.Lines, d.line(t.rowCells(r), r.wrapped))
	}
	return out
}

// rowCells returns the cells of the visible columns of a row in scratch space. The form of the
// row does not change. The cells are valid until scratch is used again.
func (t *Term) rowCells(r *row) []cell {
	if r.inCells {
		t.scratch = append(t.scratch[:0], r.cells...)
	} else {
		t.scratch = t.decode(t.scratch[:0], r.text, r.runs)
	}
	for len(t.scratch) < t.cols {
		t.scratch = append(t.scratch, r.fill.cell())
	}
	return t.scratch[:t.cols]
}

func (d *dumper) line(cells []cell, wrapped bool) Line {
	n := len(cells)
	for n > 0 && cells[n-1] == 0 {
		n--
	}
	l := Line{Wrapped: wrapped}
	for _, c := range cells[:n] {
		l.Cells = append(l.Cells, Cell{
			Text: string(d.t.appendContent(nil, c)), Width: c.width(), Attr: d.attr(*d.t.styles.at(c.style())),
		})
	}
	return l
}
