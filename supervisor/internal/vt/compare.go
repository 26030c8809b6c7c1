package vt

import (
	"bytes"
	"slices"
)

// Two terminals number their styles and texts differently, and have different links. Therefore
// the functions of this file compare the content that two rows show, and not its encoding.

// changed returns the numbers of the rows that differ between b and fb.
func (c *transition) changed(b, fb *buffer) (rows []int) {
	for y := range c.t.rows {
		if r, f := b.row(y), c.oldRow(b, fb, y); !c.sameLink(y, r, f) || !slices.Equal(r.marks, f.marks) || !c.sameRow(r, f) {
			rows = append(rows, y)
		}
	}
	return rows
}

// sameLink reports whether r and f agree in whether they continue the row above. For the first
// row of the screen, it also accepts an old row that continues none, because no bytes can make
// the first row of a viewer's screen continue another row.
func (c *transition) sameLink(y int, r, f *row) bool {
	return r.wrapped == f.wrapped || y == 0 && !f.wrapped
}

// sameRow reports whether two rows show the same content.
func (c *transition) sameRow(r, f *row) bool {
	if !r.inCells && !f.inCells && r.n == f.n && len(r.runs) == len(f.runs) && c.sameStyleAcross(r.fill, f.fill) && bytes.Equal(r.text, f.text) {
		same := true
		for i, u := range r.runs {
			if v := f.runs[i]; u.col() != v.col() || !c.sameStyleAcross(u.style(), v.style()) {
				same = false
				break
			}
		}
		if same {
			return true
		}
	}
	cells, old := c.t.rowCells(r), c.from.rowCells(f)
	for x, n := range cells {
		if !c.sameCell(n, old[x]) {
			return false
		}
	}
	return true
}

// sameCell reports whether a cell of c.t and a cell of c.from show the same content.
func (c *transition) sameCell(n, o cell) bool {
	if (n^o)&(clusterBit|widthMask) != 0 {
		return false
	}
	if n&clusterBit != 0 {
		if c.t.clusters.text(n) != c.from.clusters.text(o) {
			return false
		}
	} else if (n^o)&codeMask != 0 {
		return false
	}
	return c.sameStyleAcross(n.style(), o.style())
}

func (c *transition) sameStyleAcross(n, o styleID) bool {
	if n == 0 && o == 0 {
		return true
	}
	s, was := c.t.styles.at(n), c.from.styles.at(o)
	return sameStyle(s, was) && (c.album.Formats == 0 || sameTile(s.shownTile(), was.shownTile()))
}

// sameTile reports whether two cells show the same part of the same picture.
func sameTile(k, l *link) bool {
	return k == l || k != nil && l != nil && k.picture == l.picture && k.tile == l.tile
}

// sameStyle reports whether two styles are displayed in the same way and have the same link.
func sameStyle(a, b *style) bool {
	if *a == *b {
		return true
	}
	if a.visible() != b.visible() {
		return false
	}
	return sameLink(a.shownLink(), b.shownLink())
}

// sameStyleID reports whether two styles of this terminal are displayed in the same way and
// have the same link.
func (t *Term) sameStyleID(a, b styleID) bool {
	return a == b || sameStyle(t.styles.at(a), t.styles.at(b))
}

// isErased reports whether erasing can produce the style: it has at most a background.
func (s *style) isErased() bool {
	e := s.erased()
	return sameStyle(s, &e)
}

// sameLink reports whether two links have the same id and URI, so that a viewer sees no
// difference.
func sameLink(k, l *link) bool {
	return k == l || k != nil && l != nil && k.id == l.id && k.uri == l.uri
}
