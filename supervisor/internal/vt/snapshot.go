package vt

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Snapshot is AppendSnapshot with the whole history.
func (t *Term) Snapshot() []byte { return t.AppendSnapshot(nil, t.hist.lines) }

// AppendSnapshot appends bytes to dst that bring a fresh terminal of the same
// size to this state, as far as a terminal can be told, with the last history
// lines of what lies above the screen. They ask nothing and ring nothing, and
// they end where the next byte that the program prints goes on, within a
// sequence too.
//
// What is restored by which sequence, and in which order, stands in
// ARCHITECTURE.md.
func (t *Term) AppendSnapshot(dst []byte, history int) []byte {
	p := &painter{t: t, out: dst}
	p.snapshot(min(history, t.hist.lines))
	return p.out
}

// snapshot writes a snapshot with so many lines above the screen.
func (p *painter) snapshot(history int) {
	t := p.t
	p.private(2027, t.modes.Graphemes)
	p.normal(history)
	p.tabs(&t.normal)
	p.saved(&t.normal, t.hist.lines)
	p.keyboard(t.keyboard.Kitty[0])
	if t.b == &t.alt {
		p.region(&t.normal)
		p.csi('H', t.normal.y+1, min(t.normal.x, t.cols-1)+1)
		p.look(&style{})
		p.add("\x1b[?1047h\x1b[H")
		p.screen(&t.alt)
		p.tabs(&t.alt)
		p.saved(&t.alt, 0)
		p.keyboard(t.keyboard.Kitty[1])
	}
	p.titles()
	p.colors()
	p.modes(nil)
	p.modifyOtherKeys(0)
	p.region(t.b)
	p.charsets()
	p.cursor()
	p.out = t.pending(p.out)
}

// tabs sets the tab stops, if they are not as they are at first.
func (p *painter) tabs(b *buffer) {
	for x := range p.t.cols {
		if b.hasTab(x) != plainTab(x) {
			p.setTabs(b)
			return
		}
	}
}

// plainTab reports whether a column has a tab stop at first.
func plainTab(x int) bool { return x%8 == 0 }

// setTabs sets the tab stops, whatever they were.
func (p *painter) setTabs(b *buffer) {
	t := p.t
	p.add("\x1b[3g")
	for x := range t.cols {
		if b.hasTab(x) {
			p.csi('G', x+1)
			p.add("\x1bH")
		}
	}
}

// saved restores what DECSC has kept, if it is something. base is the number of
// lines above the screen.
func (p *painter) saved(b *buffer, base int) {
	if s := p.t.shownSaved(b, base); s != (saved{}) {
		p.save(s)
	}
}

// shownSaved is what DECSC has kept, its place on the screen.
func (t *Term) shownSaved(b *buffer, base int) saved {
	s := b.saved
	s.x, s.y = min(s.x, t.cols-1), min(max(s.y-base, 0), t.rows-1)
	return s
}

// save makes DECSC keep what it shall have kept.
func (p *painter) save(s saved) {
	p.csi('H', s.y+1, s.x+1)
	pen := s.pen
	if pen.bg&bgExtended != 0 {
		if pen.fg&fgUnderline != 0 {
			pen.extended = 1 << underlineShift
		} else { // only a link can have been meant
			pen.link = &link{uri: "about:blank"}
		}
	}
	p.look(&pen)
	p.designate(0, s.cs)
	p.add("\x0f\x1b7")
	p.designate(0, nil)
	p.look(&style{})
}

func (p *painter) designate(g int, cs *charset) {
	d := byte('B')
	if cs != nil {
		d = cs.designator
	}
	p.out = append(p.out, 0x1b, "()*+"[g], d)
}

// keyboard restores a screen's flags of the kitty protocol.
func (p *painter) keyboard(k KittyKeyboard) {
	if k.Flags == 0 && len(k.Stack) == 0 {
		return
	}
	for i, flags := range append(k.Stack[:len(k.Stack):len(k.Stack)], k.Flags) {
		if i == 0 {
			p.add("\x1b[=" + strconv.Itoa(flags) + ";1u")
		} else {
			p.add("\x1b[>" + strconv.Itoa(flags) + "u")
		}
	}
}

