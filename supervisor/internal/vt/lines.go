package vt

import (
	"bytes"
	"encoding/binary"
	"slices"
	"unicode"
	"unicode/utf8"
)

// A line is a row together with the rows below it that continue it, on the normal screen or in
// its history. Lines are numbered from 0 on, in order. A row begins a line unless it is marked
// as continuing the row above. The history stores the number of its oldest row, and for each
// arena how many lines begin in it. All other numbers follow from these.
//
// Therefore a line that has left the screen keeps its number, even if later lines are dropped
// or all lines are laid out for another size. The numbers on the screen change with its
// content: a program that inserts rows moves the rows below, and lines that a larger screen
// takes back from the history may be changed by the program again. If the oldest row continues
// a dropped row, it has the number of its line. If all rows of a line are dropped, its number
// is never used again.

// Limits of one line in an answer.
const (
	maxLine    = 64 << 10 // bytes of text
	maxChanges = 8 << 10  // changes of its style
	runBytes   = 24       // bytes that each style counts in a page
)

// A HistoryLine is a line of the normal screen or of its history, without the blanks of
// default style at its end. It has no controls; columns that were never written, or were
// erased, are spaces.
type HistoryLine struct {
	Number uint64
	Text   string
	Runs   []TextRun // styles of the text, from its beginning to its end
	Cut    bool      // its beginning was dropped, or it is longer than one answer allows
	Open   bool      // it ends on the screen, so the program may still extend it
}

// A TextRun is the style of a line's text from the end of the run before up to the byte End.
type TextRun struct {
	End  int
	Attr Attr
}

// KeepText reduces the line to the bytes of its text from the byte from to the byte to. A character
// that begins before either of them ends there.
func (l *HistoryLine) KeepText(from, to int) {
	from, to = runeStart(l.Text, from), runeStart(l.Text, to)
	var runs []TextRun
	for _, r := range l.Runs {
		if end := min(r.End, to); end > from && (len(runs) == 0 || runs[len(runs)-1].End < end-from) {
			runs = append(runs, TextRun{end - from, r.Attr})
		}
	}
	l.Text, l.Runs = l.Text[from:max(from, to)], runs
}

// runeStart returns the first place from i on in which a character begins, or the end of s.
func runeStart(s string, i int) int {
	i = min(max(i, 0), len(s))
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return i
}

// LineNumbers returns the number of the oldest line, the number of the first line that begins
// on the screen, and the number after that of the last line.
func (t *Term) LineNumbers() (first, screen, next uint64) {
	first = t.hist.first
	screen = first + t.hist.numbered()
	return first, screen, screen + uint64(len(t.begins(nil)))
}

// CursorLine returns the number of the line with the cursor of the normal screen. The
// alternate screen does not move that cursor.
func (t *Term) CursorLine() uint64 {
	line := t.hist.first + t.hist.numbered()
	for y := 0; y <= t.normal.y; y++ {
		if t.beginsLine(y) {
			line++
		}
	}
	return max(line, t.hist.first+1) - 1
}

// CursorPlace returns the number of the line with the cursor of the normal screen, and the number
// of bytes of the line's text before the cursor. The text is that of LinesBefore, with as many
// blanks at its end as there are columns up to the cursor. If the line begins above the screen, the
// place is the beginning of the next line, because a program may ask for the place after each
// character of a long line.
func (t *Term) CursorPlace() (line uint64, bytes int) {
	line = t.CursorLine()
	first := t.normal.y
	for first >= 0 && !t.beginsLine(first) {
		first--
	}
	t.work += t.rows
	if first < 0 {
		return line + 1, 0
	}
	r := lineReader{t: t, b: &t.normal}
	bytes = r.bytesBefore(first, t.normal.x, t.normal.y)
	t.work += placeWork * len(r.text)
	return line, bytes
}

// begins appends to rows the rows of the normal screen in which lines begin.
func (t *Term) begins(rows []int) []int {
	for y := range t.rows {
		if t.beginsLine(y) {
			rows = append(rows, y)
		}
	}
	return rows
}

// beginsLine reports whether a line begins in the row y of the normal screen. It does so in
// the first row if there is no history, even if the row continues a dropped row.
func (t *Term) beginsLine(y int) bool {
	return !t.normal.wrapped(y) || y == 0 && t.hist.lines == 0
}

// LinesBefore returns the lines with numbers below before, the newest first. It returns at
// most n lines, and stops when their texts and styles take maxBytes or more.
func (t *Term) LinesBefore(before uint64, n, maxBytes int) []HistoryLine {
	return t.linesBefore(before, n, maxBytes, true)
}

// TextBefore returns the same lines as LinesBefore without their styles, which is faster. No
// line has blanks of any style at its end.
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

