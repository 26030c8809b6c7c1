package vt

import (
	"bytes"
	"encoding/binary"
	"slices"
	"unicode"
	"unicode/utf8"
)

// A line is a row with those that continue it, below it on the normal screen or
// in its history. Lines are numbered from 0 on, in order, and a row begins one
// unless it is marked as continuing the row above. The history knows the number
// of its oldest row and how many lines begin in each arena; all others follow.
//
// So a line that has left the screen keeps its number whatever comes after it,
// is forgotten or is laid out anew. Numbers on the screen are as stable as what
// is there: a program that inserts rows moves those below, and lines that a
// larger screen takes back from the history are the program's to change again.
// The oldest row has a number even if it continues what was forgotten, that of
// its line; a number whose rows are all forgotten is never used again.

// Limits on what is told of a line.
const (
	maxLine    = 64 << 10 // bytes of text
	maxChanges = 8 << 10  // of its look
	runBytes   = 24       // that each look counts for in a page
)

// A HistoryLine is a line of the normal screen or its history, without the
// blanks of default look at its end. Controls are not in it, and columns that
// were never written or were erased are spaces.
type HistoryLine struct {
	Number uint64
	Text   string
	Runs   []TextRun // what it looks like, from its beginning to its end
	Cut    bool      // its beginning is forgotten, or there is more of it than one can be told
	Open   bool      // it ends on the screen, where more may come
}

// A TextRun is the look of a line's text up to the byte End, from where the run
// before it ends.
type TextRun struct {
	End  int
	Attr Attr
}

// LineNumbers returns the numbers of the oldest line that is kept and of the
// first one that begins on the screen, and the number after the last one's.
func (t *Term) LineNumbers() (first, screen, next uint64) {
	first = t.hist.first
	screen = first + t.hist.numbered()
	return first, screen, screen + uint64(len(t.begins(nil)))
}

// CursorLine returns the number of the line that the cursor of the normal screen is
// in, which the alternate one leaves where it was.
func (t *Term) CursorLine() uint64 {
	line := t.hist.first + t.hist.numbered()
	for y := 0; y <= t.normal.y; y++ {
		if t.beginsLine(y) {
			line++
		}
	}
	return max(line, t.hist.first+1) - 1
}

// begins appends the rows of the normal screen in which lines begin.
func (t *Term) begins(rows []int) []int {
	for y := range t.rows {
		if t.beginsLine(y) {
			rows = append(rows, y)
		}
	}
	return rows
}

// beginsLine reports whether a line begins in the row y of the normal screen,
// for which it does not have to have a beginning.
func (t *Term) beginsLine(y int) bool {
	return !t.normal.row(y).wrapped || y == 0 && t.hist.lines == 0
}

// LinesBefore returns the lines with numbers below before, the newest first: at
// most n, and only as long as they have less than maxBytes of text and of what
// tells their looks.
func (t *Term) LinesBefore(before uint64, n, maxBytes int) []HistoryLine {
	return t.linesBefore(before, n, maxBytes, true)
}

// TextBefore is LinesBefore without looks, which is faster. No line has blanks
// of any look at its end.
func (t *Term) TextBefore(before uint64, n, maxBytes int) []HistoryLine {
	return t.linesBefore(before, n, maxBytes, false)
}

func (t *Term) linesBefore(before uint64, n, maxBytes int, looks bool) []HistoryLine {
	h := &t.hist
	r := lineReader{t: t, b: &t.normal, looks: looks, screen: h.first + h.numbered(), rows: t.begins(nil), arena: len(h.arenas)}
	r.base = r.screen
	var lines []HistoryLine
	for number := min(before, r.screen+uint64(len(r.rows))); number > h.first && len(lines) < n && maxBytes > 0; {
		number--
		l := r.line(number)
		maxBytes -= len(l.Text) + len(l.Runs)*runBytes
		lines = append(lines, l)
	}
	return lines
}

