package vt

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// Blank reports whether the row i has no text and, if styles is set, no cell of another style
// than the default one. It also returns the number of cells that it has read.
func (r *Rows) Blank(i int, styles bool) (blank bool, cells int) {
	if i < r.Above() {
		if l := r.rows.row(i); l.flags&lineASCII != 0 && (!styles || l.flags&lineStyled == 0) {
			return len(bytes.Trim(l.text, "\x00 ")) == 0, len(l.text)
		}
	}
	row := r.trimmedCells(i)
	for x, c := range row {
		if code := c & contentMask; code != 0 && code != ' ' && code != '\u3000' {
			return false, x + 1
		}
		if styles && c.style() != 0 {
			if s := r.styleAt(i, c); s.attr() != (Attr{}) || s.shownTile() != nil {
				return false, x + 1
			}
		}
	}
	return true, len(row)
}

// AppendText appends the text of the row i to dst: a space for an empty column, and U+FFFD for
// a cell with a control. If continues is set, the line continues in the next row, and the text
// has all columns of the row, except for one at its end into which a wide character did not
// fit. AppendText also returns the number of cells that it has read.
func (r *Rows) AppendText(dst []byte, i int, continues bool) (text []byte, cells int) {
	columns, empty := 0, false
	if l, ok := r.asciiRow(i); ok {
		columns = len(l.text)
		from := len(dst)
		dst = append(dst, l.text...)
		for rest := dst[from:]; ; {
			at := bytes.IndexByte(rest, markEmpty)
			if at < 0 {
				break
			}
			rest[at] = ' '
			rest = rest[at+1:]
		}
	} else {
		row := r.trimmedCells(i)
		for _, c := range row {
			dst = r.t.appendShown(dst, c)
		}
		columns = len(row)
		empty = columns > 0 && row[columns-1]&(contentMask|widthMask) == 0
	}
	cells = columns
	if continues && empty {
		dst, columns = dst[:len(dst)-1], columns-1
	}
	if missing := r.t.cols - 1 - columns; continues && missing > 0 {
		dst = appendSpaces(dst, missing+1)
	}
	return dst, cells
}

// asciiRow returns the row i if it is a row of the history that has one byte for each column
// and content in its last column.
func (r *Rows) asciiRow(i int) (l storedLine, ok bool) {
	if i >= r.Above() {
		return l, false
	}
	l = r.rows.row(i)
	n := len(l.text)
	return l, l.flags&lineASCII != 0 && (n == 0 || l.text[n-1] != markEmpty)
}

// trimmedCells returns the cells of the row i up to the last one that is not an empty cell of
// default style. The style ids of cells of the history only tell whether the style is the
// default one: 0 if it is, and otherwise 1 + the index of the stored style. To find the id of
// each style would take longer than to read the row.
func (r *Rows) trimmedCells(i int) []cell {
	t := r.t
	t.tidyReading()
	var cells []cell
	if i < r.Above() {
		l := r.rows.row(i)
		runs := t.hist.runs[:0]
		l.eachLook(func(col, look int) {
			runs = append(runs, newRun(col, styleID(look+1)))
			if l.looks[look] == (storedLook{}) {
				runs[len(runs)-1] = newRun(col, 0)
			}
		})
		t.hist.runs = runs
		t.scratch = t.decode(t.scratch[:0], l.text, runs)
		cells = t.scratch
	} else {
		cells = t.rowCells(t.b.row(i - r.Above()))
	}
	n := len(cells)
	for n > 0 && cells[n-1] == 0 {
		n--
	}
	return cells[:n]
}

// styleAt returns the style of a cell that trimmedCells has returned for the row i. The style
// id of the cell must not be 0.
func (r *Rows) styleAt(i int, c cell) style {
	if i < r.Above() {
		return r.rows.row(i).look(int(c.style()) - 1)
	}
	return *r.t.styles.at(c.style())
}

// appendShown appends the text of a cell as AppendText does.
func (t *Term) appendShown(dst []byte, c cell) []byte {
	code := rune(c & codeMask)
	switch {
	case c&(contentMask|widthMask) == 0:
		return append(dst, ' ')
	case c&clusterBit != 0:
		from := len(dst)
		dst = append(dst, t.clusters.text(c)...)
		if bytes.ContainsFunc(dst[from:], unicode.IsControl) {
			return utf8.AppendRune(dst[:from], utf8.RuneError)
		}
		return dst
	case code == 0:
		return dst
	case unicode.IsControl(code):
		code = utf8.RuneError
	}
	return utf8.AppendRune(dst, code)
}