// titles restores titles, icon names and the directory.
func (p *painter) titles() {
	t := p.t
	p.pushTitles("2", t.titleStack)
	p.pushTitles("1", t.iconStack)
	if t.title != "" || len(t.titleStack) > 0 {
		p.add("\x1b]2;" + t.title + "\x1b\\")
	}
	if t.icon != "" || len(t.iconStack) > 0 {
		p.add("\x1b]1;" + t.icon + "\x1b\\")
	}
	p.directory()
}

// pushTitles puts titles on the stack, oldest first: which is 2 for titles, and
// 1 for icon names.
func (p *painter) pushTitles(which string, titles []string) {
	for _, s := range titles {
		p.add("\x1b]" + which + ";" + s + "\x1b\\\x1b[22;" + which + "t")
	}
}

func (p *painter) directory() {
	if p.t.workDir != "" {
		u := url.URL{Scheme: "file", Path: p.t.workDir}
		p.add("\x1b]7;" + u.String() + "\x1b\\")
	}
}

// colors restores the colours that were set, always in the same order: two
// snapshots of one screen are the same bytes, which proxies compare.
func (p *painter) colors() {
	for _, n := range slices.Sorted(maps.Keys(p.t.colors)) {
		p.color(n, p.t.colors[n])
	}
}

// color sets one of the colours.
func (p *painter) color(n int, rgb uint32) {
	if n < foreground {
		p.add("\x1b]4;" + strconv.Itoa(n) + ";")
	} else {
		p.add("\x1b]" + strconv.Itoa(10+n-foreground) + ";")
	}
	p.add(hexColor(rgb) + "\x1b\\")
}

// resetColor gives one of the colours its default.
func (p *painter) resetColor(n int) {
	if n < foreground {
		p.add("\x1b]104;" + strconv.Itoa(n) + "\x1b\\")
	} else {
		p.add("\x1b]" + strconv.Itoa(110+n-foreground) + "\x1b\\")
	}
}

func hexColor(rgb uint32) string {
	return "#" + strconv.FormatUint(uint64(rgb)|1<<24, 16)[1:]
}

// quietModes are those that do not change what printing does, but for the mouse.
var quietModes = [...]int{1, 12, 25, 45, 66, 1004, 2004, 2031, 9001}

// quiet says which of quietModes are on.
func (m *Modes) quiet() [len(quietModes)]bool {
	return [...]bool{
		m.ApplicationCursor, m.CursorBlink, !m.CursorHidden, m.ReverseWrap,
		m.ApplicationKeypad, m.Focus, m.BracketedPaste, m.ColorScheme, m.Win32Input,
	}
}

// modes restores the modes that do not change what printing does: all of them,
// whether they are on or off, or, if it is known what they were, what differs.
func (p *painter) modes(was *Modes) {
	m := &p.t.modes
	for i, on := range m.quiet() {
		if was == nil || was.quiet()[i] != on {
			p.private(quietModes[i], on)
		}
	}
	if was == nil {
		p.oneOf([]int{9, 1000, 1002, 1003}, mouseModes[m.Mouse])
		p.oneOf([]int{1006, 1016}, mouseEncodings[m.MouseEncoding])
	} else {
		p.another(mouseModes[was.Mouse], mouseModes[m.Mouse])
		p.another(mouseEncodings[was.MouseEncoding], mouseEncodings[m.MouseEncoding])
	}
	if s := m.AlternateScroll; was == nil && s != Unknown || was != nil && s != was.AlternateScroll {
		p.private(1007, s == KnownSet)
	}
	if was == nil || was.CursorStyle != m.CursorStyle {
		p.out = append(strconv.AppendInt(append(p.out, "\x1b["...), int64(m.CursorStyle), 10), " q"...)
	}
}

var (
	mouseModes     = map[string]int{"X10": 9, "VT200": 1000, "DRAG": 1002, "ANY": 1003}
	mouseEncodings = map[string]int{"SGR": 1006, "SGR_PIXELS": 1016}
)

