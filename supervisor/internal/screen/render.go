package screen

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vt"
)

// texts fills in the lines as text, the last of them, as many as there is room
// for. It reports whether some were left out.
func (p *picture) texts(c *protocol.ScreenContent, lines iter.Seq[line], room int) (cut bool) {
	c.Lines = []string{}
	for l := range lines {
		s := p.text(l, room)
		if need := jsonLen(s); need > room {
			cut = true
			if len(c.Lines) == 0 { // one line alone: its end
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

// text returns a line without blanks at its end; of one that has more than room
// bytes, more than that at its end.
func (p *picture) text(l line, room int) string {
	var rows []string // the last one first
	for i := l.end - 1; i >= l.first && room >= 0; i-- {
		var b strings.Builder
		for _, c := range p.row(i, l) {
			b.WriteString(content(c))
		}
		s := b.String()
		if len(rows) == 0 {
			s = strings.TrimRight(s, " ")
		}
		if s != "" || len(rows) > 0 {
			rows = append(rows, s)
			room -= len(s)
		}
	}
	slices.Reverse(rows)
	return strings.Join(rows, "")
}

// row returns the cells of a row within a line. One that goes on in the next
// row has them all, but for one at its end into which a wide character did not
// fit.
func (p *picture) row(i int, l line) []vt.Cell {
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

// content is what a cell puts into a line of text. A cell without width is the
// second half of a wide one, or what combines with it.
func content(c vt.Cell) string {
	if c.Text == "" && c.Width == 1 {
		return " "
	}
	if strings.IndexFunc(c.Text, isControl) >= 0 {
		return "\ufffd"
	}
	return c.Text
}

// jsonLen is what s takes as JSON at most, with its comma.
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

// tail returns the last n bytes of s, whole characters.
func tail(s string, n int) string {
	return strings.ToValidUTF8(s[max(0, len(s)-n):], "")
}

// ansi fills in bytes that print the lines: each with the looks that it needs,
// and at its end SGR 0 and a newline.
func (p *picture) ansi(c *protocol.ScreenContent, lines iter.Seq[line], room int) (cut bool) {
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

// ansiLine returns a line, or more than room bytes of one that has more.
func (p *picture) ansiLine(l line, room int) string {
	var b []byte
	var look vt.Attr
	for i := l.first; i < l.end && len(b) <= room; i++ {
		last := -1
		for _, c := range p.row(i, l) {
			if c.Attr != last {
				if last = c.Attr; p.Look(last) != look {
					look = p.Look(last)
					b = appendSGR(b, look)
				}
			}
			b = append(b, content(c)...)
		}
	}
	return string(append(b, "\x1b[0m\n"...))
}

// appendSGR appends what makes the pen look like a, whatever it was. Underlines
// have the colour of the text.
func appendSGR(b []byte, a vt.Attr) []byte {
	a.UnderlineColor = 0
	return append(a.AppendSGR(append(b, "\x1b["...)), 'm')
}

// The modes of a vt.Attr's colours.
const (
	colorBasic = iota + 1
	colorPalette
	colorRGB
)

// maxLink is the longest link that is told; browsers take no longer ones.
const maxLink = 2048

// cells fills in the lines as cells with their looks.
func (p *picture) cells(c *protocol.ScreenContent, lines iter.Seq[line], room int) (cut bool) {
	t := looks{all: []protocol.Look{{}}, index: map[int]int{0: 0}}
	numbers := map[vt.Attr]int{{}: 0} // for looks.id
	above := 0
	for l := range lines {
		row, need := p.cellRow(l.first, &t, numbers)
		if room -= need; room < 0 {
			cut = true
			break
		}
		c.Cells = append(c.Cells, row)
		if l.first < p.above {
			above++
		}
	}
	slices.Reverse(c.Cells)
	c.Above, c.Looks = above, t.all
	return cut
}

// cellRow returns a row and what it takes as JSON, at most.
func (p *picture) cellRow(i int, t *looks, numbers map[vt.Attr]int) (row protocol.ScreenLine, need int) {
	row = protocol.ScreenLine{Wrapped: p.Wrapped(i), Cells: []protocol.ScreenCell{}}
	need = len(`{"wrapped":true,"cells":[]},`)
	last, number := -1, 0
	var look vt.Attr
	for _, c := range p.Cells(i) {
		text := c.Text
		if c.Width == 0 { // the second half of a wide one, or what combines with nothing
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
			last, look = c.Attr, p.Look(c.Attr)
			var ok bool
			if number, ok = numbers[look]; !ok {
				number = len(numbers)
				numbers[look] = number
			}
		}
		var more int
		cell.Look, more = t.id(number, look)
		need += more + jsonLen(text) + len(`{"t":,"w":2,"l":123456},`)
		row.Cells = append(row.Cells, cell)
	}
	return row, need
}

// looks numbers those that are used.
type looks struct {
	all   []protocol.Look
	index map[int]int // by that of the picture
}

func (t *looks) id(n int, a vt.Attr) (id, need int) {
	if id, ok := t.index[n]; ok {
		return id, 0
	}
	l := look(a)
	t.index[n] = len(t.all)
	t.all = append(t.all, l)
	return len(t.all) - 1, 256 + jsonLen(l.Link)
}

var underlines = []protocol.Underline{
	"", protocol.UnderlineSingle, protocol.UnderlineDouble, protocol.UnderlineCurly, protocol.UnderlineDotted, protocol.UnderlineDashed,
}

func look(a vt.Attr) protocol.Look {
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
