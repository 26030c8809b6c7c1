package vt

// ED, DECALN, RIS, IL, SU and similar sequences empty whole rows, or fill them with the letter E. They have a few
// bytes, but they would touch every row. Therefore they only mark the rows in buffer.order. The content
// of a marked row is stale, and the row gets the content buffer.filling when it is read or written next (fillRow).

// unfilled marks a row in buffer.order. It is larger than the index of any row.
const unfilled = maxSize

// A filling is the content of all marked rows of a screen.
type filling struct {
	style  styleID
	letter bool // an E is in each column; otherwise all columns are empty
}

// fewRows is the number of rows up to which emptyRows does not mark them.
const fewRows = 4

// fillRows gives the rows from top to bot the content f. They continue no row, and have no marks of a shell.
func (b *buffer) fillRows(top, bot int, f filling) {
	if f != b.filling {
		b.fillMarked(0, top-1)
		b.fillMarked(bot+1, len(b.order)-1)
		b.filling = f
	}
	from, to := max(top, b.first), min(bot, b.last)
	for y := from; y <= to; y++ {
		b.order[y] |= unfilled
	}
	b.t.work += max(to+1-from, 0)
	if top <= b.first {
		b.first = max(b.first, bot+1)
	}
	if bot >= b.last {
		b.last = min(b.last, top-1)
	}
	if b.first > b.last {
		b.first, b.last = len(b.order), -1
	}
}

// emptyRows empties the rows from top to bot, which get the style fill. A few rows are emptied at once, because that
// fills no other row.
func (b *buffer) emptyRows(top, bot int, fill styleID) {
	if bot+1-top > fewRows {
		b.fillRows(top, bot, filling{style: fill})
		return
	}
	for y := top; y <= bot; y++ {
		b.unmark(y).clear(fill)
	}
	b.t.work += rowWork * (bot + 1 - top)
}

// fillMarked fills those of the rows from top to bot that are marked.
func (b *buffer) fillMarked(top, bot int) {
	for y := top; y <= bot; y++ {
		if b.order[y] >= unfilled {
			b.fillRow(y)
		}
	}
}

// fillRow fills the row y, which must be marked.
func (b *buffer) fillRow(y int) *row {
	r, f := b.unmark(y), b.filling
	b.t.work += rowWork
	if !f.letter {
		r.clear(f.style)
		return r
	}
	b.t.work += r.w / 8 // eight columns are set at once
	r.clear(0)
	r.prepare(0, f.style)
	if cap(r.text) < r.w {
		r.text = make([]byte, 0, r.w)
	}
	r.text, r.n = r.text[:r.w], r.w
	for n := 0; n < r.w; {
		n += copy(r.text[n:], manyE)
	}
	return r
}

const manyE = "EEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEE" +
	"EEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEE"

// unmark removes the mark of the row y, if it has one. The caller must then fill or empty the row, whose content is
// stale.
func (b *buffer) unmark(y int) *row {
	b.order[y] &^= unfilled
	b.mayBeFilled(y, y)
	return &b.rows[b.order[y]]
}

// mayBeFilled tells that rows from top to bot may have become rows without a mark.
func (b *buffer) mayBeFilled(top, bot int) {
	b.first, b.last = min(b.first, top), max(b.last, bot)
}
