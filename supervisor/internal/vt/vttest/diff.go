package vttest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"holdfast/supervisor/internal/vt"
)

// maxDiffs is the number of differences that are reported. The first ones lead to the cause.
const maxDiffs = 12

// Options select the parts of a state that Diff does not compare.
type Options struct {
	Printable    bool // do not compare lines that no bytes can reproduce
	FirstWrapped bool // do not compare whether the first line continues a dropped line
	HiddenCursor bool // do not compare the normal screen's cursor while the alternate screen is shown
}

// Diff returns the first differences of two states, one in each line, or "" if there are none.
// Styles are compared by value.
func Diff(got, want *vt.State, options ...Options) string {
	d := &differ{got: got, want: want}
	if len(options) > 0 {
		d.Options = options[0]
	}
	d.state()
	if len(d.found) > maxDiffs {
		d.found = append(d.found[:maxDiffs], fmt.Sprintf("and %d more", len(d.found)-maxDiffs))
	}
	return strings.Join(d.found, "\n")
}

type differ struct {
	Options
	got, want *vt.State
	found     []string
}

func (d *differ) equal(name string, got, want any) bool {
	if reflect.DeepEqual(got, want) {
		return true
	}
	d.found = append(d.found, fmt.Sprintf("%s: got %+v, want %+v", name, got, want))
	return false
}

func (d *differ) state() {
	got, want := d.got, d.want
	d.equal("size", [2]int{got.Cols, got.Rows}, [2]int{want.Cols, want.Rows})
	d.buffer("normal", &got.Normal, &want.Normal)
	if d.equal("alternate shown", got.Alternate != nil, want.Alternate != nil) && got.Alternate != nil {
		d.buffer("alternate", got.Alternate, want.Alternate)
	}
	d.attr("pen", got.Pen, want.Pen)
	d.modes()
	d.equal("charset", charset(got.Charset), charset(want.Charset))
	d.equal("charsets", charsets(got.Charsets), charsets(want.Charsets))
	d.equal("gl", got.GL, want.GL)
	d.equal("title", got.Title, want.Title)
	d.equal("icon name", got.IconName, want.IconName)
	d.equal("title stack", list(got.TitleStack), list(want.TitleStack))
	d.equal("icon stack", list(got.IconStack), list(want.IconStack))
}

func (d *differ) modes() {
	got, want := reflect.ValueOf(d.got.Modes), reflect.ValueOf(d.want.Modes)
	for i := range got.NumField() {
		field := got.Type().Field(i)
		if field.Tag.Get("json") == "-" {
			continue
		}
		d.equal("mode "+field.Name, got.Field(i).Interface(), want.Field(i).Interface())
	}
}

func (d *differ) buffer(name string, got, want *vt.Buffer) {
	if !d.HiddenCursor || name != "normal" || d.want.Alternate == nil {
		d.equal(name+" cursor", [2]int{got.X, got.Y}, [2]int{want.X, want.Y})
	}
	d.equal(name+" region", [2]int{got.ScrollTop, got.ScrollBottom}, [2]int{want.ScrollTop, want.ScrollBottom})
	d.equal(name+" tabs", slices.Concat(got.Tabs, []int{}), slices.Concat(want.Tabs, []int{}))
	d.equal(name+" saved cursor", [2]int{got.SavedX, got.SavedY}, [2]int{want.SavedX, want.SavedY})
	d.savedPen(name+" saved pen", got.SavedPen, want.SavedPen)
	d.equal(name+" saved charset", charset(got.SavedCharset), charset(want.SavedCharset))
	d.equal(name+" history", got.History, want.History)
	d.equal(name+" lines", len(got.Lines), len(want.Lines))
	// Lines are compared from the end, because a history with a missing line differs everywhere
	// from the start.
	for i := range min(len(got.Lines), len(want.Lines)) {
		d.line(name, len(want.Lines)-1-i, &got.Lines[len(got.Lines)-1-i], &want.Lines[len(want.Lines)-1-i])
	}
}

func (d *differ) line(buffer string, y int, got, want *vt.Line) {
	name := fmt.Sprintf("%s line %d", buffer, y)
	if got.Wrapped != want.Wrapped && !(d.FirstWrapped && y == 0) {
		d.equal(name+" wrapped", got.Wrapped, want.Wrapped)
	}
	if d.Printable && unprintableLine(d.want, want) {
		return
	}
	for x := range max(len(got.Cells), len(want.Cells)) {
		g, w := cell(got, x), cell(want, x)
		if g.Text != w.Text || g.Width != w.Width {
			d.found = append(d.found, fmt.Sprintf("%s column %d: got %q width %d, want %q width %d\n\tgot  %q\n\twant %q",
				name, x, g.Text, g.Width, w.Text, w.Width, text(got), text(want)))
			return
		}
		if !d.attr(fmt.Sprintf("%s column %d (%q)", name, x, w.Text), g.Attr, w.Attr) {
			return
		}
	}
}

