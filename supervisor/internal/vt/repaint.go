package vt

import "slices"

// rows paints the rows of b that differ from those of fb. If fb is nil, it paints all rows
// that are not empty.
func (c *transition) rows(b, fb *buffer, changed []int) {
	c.bounded = true
	defer func() { c.bounded = false }()
	t := c.t
	c.touched = make([]bool, t.rows)
	defer c.pictures(b, fb)
	c.shift, c.fresh = 0, 0
	if fb != nil {
		c.fresh = t.rows
		changed = c.scrollRows(b, fb, changed)
		if i := slices.IndexFunc(changed, func(y int) bool { return marksGone(b.row(y), c.oldRow(b, fb, y)) }); i >= 0 {
			// Erasing a row does not remove its marks, but deleting it does.
			y := changed[i]
			c.clearFrom(0, y, "")
			c.csi('M', t.rows-y)
			c.fresh, changed = y, changed[:i]
		}
	}
	for y := c.fresh; y < t.rows; y++ {
		changed = append(changed[:len(changed):len(changed)], y)
	}
	for len(changed) > 0 {
		y := changed[0]
		// If a row must begin to continue the row above, that row must be printed, too, because
		// only printing across the end of a row links two rows.
		end := y + 1
		for end < t.rows && b.row(end).wrapped {
			end++
		}
		link := y
		if y == 0 || !b.row(y).wrapped {
			link++
		}
		for link < end && c.oldRow(b, fb, link).wrapped {
			link++
		}
		if link < end {
			for ; len(changed) > 0 && changed[0] < link-1; changed = changed[1:] {
				c.row(b, fb, changed[0])
			}
			c.paragraph(b, fb, link-1, end)
		} else {
			for _, y := range changed {
				if y < end {
					c.row(b, fb, y)
				}
			}
		}
		for len(changed) > 0 && changed[0] < end {
			changed = changed[1:]
		}
	}
}

// pictures paints the parts of pictures that belong to rows that were painted or moved. If the viewer's terminal still shows a
// part that is gone, as terminals with kitty's graphics do under text, it deletes all parts there and paints all.
func (c *transition) pictures(b, fb *buffer) {
	var blocks []block
	all := c.losesPictures(b, fb)
	if all {
		c.add(deletePlacements)
	}
	for y := range c.t.rows {
		r := b.row(y)
		var cells []cell
		if all || c.touched[y] || c.shift != 0 || y >= c.fresh {
			cells = c.t.rowCells(r)
		}
		blocks = append(blocks, c.collect(y, cells, r.wrapped, false)...)
	}
	blocks, c.album.blocks = append(blocks, c.album.blocks...), nil
	c.paintBlocks(blocks, c.t.rows-1, nil)
}

// marksGone reports whether r lacks marks of f.
func marksGone(r, f *row) bool {
	return len(f.marks) > len(r.marks) || !slices.Equal(f.marks, r.marks[:len(f.marks)])
}

// oldRow returns the row y as the viewer's terminal has it before the row is painted. The
// viewer's terminal may not know that the first row of its screen continues another one. If
// that row has moved down and should continue another one, oldRow returns it with the other
// value of wrapped, so that it is painted.
func (c *transition) oldRow(b, fb *buffer, y int) *row {
	was := y + c.shift
	if y >= c.fresh || was < 0 || was >= c.t.rows {
		return &row{ascii: true}
	}
	r := fb.row(was)
	if was == 0 && y > 0 && r.wrapped {
		other := *r
		other.wrapped = !b.row(y).wrapped
		return &other
	}
	return r
}

// scrollRows moves the viewer's screen up or down if far fewer rows differ afterwards. It
// returns the numbers of the rows that then differ. Rows that leave the screen are deleted, so
// that none gets into the viewer's history.
func (c *transition) scrollRows(b, fb *buffer, changed []int) []int {
	if len(changed) < 4 {
		return changed
	}
	is, was := c.t.rowHashes(b), c.from.rowHashes(fb)
	by, most := 0, 0
	for k := 1 - len(is); k < len(is); k++ {
		n := 0
		for y := max(0, -k); y < len(is) && y+k < len(is); y++ {
			if is[y] != 0 && is[y] == was[y+k] {
				n++
			}
		}
		if n > most {
			by, most = k, n
		}
	}
	if by == 0 || 2*most < len(changed) {
		return changed
	}
	c.shift = by
	moved := c.changed(b, fb)
	if 2*len(moved) > len(changed) {
		c.shift = 0
		return changed
	}
	c.clearFrom(0, 0, "")
	if by > 0 {
		c.csi('M', by)
	} else {
		c.csi('L', -by)
	}
	return moved
}