// A lineReader tells lines, by descending numbers.
type lineReader struct {
	t      *Term
	b      *buffer // whose rows lie behind the history
	looks  bool
	screen uint64 // the number of the first line that begins on the screen
	rows   []int  // where lines begin there

	arena  int         // that the last line found in the history begins in
	base   uint64      // the number of the first line that begins there
	starts []int       // where its lines begin
	opened [2]unpacked // the packed arenas used last, the last one behind the other

	// Of the line that is being told:
	text    []byte
	changes []change // of its look
	cut     bool
	out     []TextRun // of all lines

	// Of a row of it:
	looksAt []lookAt
	buf     []byte // of one on the screen: its text form
	runs    []run
}

// unpacked is what a packed arena holds.
type unpacked struct {
	of    *arena
	b     []byte
	looks []storedLook
}

// change says that the text from the byte at on looks like style.
type change struct {
	at    int
	style style
}

// lookAt says that columns from col on look like style.
type lookAt struct {
	col   int
	style style
}

// A lineRow is a row in text form, and where the next one is.
type lineRow struct {
	text    []byte
	ascii   bool
	wrapped bool
	next    rowPlace
}

// A rowPlace is where a row is: the byte at in an arena, or behind the last one
// the row at of the screen.
type rowPlace struct{ arena, at int }

// line tells the line of a number, which is kept.
func (r *lineReader) line(number uint64) HistoryLine {
	t := r.t
	r.gather(r.find(number))
	runs := r.trim()
	open := number >= r.screen || number+1 == r.screen && !t.beginsLine(0)
	return HistoryLine{Number: number, Text: string(r.text), Runs: runs, Cut: r.cut, Open: open}
}

// gather reads the rows of the line that begins at a place.
func (r *lineReader) gather(p rowPlace) {
	t := r.t
	r.text, r.changes = r.text[:0], r.changes[:0]
	row := r.read(p)
	r.cut = row.wrapped // else it would not begin a line
	for {
		columns, blank := r.put(row)
		if r.full() || row.next == (rowPlace{len(t.hist.arenas), t.rows}) {
			break
		}
		if row = r.read(row.next); !row.wrapped {
			break
		}
		r.fill(columns, blank, row.text)
	}
	r.limit()
}

// AlternateText returns the lines of the alternate screen, from the top, each with
// the row that it begins in as its number, and without blanks at its end; false if it
// is not shown.
func (t *Term) AlternateText() ([]HistoryLine, bool) {
	if t.b != &t.alt {
		return nil, false
	}
	r := lineReader{t: t, b: &t.alt}
	var lines []HistoryLine
	for y := range t.rows {
		if y > 0 && t.alt.row(y).wrapped {
			continue
		}
		r.gather(rowPlace{len(t.hist.arenas), y})
		r.trim()
		lines = append(lines, HistoryLine{Number: uint64(y), Text: string(r.text), Cut: r.cut, Open: true})
	}
	return lines, true
}

// full reports whether there is more of the line than is told.
func (r *lineReader) full() bool { return len(r.text) > maxLine || len(r.changes) > maxChanges }

// limit cuts the line to what is told.
func (r *lineReader) limit() {
	if !r.full() {
		return
	}
	n := min(maxLine, len(r.text))
	if len(r.changes) > maxChanges {
		n = min(n, r.changes[maxChanges].at)
	}
	for n < len(r.text) && !utf8.RuneStart(r.text[n]) {
		n--
	}
	r.text, r.cut = r.text[:n], true
}

