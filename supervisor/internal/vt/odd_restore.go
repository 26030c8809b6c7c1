package vt

import (
	"slices"
	"strings"
)

// restoreOddRows gives the odd rows of a saved screen their original cells.
func (t *Term) restoreOddRows(r *Remainder) {
	if len(r.Odd) == 0 {
		return
	}
	ids := make([]styleID, len(r.Styles))
	for i, a := range r.Styles {
		ids[i] = t.styles.id(t.attrStyle(a))
	}
	above := make(map[int]*OddRow)
	for i := range r.Odd {
		o := &r.Odd[i]
		b := &t.normal
		if o.Alt {
			b = &t.alt
		}
		switch {
		case o.Alt && t.b != b:
		case o.Up < t.rows:
			t.restoreRow(b.row(t.rows-1-o.Up), o, ids)
		case !o.Alt && o.Up-t.rows < t.hist.lines:
			above[t.hist.lines-1-(o.Up-t.rows)] = o
		}
	}
	if len(above) > 0 {
		t.restoreHistory(above, ids)
	}
}

// attrStyle returns the style that is displayed as a.
func (t *Term) attrStyle(a Attr) style {
	s := style{fg: a.Fg & colorMask, bg: a.Bg & colorMask, extended: a.UnderlineColor & colorMask}
	for _, f := range flagBits {
		if a.Flags&f.flag != 0 {
			s.fg |= f.fg
			s.bg |= f.bg
		}
	}
	if a.URI != "" || a.LinkID != "" {
		s.link = t.links.open(a.LinkID, a.URI)
	}
	s.setUnderline(a.Underline)
	t.protected = t.protected || s.bg&bgProtected != 0
	return s
}

// oddCell decodes a cell of an odd row. ids are the numbers of its styles in this terminal.
// Text with a control is left out.
func (t *Term) oddCell(c Cell, ids []styleID) cell {
	n := ids[c.Attr].cell() | widthBits(c.Width)
	if c.Text != "" && !strings.ContainsFunc(c.Text, func(ch rune) bool { return ch < 0x20 || ch == 0x7f }) {
		n |= t.content([]byte(c.Text))
	}
	return n
}

// withTile returns the cell c of the column x, with the part of a picture that the snapshot has printed there. An odd row
// describes no pictures.
func (t *Term) withTile(c cell, printed []cell, x int) cell {
	if x >= len(printed) {
		return c
	}
	l := t.styles.at(printed[x].style()).shownTile()
	if l == nil {
		return c
	}
	t.links.serials++
	return c&(contentMask|widthMask) | t.tileStyle(c.style(), &link{serial: t.links.serials, tile: l.tile, picture: l.picture}).cell()
}

// restoreRow gives a row of a screen the cells of an odd row.
func (t *Term) restoreRow(r *row, o *OddRow, ids []styleID) {
	t.toCells(r)
	if o.Alt {
		r.w = max(o.Width, t.cols)
		t.alt.uneven = true
	}
	printed := slices.Clone(r.cells)
	r.cells = slices.Grow(r.cells, max(r.w-len(r.cells), 0))
	r.reach(min(max(o.From, t.cols), r.w))
	r.cells, r.fill = r.cells[:min(o.From, len(r.cells))], 0
	for _, c := range o.Cells[:min(len(o.Cells), max(r.w-len(r.cells), 0))] {
		r.cells = append(r.cells, t.withTile(t.oddCell(c, ids), printed, len(r.cells)))
	}
	r.n = len(r.cells)
	if o.From == 0 {
		r.marks = marksOf(o)
	}
}

func marksOf(o *OddRow) (marks []shellMark) {
	for _, m := range o.Marks {
		marks = append(marks, shellMark{m.Col, string(m.Text)})
	}
	return marks
}

// restoreHistory rebuilds the history with the odd rows in it. The keys of odd are the indexes
// of lines in the history.
func (t *Term) restoreHistory(odd map[int]*OddRow, ids []styleID) {
	old := t.hist
	t.hist = history{maxLines: old.maxLines, maxBytes: old.maxBytes, serials: old.serials}
	var runs []run
	var cells []cell
	old.each(0, func(i int, l storedLine) bool {
		o := odd[i]
		if o == nil {
			runs = runs[:0]
			l.eachRun(func(col int, s style) { runs = append(runs, newRun(col, t.styles.id(s))) })
			t.pushText(l.text, runs, l.marks, l.flags&(lineWrapped|lineASCII))
		} else {
			cells, t.scratch = cells[:0], t.storedCells(t.scratch[:0], l)
			for x, c := range o.Cells[:min(len(o.Cells), t.cols)] {
				cells = append(cells, t.withTile(t.oddCell(c, ids), t.scratch, x))
			}
			text, found, _, ascii := t.encode(nil, nil, cells)
			flags := l.flags & lineWrapped
			if ascii {
				flags |= lineASCII
			}
			t.pushText(text, found, marksOf(o), flags)
		}
		if i&255 == 0 {
			t.packHalf()
		}
		return true
	})
}