// oneOf sets one of some modes, none if on is 0, and resets the others.
func (p *painter) oneOf(modes []int, on int) {
	for _, n := range modes {
		if n != on {
			p.private(n, false)
		}
	}
	p.another(0, on)
}

// another sets one mode instead of another one; 0 is none.
func (p *painter) another(was, on int) {
	if was == on {
		return
	}
	if was != 0 {
		p.private(was, false)
	}
	if on != 0 {
		p.private(on, true)
	}
}

func (p *painter) modifyOtherKeys(was int) {
	if n := p.t.keyboard.ModifyOtherKeys; n != was {
		p.add("\x1b[>4;" + strconv.Itoa(n) + "m")
	}
}

func (p *painter) private(n int, on bool) {
	p.out = strconv.AppendInt(append(p.out, "\x1b[?"...), int64(n), 10)
	p.out = append(p.out, modeFinal(on))
}

func modeFinal(on bool) byte {
	if on {
		return 'h'
	}
	return 'l'
}

// region restores the scroll region.
func (p *painter) region(b *buffer) {
	if b.top != 0 || b.bot != p.t.rows-1 {
		p.csi('r', b.top+1, b.bot+1)
	}
}

// charsets restores the character sets. After DECRC the one in use may be
// another than the one shifted in: then DECRC is what brings it back.
func (p *painter) charsets() {
	t := p.t
	for g, cs := range t.gsets {
		if cs != nil {
			p.designate(g, cs)
		}
	}
	switch t.gl {
	case 1:
		p.add("\x0e")
	case 2:
		p.add("\x1bn")
	case 3:
		p.add("\x1bo")
	}
	if t.cs != t.gsets[t.gl] {
		p.add("\x1b8")
		p.lost = true
	}
}

// cursor restores the modes that change what printing does, and the cursor.
func (p *painter) cursor() {
	m := &p.t.modes
	p.private(7, m.Wraparound)
	p.csi(modeFinal(m.NewLine), 20)
	p.private(6, m.Origin)
	p.private(2026, m.Synchronized)
	p.place()
}

// place restores the pen, and last the cursor. A wrap that is pending, and what
// a combining character or REP would refer to, come back by printing the last
// character again.
func (p *painter) place() {
	t, b, m := p.t, p.t.b, &p.t.modes
	y := b.y
	if m.Origin {
		y -= b.top
	}
	x, again, joins := t.last()
	if !again.hasContent() && b.x == t.cols { // erased meanwhile
		p.emptyPending(y)
		return
	}
	if !joins && b.x < t.cols {
		x, again = b.x, 0
	}
	if cells := t.rowCells(b.row(b.y))[:x]; t.countedDifferently(cells) {
		p.reach(y, cells)
	} else {
		p.csi('H', y+1, x+1)
	}
	switch {
	case again == 0:
		p.look(&t.pen)
	case joins:
		p.setInsert(false)
		p.look(&t.pen)
		p.reprint(again)
		return
	default:
		p.insertOff()
		p.look(&t.styles.all[again.style()])
		p.reprint(again)
		p.look(&t.pen)
	}
	p.setInsert(m.Insert)
}

// countedDifferently reports whether a terminal that counts widths by other rules
// may have another column behind these cells, which are those of a row before the
// cursor, and whether printing them again leaves the cursor behind them and all
// else as it is.
func (t *Term) countedDifferently(cells []cell) bool {
	if t.cs != nil || t.gl != 0 || t.gsets[0] != nil { // it would print something else, or shift to it
		return false
	}
	differs := false
	for i, c := range cells {
		switch {
		case c.isSpacer():
			if i == 0 || !cells[i-1].isWide() {
				return false
			}
		case !c.hasContent():
			if !t.styles.all[c.style()].isErased() {
				return false
			}
		case c.width() == 0 || c.isWide() && (i+1 == len(cells) || !cells[i+1].isSpacer()):
			return false
		case c&clusterBit != 0 || c&codeMask >= utf8.RuneSelf:
			differs = true
		}
	}
	return differs
}