// find returns where a line begins, or what is left of it.
func (r *lineReader) find(number uint64) rowPlace {
	t := r.t
	arenas := t.hist.arenas
	if number >= r.screen {
		return rowPlace{len(arenas), r.rows[number-r.screen]}
	}
	if number < r.base {
		for number < r.base {
			r.arena--
			r.base -= uint64(arenas[r.arena].starts)
			if r.arena == 0 {
				r.base = t.hist.first
			}
		}
		r.starts = r.starts[:0]
		b, _ := r.open(arenas[r.arena])
		for at := arenas[r.arena].start; at < len(b); {
			size, k := binary.Uvarint(b[at:])
			if size&lineWrapped == 0 || r.arena == 0 && len(r.starts) == 0 {
				r.starts = append(r.starts, at)
			}
			at += k + int(size>>lineFlags)
		}
	}
	return rowPlace{r.arena, r.starts[number-r.base]}
}

// open returns the bytes and looks of an arena, which stays packed if it is.
func (r *lineReader) open(a *arena) ([]byte, []storedLook) {
	if !a.packed {
		return a.b, a.looks
	}
	// Two are enough for lines that begin in one arena and end in the next.
	o := &r.opened
	if o[1].of != a {
		o[0], o[1] = o[1], o[0]
	}
	if o[1].of != a {
		o[1].of = a
		o[1].b, o[1].looks = unpack(o[1].b[:0], a.b)
	}
	return o[1].b, o[1].looks
}

// read returns a row, and puts its looks into looksAt.
func (r *lineReader) read(p rowPlace) lineRow {
	t := r.t
	r.looksAt = r.looksAt[:0]
	if p.arena == len(t.hist.arenas) {
		row := r.b.row(p.at)
		var ascii bool
		r.buf, r.runs, _, ascii = t.encode(r.buf[:0], r.runs[:0], t.rowCells(row))
		for _, u := range r.runs {
			r.looksAt = append(r.looksAt, lookAt{u.col(), t.styles.all[u.style()]})
		}
		return lineRow{r.buf, ascii, row.wrapped, rowPlace{p.arena, p.at + 1}}
	}
	a := t.hist.arenas[p.arena]
	b, looks := r.open(a)
	l, rest := parseLine(b[p.at:])
	if r.looks {
		l.arena, l.looks = a, looks
		l.eachRun(func(col int, s style) { r.looksAt = append(r.looksAt, lookAt{col, s}) })
	}
	next := rowPlace{p.arena, len(b) - len(rest)}
	if len(rest) == 0 {
		next = rowPlace{p.arena + 1, 0}
	}
	return lineRow{l.text, l.flags&lineASCII != 0, l.flags&lineWrapped != 0, next}
}

// put appends a row's text, and returns the columns it has and whether the last
// one is empty.
func (r *lineReader) put(row lineRow) (columns int, empty bool) {
	r.change(style{})
	text, looks := row.text, r.looksAt
	if !r.looks {
		looks = nil
	}
	if row.ascii {
		for _, l := range looks {
			r.ascii(text[columns:l.col])
			columns = l.col
			r.change(l.style)
		}
		r.ascii(text[columns:])
		return len(text), len(text) > 0 && text[len(text)-1] == markEmpty
	}
	for len(text) > 0 && !r.full() {
		for len(looks) > 0 && looks[0].col <= columns && !combines(text) {
			r.change(looks[0].style)
			looks = looks[1:]
		}
		if n := asciiRun(text); n > 0 {
			if len(looks) > 0 {
				n = min(n, looks[0].col-columns)
			}
			r.text = append(r.text, text[:n]...)
			columns, empty, text = columns+n, false, text[n:]
			continue
		}
		var n, width int
		n, width, empty = r.cell(text)
		columns, text = columns+width, text[n:]
	}
	return columns, empty
}

// ascii appends text form with one byte a column.
func (r *lineReader) ascii(text []byte) {
	from := len(r.text)
	r.text = append(r.text, text...)
	for text = r.text[from:]; ; text[0] = ' ' {
		i := bytes.IndexByte(text, markEmpty)
		if i < 0 {
			return
		}
		text = text[i:]
	}
}