// A lineReader decodes lines in the order of descending numbers.
type lineReader struct {
	t      *Term
	b      *buffer // the screen with the rows that follow the history
	looks  bool
	screen uint64 // number of the first line that begins on the screen
	rows   []int  // rows of the screen in which lines begin

	arena  int         // arena in which the last line that was found begins
	base   uint64      // number of the first line that begins in that arena
	starts []int       // offsets of the lines in that arena
	opened [2]unpacked // the packed arenas that were used last, the most recent one second

	// The line that is being decoded:
	text    []byte
	changes []change // changes of its style
	cut     bool
	out     []TextRun // runs of all lines

	// A row of that line:
	looksAt []lookAt
	buf     []byte // text form of a row of the screen
	runs    []run
}

// unpacked is the content of a packed arena.
type unpacked struct {
	of    *arena
	b     []byte
	looks []storedLook
}

// change begins a style at the byte at of the text.
type change struct {
	at    int
	style style
}

// lookAt begins a style at the column col.
type lookAt struct {
	col   int
	style style
}

// A lineRow is a row in text form, and the place of the next row.
type lineRow struct {
	text    []byte
	ascii   bool
	wrapped bool
	next    rowPlace
}

// A rowPlace is the place of a row: the offset at in an arena or, behind the last arena, the
// row at of the screen.
type rowPlace struct{ arena, at int }

// line returns the line with a number. The line must exist.
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
	r.cut = row.wrapped // otherwise it would not begin a line
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

// bytesBefore returns the number of bytes of the text of the line that begins in the row first of
// the screen, before the column x of the row y, which belongs to the line. It stops counting when
// the text is longer than one answer allows.
func (r *lineReader) bytesBefore(first, x, y int) int {
	row := r.b.row(y)
	if first == y && row.ascii {
		return x
	}
	if p := (rowPlace{len(r.t.hist.arenas), first}); first < y {
		for row := r.read(p); p.at < y; {
			columns, blank := r.put(row)
			if r.full() {
				return len(r.text)
			}
			p = row.next
			row = r.read(p)
			r.fill(columns, blank, row.text)
		}
	}
	cells := row.cells
	if !row.inCells {
		r.t.scratch = r.t.decode(r.t.scratch[:0], row.text, row.runs)
		cells = r.t.scratch
	}
	var ascii bool
	r.buf, r.runs, _, ascii = r.t.encode(r.buf[:0], r.runs[:0], cells[:min(x, len(cells))])
	r.looksAt = r.looksAt[:0]
	columns, _ := r.put(lineRow{text: r.buf, ascii: ascii})
	return len(r.text) + max(0, x-columns)
}

// AlternateText returns the lines of the alternate screen from the top, without blanks at
// their ends. The number of a line is the row in which it begins. If the alternate screen is
// not shown, it returns false.
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

// full reports whether the line is longer than one answer allows.
func (r *lineReader) full() bool { return len(r.text) > maxLine || len(r.changes) > maxChanges }

// limit cuts the line to the length that one answer allows.
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

// find returns the place of the first row of a line that has not been dropped.
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

// open returns the bytes and styles of an arena. If the arena is packed, it stays packed.
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
		o[1].b, o[1].looks = unpack(o[1].b[:0], o[1].looks[:0], a.b)
	}
	return o[1].b, o[1].looks
}

// read returns a row, and stores its styles in looksAt.
func (r *lineReader) read(p rowPlace) lineRow {
	t := r.t
	r.looksAt = r.looksAt[:0]
	if p.arena == len(t.hist.arenas) {
		row := r.b.row(p.at)
		var ascii bool
		r.buf, r.runs, _, ascii = t.encode(r.buf[:0], r.runs[:0], t.rowCells(row))
		for _, u := range r.runs {
			r.looksAt = append(r.looksAt, lookAt{u.col(), *t.styles.at(u.style())})
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

// put appends the text of a row. It returns the number of the row's columns, and whether the
// last one is empty.
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

// ascii appends a text form that has one byte for each column.
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

// cell appends the text of the first cell of a text form, of several empty cells, or of a
// combining character that belongs to the cell before. It returns the number of bytes and
// columns that it has used, and whether the cell is empty.
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

// combines reports whether a text form begins with a character without width.
func combines(text []byte) bool {
	if text[0] < utf8.RuneSelf {
		return false
	}
	ch, _ := utf8.DecodeRune(text)
	return runeWidth(ch) == 0
}

// fill appends the empty columns at the end of a row that continues in the next row. empty
// tells whether the last column of the row is empty. If a wide character did not fit, the last
// column is left out.
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

// beginsWide reports whether the first cell of a text form has two columns.
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

// change sets the style of the text that is appended next.
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

// trim removes the blanks of default style at the end, and returns the styles of the remaining
// text.
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
			return r.textRuns()
		}
	}
}

// textRuns returns the runs for the changes of style.
func (r *lineReader) textRuns() []TextRun {
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
