package vt

import (
	"bytes"
	"slices"
)

// Of two terminals each has numbers of its own for looks and texts, and links
// of its own: what they show is compared, not how.

// changed lists the rows that differ.
func (c *transition) changed(b, fb *buffer) (rows []int) {
	for y := range c.t.rows {
		if r, f := b.row(y), c.old(b, fb, y); !c.sameLink(y, r, f) || !slices.Equal(r.marks, f.marks) || !c.sameRow(r, f) {
			rows = append(rows, y)
		}
	}
	return rows
}

// sameLink reports whether a row continues the one above or does not, as
// before. The first one cannot be made to.
func (c *transition) sameLink(y int, r, f *row) bool {
	return r.wrapped == f.wrapped || y == 0 && !f.wrapped
}

// sameRow reports whether two rows show the same.
func (c *transition) sameRow(r, f *row) bool {
	if !r.inCells && !f.inCells && r.n == f.n && len(r.runs) == len(f.runs) && c.sameLook(r.fill, f.fill) && bytes.Equal(r.text, f.text) {
		same := true
		for i, u := range r.runs {
			if v := f.runs[i]; u.col() != v.col() || !c.sameLook(u.style(), v.style()) {
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

// sameCell compares a cell of t with one of from.
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
	return c.sameLook(n.style(), o.style())
}

func (c *transition) sameLook(n, o styleID) bool {
	return n == 0 && o == 0 || sameStyle(&c.t.styles.all[n], &c.from.styles.all[o])
}

// sameStyle reports whether two looks are one.
func sameStyle(a, b *style) bool {
	if *a == *b {
		return true
	}
	if a.visible() != b.visible() {
		return false
	}
	return sameLink(a.shownLink(), b.shownLink())
}

// alike is sameStyle for looks by number.
func (t *Term) alike(a, b styleID) bool {
	return a == b || sameStyle(&t.styles.all[a], &t.styles.all[b])
}

// isErased reports whether a look is one that erasing leaves.
func (s *style) isErased() bool {
	e := s.erased()
	return sameStyle(s, &e)
}

// sameLink reports whether two links are one, for who is told of them.
func sameLink(k, l *link) bool {
	return k == l || k != nil && l != nil && k.id == l.id && k.uri == l.uri
}