// reach brings the cursor behind the cells that the row y begins with, as the
// row's text does: a terminal that counts their widths by other rules has its
// cursor in another column then, where it belongs. Meanwhile nothing wraps.
func (p *painter) reach(y int, cells []cell) {
	wraparound := p.t.modes.Wraparound
	if wraparound {
		p.private(7, false)
	}
	p.insertOff()
	p.csi('H', y+1)
	p.joins = false
	p.cells(cells, nil)
	if n := len(cells) - p.x; n > 0 {
		p.csi('C', n)
	}
	p.private(7, wraparound) // and nothing joins the last of them
}

// last returns the cell before the cursor and its column if it was printed last
// or a wrap is pending behind it, and whether something can join it; no cell,
// and the cursor's column, if there is none.
//
// What was printed last has the pen's look; if it has another it cannot be
// joined any more, and counts for the wrap alone.
func (t *Term) last() (x int, c cell, joins bool) {
	b := t.b
	if b.x == t.cols || t.join != 0 {
		if w := max(t.join.width(), 1); b.x-w >= 0 {
			cells := t.rowCells(b.row(b.y))
			at := min(b.x, t.cols) - 1
			if at > 0 && cells[at].isSpacer() {
				at--
			}
			if c = cells[at]; c.hasContent() && at+max(c.width(), 1) == b.x && t.printable(c) &&
				// Of the set that DECRC has brought back nothing can be designated.
				(t.cs == t.gsets[t.gl] || t.cs.byteFor(c) != 0 || !t.replaced(c)) {
				return at, c, t.join != 0 && t.alike(c.style(), t.penID) && !t.modes.Insert
			}
		}
	}
	return b.x, 0, false
}

// setInsert sets IRM, unless it is known to be so.
func (p *painter) setInsert(on bool) {
	if !p.insertKnown || p.insert != on {
		p.csi(modeFinal(on), 4)
		p.insert = on
	}
}

// insertOff resets IRM if it is known to be set: in a fresh terminal it is not.
func (p *painter) insertOff() {
	if p.insertKnown {
		p.setInsert(false)
	}
}

// emptyPending leaves a wrap pending in a row whose last column is empty. Only
// erasing the whole row leaves the cursor there; where the row has content, a
// blank at its end is what can be had.
func (p *painter) emptyPending(y int) {
	t := p.t
	row := t.rowCells(t.b.row(t.b.y))
	s := &t.styles.all[row[0].style()]
	same := s.isErased()
	for _, c := range row {
		same = same && c == row[0]
	}
	p.csi('H', y+1, t.cols)
	p.insertOff()
	p.look(s)
	p.out = append(p.out, ' ')
	if same && !row[0].hasContent() {
		p.csi('K', 1)
	}
	p.look(&t.pen)
	p.setInsert(t.modes.Insert)
}

// reprint prints a cell's text, by what gives it in the character set in use.
func (p *painter) reprint(c cell) {
	t := p.t
	if b := t.cs.byteFor(c); b != 0 {
		p.out = append(p.out, b)
		return
	}
	other := t.replaced(c)
	if other { // it was printed in another one
		p.designate(t.gl, nil)
	}
	p.out = t.appendContent(p.out, c)
	if other {
		p.designate(t.gl, t.cs)
	}
}

// replaced reports whether the character set in use has something else for the
// first character of a cell's text.
func (t *Term) replaced(c cell) bool {
	if t.cs == nil {
		return false
	}
	var buf [maxCluster]byte
	first := t.appendContent(buf[:0], c)[0]
	return t.cs.at(first) != rune(first)
}

// byteFor returns the byte that prints the cell's text, if it is of one
// character that the set replaces some other by; else 0.
func (cs *charset) byteFor(c cell) byte {
	if cs == nil || c&clusterBit != 0 {
		return 0
	}
	for b := byte(0x20); b < 0x7f; b++ {
		if cs.at(b) == rune(c&codeMask) {
			return b
		}
	}
	return 0
}