// cell returns cell x of a line, which is an empty cell if the line is shorter.
func cell(l *vt.Line, x int) vt.Cell {
	if x < len(l.Cells) {
		return l.Cells[x]
	}
	return vt.Cell{Width: 1}
}

// text returns a line's text, with a sign for empty cells.
func text(l *vt.Line) string {
	var b strings.Builder
	for _, c := range l.Cells {
		switch {
		case c.Text != "":
			b.WriteString(c.Text)
		case c.Width == 1:
			b.WriteString("\u2423")
		}
	}
	return b.String()
}

func (d *differ) attr(name string, got, want int) bool {
	g, gotOK := attr(d.got, got)
	w, wantOK := attr(d.want, want)
	if !gotOK || !wantOK {
		d.found = append(d.found, fmt.Sprintf("%s: attribute out of range: got %d of %d, want %d of %d",
			name, got, len(d.got.Attrs), want, len(d.want.Attrs)))
		return false
	}
	if g == w {
		return true
	}
	d.found = append(d.found, fmt.Sprintf("%s: got %s, want %s", name, describeAttr(g), describeAttr(w)))
	return false
}

// savedPen compares saved pens without their underlines. DECSC saves only whether there is an
// underline. Its kind depends on the pen at DECRC, and printing text behind DECRC shows it.
func (d *differ) savedPen(name string, got, want int) {
	g, gotOK := attr(d.got, got)
	w, wantOK := attr(d.want, want)
	g.Underline, w.Underline = 0, 0
	if !gotOK || !wantOK || g != w {
		d.attr(name, got, want)
	}
}

func attr(s *vt.State, i int) (vt.Attr, bool) {
	if i == 0 && len(s.Attrs) == 0 {
		return vt.Attr{}, true
	}
	if i < 0 || i >= len(s.Attrs) {
		return vt.Attr{}, false
	}
	a := s.Attrs[i]
	// Without an underline its colour is not visible, and it may be left from an earlier one.
	if a.UnderlineColor == noUnderlineColor || a.Underline == 0 {
		a.UnderlineColor = 0
	}
	return a, true
}

// noUnderlineColor is the value that SGR 59 stores in xterm.js. It means the default colour,
// and cannot be told from white.
const noUnderlineColor = 0x3ffffff

func describeAttr(a vt.Attr) string {
	return fmt.Sprintf("{fg %#x bg %#x flags %#x underline %d %#x link %q %q}",
		a.Fg, a.Bg, uint16(a.Flags), a.Underline, a.UnderlineColor, a.URI, a.LinkID)
}

// charset maps the designators of a set to one of them.
func charset(designator string) string {
	switch designator {
	case "B":
		return ""
	case "5":
		return "C"
	case "6":
		return "E"
	case "7":
		return "H"
	}
	return designator
}

// charsets returns the sets G0 to G3. The last ones may be missing in designators.
func charsets(designators []string) (all [4]string) {
	for i := range min(4, len(designators)) {
		all[i] = charset(designators[i])
	}
	return all
}

func list(s []string) []string { return slices.Concat(s, []string{}) }

// Unprintable reports whether no bytes bring a new terminal into the state s, or none that
// would be worth the effort: - under DECOM, a cursor outside the scroll region; - a pending
// wrap behind a column that was erased since; - after DECRC, a character set in use that is
// neither the one shifted in nor the one saved.
func Unprintable(s *vt.State) bool {
	shown := &s.Normal
	if s.Alternate != nil {
		shown = s.Alternate
	}
	if in := charset(s.Charset); in != charset(s.Charsets[s.GL]) && in != charset(shown.SavedCharset) {
		return true
	}
	if s.Modes.Origin && (shown.Y < shown.ScrollTop || shown.Y > shown.ScrollBottom) {
		return true
	}
	if shown.X == s.Cols {
		if last := cell(&shown.Lines[shown.History+shown.Y], s.Cols-1); last.Text == "" && last.Width == 1 {
			return true
		}
	}
	return false
}

// unprintableLine reports whether no bytes reproduce a line: because it has half a wide
// character without the other half, which ICH within the character leaves, or halves of
// different styles, which a smaller screen leaves, or two empty columns at its end with more
// style than a background, which only such halves leave.
func unprintableLine(s *vt.State, l *vt.Line) bool {
	odd := func(x int) bool {
		c := cell(l, x)
		a, _ := attr(s, c.Attr)
		a.Bg = 0
		return c.Text == "" && a != (vt.Attr{})
	}
	if odd(s.Cols-1) && odd(s.Cols-2) {
		return true
	}
	for x := range len(l.Cells) + 1 {
		first := x > 0 && l.Cells[x-1].Width == 2
		second := x < len(l.Cells) && l.Cells[x].Width == 0 && l.Cells[x].Text == ""
		if first != second || second && l.Cells[x].Attr != l.Cells[x-1].Attr {
			return true
		}
	}
	return false
}
