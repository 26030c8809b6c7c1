package screen

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/supervisor/internal/vt"
)

// texts sets c.Lines to the last lines as text, as many as have room. It reports whether lines
// were left out.
func (p *sheet) texts(c *protocol.ScreenContent, lines iter.Seq[line], room int) (cut bool) {
	c.Lines = []string{}
	for l := range lines {
		s := p.text(l, room)
		if need := jsonLen(s); need > room {
			cut = true
			if len(c.Lines) == 0 { // a single line is too long, so its end is returned
				c.Lines = append(c.Lines, tail(s, room/6))
			}
			break
		}
		room -= jsonLen(s)
		c.Lines = append(c.Lines, s)
	}
	slices.Reverse(c.Lines)
	return cut
}

// text returns the text of a line without blanks at its end. If the text is longer than room
// bytes, text returns a part of more than room bytes at the end of the line.
func (p *sheet) text(l line, room int) string {
	p.buf, p.rows = p.buf[:0], p.rows[:0]
	for i := l.end - 1; i >= l.first && room >= 0; i-- {
		from := len(p.buf)
		p.appendText(i, l)
		if len(p.rows) == 0 {
			p.buf = bytes.TrimRight(p.buf, " ")
		}
		if n := len(p.buf) - from; n > 0 || len(p.rows) > 0 {
			p.rows = append(p.rows, from)
			room -= n
		}
	}
	var b strings.Builder
	b.Grow(len(p.buf))
	for end := len(p.buf); len(p.rows) > 0; {
		from := p.rows[len(p.rows)-1]
		b.Write(p.buf[from:end])
		p.rows, end = p.rows[:len(p.rows)-1], from
	}
	return b.String()
}

// appendText appends the text of a row within a line to buf.
func (p *sheet) appendText(i int, l line) {
	if p.masker == nil || len(p.hiddenIn(i)) == 0 {
		var cells int
		p.buf, cells = p.AppendText(p.buf, i, i+1 < l.end)
		p.room -= cells + 1
		return
	}
	for _, c := range p.row(i, l) {
		p.buf = append(p.buf, content(c)...)
	}
}

// row returns the cells of a row within a line. If the line continues in the next row, the row
// has all its columns, except for one at its end into which a wide character did not fit.
func (p *sheet) row(i int, l line) []vt.Cell {
	cells := p.Cells(i)
	if i+1 == l.end {
		return cells
	}
	if n := len(cells); n > 0 && cells[n-1].Text == "" && cells[n-1].Width == 1 {
		cells = cells[:n-1]
	}
	if missing := p.cols - 1 - len(cells); missing > 0 {
		cells = append(slices.Clone(cells), slices.Repeat([]vt.Cell{{Width: 1}}, missing+1)...)
	}
	return cells
}

// content returns the text of a cell in a line of text. A cell without width has no text if it
// is the second half of a wide character.
func content(c vt.Cell) string {
	if c.Text == "" && c.Width == 1 {
		return " "
	}
	if strings.IndexFunc(c.Text, isControl) >= 0 {
		return "\ufffd"
	}
	return c.Text
}

// jsonLen returns a bound of the length of s as JSON, with its comma.
func jsonLen(s string) int {
	n := len(s) + 3
	for _, r := range s {
		switch {
		case r < 0x20:
			n += 5
		case r == '"' || r == '\\' || r == 0x7f:
			n++
		case r == '\u2028' || r == '\u2029':
			n += 3
		}
	}
	return n
}

// tail returns at most the last n bytes of s. It cuts only between characters.
func tail(s string, n int) string {
	return strings.ToValidUTF8(s[max(0, len(s)-n):], "")
}

// ansi sets c.ANSI to bytes that print the lines. Each line sets the styles that it needs, and
// ends with SGR 0 and a newline. ansi reports whether lines were left out.
func (p *sheet) ansi(c *protocol.ScreenContent, lines iter.Seq[line], room int) (cut bool) {
	var out []string
	for l := range lines {
		s := p.ansiLine(l, room)
		if room -= jsonLen(s); room < 0 {
			cut = true
			break
		}
		out = append(out, s)
	}
	slices.Reverse(out)
	c.ANSI = strings.Join(out, "")
	return cut
}

// ansiLine returns a line. If the line has more than room bytes, ansiLine may return only its
// beginning, which still has more than room bytes.
func (p *sheet) ansiLine(l line, room int) string {
	var b []byte
	var style vt.Attr
	for i := l.first; i < l.end && len(b) <= room; i++ {
		last := -1
		for _, c := range p.row(i, l) {
			if c.Attr != last {
				if last = c.Attr; p.Look(last) != style {
					style = p.Look(last)
					b = appendSGR(b, style)
				}
			}
			b = append(b, content(c)...)
		}
	}
	return string(append(b, "\x1b[0m\n"...))
}

// appendSGR appends the SGR that gives the pen the style a, whatever its style was. Underlines
// get the colour of the text.
func appendSGR(b []byte, a vt.Attr) []byte {
	a.UnderlineColor = 0
	return append(a.AppendSGR(append(b, "\x1b["...)), 'm')
}