// rowHashes returns a hash of the text of each row, which is 0 if the row has no text.
func (t *Term) rowHashes(b *buffer) []uint64 {
	hashes := make([]uint64, t.rows)
	for y := range hashes {
		h := uint64(0)
		for x, c := range t.rowCells(b.row(y)) {
			if c.hasContent() && c&clusterBit == 0 {
				h = (h ^ uint64(c&codeMask) ^ uint64(x)<<32) * 0x9e3779b97f4a7c15
			}
		}
		hashes[y] = h
	}
	return hashes
}

// clearFrom moves the cursor, and then erases with how, without leaving a background. how may
// be empty.
func (c *transition) clearFrom(x, y int, how string) {
	c.moveTo(x, y)
	c.clearBackground()
	c.add(how)
}

// clearBackground gives the pen the default background, so that erasing leaves none.
func (c *transition) clearBackground() {
	if c.isPenUnknown || c.pen.bg&colorMask != 0 {
		c.setPen(&style{})
	}
}

// moveTo moves the cursor to column x of row y.
func (c *transition) moveTo(x, y int) {
	if x == 0 {
		c.csi('H', y+1)
	} else {
		c.csi('H', y+1, x+1)
	}
}

// paragraph paints the rows [y, end). All of them except the first continue the row above.
func (c *transition) paragraph(b, fb *buffer, y, end int) {
	t := c.t
	for i := y; i < end; i++ {
		c.touched[i] = true
		f := c.oldRow(b, fb, i)
		if i == y && b.row(y).wrapped && f.wrapped {
			c.clearFrom(0, i, "")
			c.csi('X', t.cols) // unlike EL, ECH lets the row continue the row above
		} else if f.wrapped || f.n > 0 || f.fill != 0 {
			c.clearFrom(0, i, "\x1b[K")
		}
	}
	c.moveTo(0, y)
	for i := y; i < end; i++ {
		r := b.row(i)
		marks := r.marks[len(c.oldRow(b, fb, i).marks):]
		cells := t.rowCells(r)
		if i == y {
			c.marksBehind(c.cells(cells, marks))
		} else {
			c.line(cells, marks, true, false)
		}
	}
}

// row paints the columns of a row that differ.
func (c *transition) row(b, fb *buffer, y int) {
	t, r, f := c.t, b.row(y), c.oldRow(b, fb, y)
	cells := t.rowCells(r)
	old := c.from.rowCells(f)
	marks := r.marks[len(f.marks):]
	x0, x1 := c.span(cells, old)
	unlink := f.wrapped && !r.wrapped
	if unlink || len(marks) > 0 {
		x0, x1 = 0, t.cols
	} else if x0 == x1 {
		return
	}
	if !unlink && len(marks) == 0 && solid(cells[x0:x1]) {
		if b == t.b && y == b.y && x1 == b.x {
			if x, last, joins := t.lastCharacter(); joins && !c.hides(last) { // place prints the last character before the cursor
				x1 = max(x, x0)
			}
		}
		if x0 < x1 {
			c.moveTo(x0, y)
		}
		for x := x0; x < x1; x++ {
			s := t.styles.at(cells[x].style())
			c.touched[y] = c.touched[y] || s.shownTile() != nil || c.hides(cells[x])
			if cell := cells[x]; !cell.isSpacer() {
				c.content(cell, s)
			}
		}
		return
	}
	c.touched[y] = true
	c.moveTo(x0, y)
	if unlink || slices.ContainsFunc(old[x0:], func(o cell) bool { return o != 0 }) {
		c.clearBackground()
		if x0 == 0 && r.wrapped && f.wrapped {
			c.csi('X', t.cols)
		} else {
			c.add("\x1b[K")
		}
	}
	c.marksBehind(c.cellsFrom(x0, cells, marks))
}

// span returns the columns [x0, x1) outside of which two rows are equal, widened so that no
// wide character is cut at either end.
func (c *transition) span(cells, old []cell) (x0, x1 int) {
	for x0 < len(cells) && c.sameCell(cells[x0], old[x0]) {
		x0++
	}
	if x0 == len(cells) {
		return 0, 0
	}
	for x1 = len(cells); c.sameCell(cells[x1-1], old[x1-1]); x1-- {
	}
	for x0 > 0 && (cells[x0].width() == 0 || old[x0].width() == 0 || cells[x0-1].isWide() || old[x0-1].isWide()) {
		x0--
	}
	for x1 < len(cells) && cells[x1].width() == 0 {
		x1++
	}
	return x0, x1
}

// solid reports whether printing the cells one after the other reproduces them, whatever the
// row contained before.
func solid(cells []cell) bool {
	for i, c := range cells {
		switch {
		case c.isSpacer():
			if i == 0 || !cells[i-1].isWide() {
				return false
			}
		case !c.hasContent() || c.width() == 0:
			return false
		case c.isWide() && (i+1 == len(cells) || !cells[i+1].isSpacer()):
			return false
		}
	}
	return true
}