// cell appends what is at the beginning of a text form: a cell, several empty
// ones, or what combines with the cell before. It returns the bytes and columns
// that takes, and whether it is empty.
func (r *lineReader) cell(text []byte) (n, columns int, empty bool) {
	switch text[0] {
	case markEmpty:
		r.text = append(r.text, ' ')
		return 1, 1, true
	case markSpacer:
		return 1, 1, false
	case markCell:
		n = 3 + int(text[2])
		empty = n == 3 && text[1] == 1
		switch {
		case empty:
			r.text = append(r.text, ' ')
		case bytes.ContainsFunc(text[3:n], unicode.IsControl):
			r.text = utf8.AppendRune(r.text, utf8.RuneError)
		default:
			r.text = append(r.text, text[3:n]...)
		}
		return n, 1, empty
	case markSkip:
		columns = int(text[1]) | int(text[2])<<8
		r.text = appendSpaces(r.text, columns)
		return 3, columns, true
	}
	ch, n := utf8.DecodeRune(text)
	if unicode.IsControl(ch) {
		ch = utf8.RuneError
	}
	r.text = utf8.AppendRune(r.text, ch)
	return n, runeWidth(ch), false
}

func appendSpaces(dst []byte, n int) []byte {
	dst = slices.Grow(dst, n)
	for ; n > 0; n-- {
		dst = append(dst, ' ')
	}
	return dst
}

// combines reports whether a text form begins with what has no column.
func combines(text []byte) bool {
	if text[0] < utf8.RuneSelf {
		return false
	}
	ch, _ := utf8.DecodeRune(text)
	return runeWidth(ch) == 0
}

// fill appends what a row has behind its columns, the last of which may be
// empty, up to where the row goes on that continues it: where a wide character
// did not fit, without the last column.
func (r *lineReader) fill(columns int, empty bool, next []byte) {
	want := r.t.cols
	if (columns < want || empty) && beginsWide(next) {
		want--
	}
	if columns > want {
		r.text = r.text[:len(r.text)-1]
	} else if columns < want {
		r.change(style{})
		r.text = appendSpaces(r.text, want-columns)
	}
}

// beginsWide reports whether the first cell of a text form takes two columns.
func beginsWide(text []byte) bool {
	switch {
	case len(text) == 0:
		return false
	case text[0] == markCell:
		return text[1] == 2
	}
	ch, _ := utf8.DecodeRune(text)
	return runeWidth(ch) == 2
}

// change makes what comes next look like s.
func (r *lineReader) change(s style) {
	k := len(r.changes)
	for k > 0 && r.changes[k-1].at >= len(r.text) {
		k--
	}
	r.changes = r.changes[:k]
	if k == 0 && s != (style{}) || k > 0 && r.changes[k-1].style != s {
		r.changes = append(r.changes, change{len(r.text), s})
	}
}

// trim takes the blanks at the end away, and returns the looks of the others.
func (r *lineReader) trim() []TextRun {
	if !r.looks {
		r.text = bytes.TrimRight(r.text, " ")
		return nil
	}
	for k := len(r.changes); ; k-- {
		from, plain := 0, true
		if k > 0 {
			from, plain = r.changes[k-1].at, r.changes[k-1].style.attr() == (Attr{})
		}
		if plain && from < len(r.text) {
			r.text = r.text[:from+len(bytes.TrimRight(r.text[from:], " "))]
		}
		if k == 0 || from < len(r.text) {
			return r.told()
		}
	}
}

// told makes runs of where the look changes.
func (r *lineReader) told() []TextRun {
	from := len(r.out)
	var last Attr
	for _, c := range r.changes {
		if c.at >= len(r.text) {
			break
		}
		if a := c.style.attr(); a != last {
			if c.at > 0 {
				r.out = append(r.out, TextRun{c.at, last})
			}
			last = a
		}
	}
	if len(r.text) > 0 {
		r.out = append(r.out, TextRun{len(r.text), last})
	}
	return r.out[from:len(r.out):len(r.out)]
}