// These are the modes of the colours in a vt.Attr.
const (
	colorBasic = iota + 1
	colorPalette
	colorRGB
)

// maxLink is the length of the longest link in an answer, in bytes. Browsers do not support
// longer ones.
const maxLink = 2048

// cells sets c.Cells to the cells of the lines, c.Looks to their styles, and if pictures is set, c.Pictures to
// the pictures that they show. It reports whether lines or pictures were left out.
func (p *sheet) cells(c *protocol.ScreenContent, lines iter.Seq[line], room int, pictures bool) (cut bool) {
	t := styleList{all: []protocol.Look{{}}, index: map[int]int{0: 0}, masker: p.masker}
	numbers := map[vt.Attr]int{{}: 0} // numbers of styles in the table
	above := 0
	var rows []int
	for l := range lines {
		row, need := p.cellRow(l.first, &t, numbers)
		if room -= need; room < 0 {
			cut = true
			break
		}
		c.Cells = append(c.Cells, row)
		rows = append(rows, l.first)
		if l.first < p.above {
			above++
		}
	}
	slices.Reverse(c.Cells)
	slices.Reverse(rows)
	c.Above, c.Looks = above, t.all
	if !pictures || len(rows) == 0 {
		return cut
	}
	all, more := p.Pictures(rows[0], rows[len(rows)-1]+1, room/4*3) // base64 is longer
	for _, one := range all {
		if i, ok := slices.BinarySearch(rows, one.Row); ok {
			c.Pictures = append(c.Pictures, protocol.ScreenPicture{Row: i, Col: one.Col, Rows: one.Rows, Cols: one.Cols, PNG: one.PNG})
		}
	}
	slices.SortFunc(c.Pictures, func(a, b protocol.ScreenPicture) int { return cmp.Or(a.Row-b.Row, a.Col-b.Col) })
	return cut || more
}

// cellRow returns the cells of a row, and a bound of their length as JSON.
func (p *sheet) cellRow(i int, t *styleList, numbers map[vt.Attr]int) (row protocol.ScreenLine, need int) {
	row = protocol.ScreenLine{Wrapped: p.Wrapped(i), Cells: []protocol.ScreenCell{}}
	need = len(`{"wrapped":true,"cells":[]},`)
	last, number := -1, 0
	var style vt.Attr
	for _, c := range p.Cells(i) {
		text := c.Text
		if c.Width == 0 { // the second half of a wide character, or a combining character without another one
			if k := len(row.Cells); k > 0 && text != "" {
				row.Cells[k-1].Text += text
				need += jsonLen(text)
			}
			continue
		}
		cell := protocol.ScreenCell{Text: text}
		if c.Width == 2 {
			cell.Width = 2
		}
		if c.Attr != last {
			last, style = c.Attr, p.Look(c.Attr)
			var ok bool
			if number, ok = numbers[style]; !ok {
				number = len(numbers)
				numbers[style] = number
			}
		}
		var more int
		cell.Look, more = t.id(number, style)
		need += more + jsonLen(text) + len(`{"t":,"w":2,"l":123456},`)
		row.Cells = append(row.Cells, cell)
	}
	return row, need
}

// styleList is the list of styles in an answer.
type styleList struct {
	all   []protocol.Look
	index map[int]int // index in all, by the number in the sheet

	masker *mask.Masker // masks secrets in links
}

func (t *styleList) id(n int, a vt.Attr) (id, need int) {
	if id, ok := t.index[n]; ok {
		return id, 0
	}
	l := styleOf(a)
	l.Link = t.masker.Text(l.Link)
	t.index[n] = len(t.all)
	t.all = append(t.all, l)
	return len(t.all) - 1, 256 + jsonLen(l.Link)
}

var underlines = []protocol.Underline{
	"", protocol.UnderlineSingle, protocol.UnderlineDouble, protocol.UnderlineCurly, protocol.UnderlineDotted, protocol.UnderlineDashed,
}

func styleOf(a vt.Attr) protocol.Look {
	l := protocol.Look{
		Fg: color(a.Fg), Bg: color(a.Bg), UnderlineColor: color(a.UnderlineColor),
		Bold: a.Flags&vt.Bold != 0, Dim: a.Flags&vt.Dim != 0, Italic: a.Flags&vt.Italic != 0,
		Blink: a.Flags&vt.Blink != 0, Inverse: a.Flags&vt.Inverse != 0, Invisible: a.Flags&vt.Invisible != 0,
		Strike: a.Flags&vt.Strike != 0, Overline: a.Flags&vt.Overline != 0,
	}
	if a.Underline > 0 && a.Underline < len(underlines) {
		l.Underline = underlines[a.Underline]
	}
	if link := strings.ToValidUTF8(a.URI, "\ufffd"); len(link) <= maxLink {
		l.Link = link
	}
	return l
}

func color(c uint32) string {
	v := c & 0xffffff
	switch c >> 24 {
	case colorBasic, colorPalette:
		return strconv.Itoa(int(v))
	case colorRGB:
		s := strconv.FormatUint(uint64(v|1<<24), 16)
		return "#" + s[1:]
	}
	return ""
}
