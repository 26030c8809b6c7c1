package vt

import (
	"net/url"
	"strconv"
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
	p.private(2027, t.modes.Graphemes)
	p.normal(min(history, t.hist.lines))
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
	p.modes()
	p.region(t.b)
	p.charsets()
	p.cursor()
	return t.pending(p.out)
}

// tabs sets the tab stops, if they are not as they are at first.
func (p *painter) tabs(b *buffer) {
	t := p.t
	plain := true
	for x := range t.cols {
		if b.hasTab(x) != (x%8 == 0) {
			plain = false
			break
		}
	}
	if plain {
		return
	}
	p.add("\x1b[3g")
	for x := range t.cols {
		if b.hasTab(x) {
			p.csi('G', x+1)
			p.add("\x1bH")
		}
	}
}

// saved restores what DECSC has kept.
func (p *painter) saved(b *buffer, base int) {
	t, s := p.t, b.saved
	y := min(max(s.y-base, 0), t.rows-1)
	if s.x == 0 && y == 0 && s.pen == (style{}) && s.cs == nil {
		return
	}
	p.csi('H', y+1, min(s.x, t.cols-1)+1)
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
	for _, s := range t.titleStack {
		p.add("\x1b]2;" + s + "\x1b\\\x1b[22;2t")
	}
	for _, s := range t.iconStack {
		p.add("\x1b]1;" + s + "\x1b\\\x1b[22;1t")
	}
	if t.title != "" || len(t.titleStack) > 0 {
		p.add("\x1b]2;" + t.title + "\x1b\\")
	}
	if t.icon != "" || len(t.iconStack) > 0 {
		p.add("\x1b]1;" + t.icon + "\x1b\\")
	}
	if t.workDir != "" {
		u := url.URL{Scheme: "file", Path: t.workDir}
		p.add("\x1b]7;" + u.String() + "\x1b\\")
	}
}

// colors restores the colours that were set.
func (p *painter) colors() {
	for n, rgb := range p.t.colors {
		if n < foreground {
			p.add("\x1b]4;" + strconv.Itoa(n) + ";")
		} else {
			p.add("\x1b]" + strconv.Itoa(10+n-foreground) + ";")
		}
		p.add(hexColor(rgb) + "\x1b\\")
	}
}

func hexColor(rgb uint32) string {
	return "#" + strconv.FormatUint(uint64(rgb)|1<<24, 16)[1:]
}

// modes restores the modes that do not change what printing does, whether they
// are on or off.
func (p *painter) modes() {
	t, m := p.t, &p.t.modes
	for _, mode := range [...]struct {
		n  int
		on bool
	}{
		{1, m.ApplicationCursor}, {12, m.CursorBlink}, {25, !m.CursorHidden}, {45, m.ReverseWrap},
		{66, m.ApplicationKeypad}, {1004, m.Focus}, {2004, m.BracketedPaste}, {2031, m.ColorScheme}, {9001, m.Win32Input},
	} {
		p.private(mode.n, mode.on)
	}
	mouse := map[string]int{"X10": 9, "VT200": 1000, "DRAG": 1002, "ANY": 1003}[m.Mouse]
	for _, n := range [...]int{9, 1000, 1002, 1003} {
		if n != mouse {
			p.private(n, false)
		}
	}
	if mouse != 0 {
		p.private(mouse, true)
	}
	encoding := map[string]int{"SGR": 1006, "SGR_PIXELS": 1016}[m.MouseEncoding]
	for _, n := range [...]int{1006, 1016} {
		if n != encoding {
			p.private(n, false)
		}
	}
	if encoding != 0 {
		p.private(encoding, true)
	}
	p.out = append(strconv.AppendInt(append(p.out, "\x1b["...), int64(m.CursorStyle), 10), " q"...)
	if n := t.keyboard.ModifyOtherKeys; n != 0 {
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

// cursor restores the modes that change what printing does, the pen, and last
// the cursor. A wrap that is pending, and what a combining character or REP
// would refer to, come back by printing the last character again.
func (p *painter) cursor() {
	t, b, m := p.t, p.t.b, &p.t.modes
	p.private(7, m.Wraparound)
	p.csi(modeFinal(m.NewLine), 20)
	p.private(6, m.Origin)
	p.private(2026, m.Synchronized)
	y := b.y
	if m.Origin {
		y -= b.top
	}
	x, again := b.x, cell(0)
	if b.x == t.cols || t.join != 0 {
		if w := max(t.join.width(), 1); b.x-w >= 0 {
			cells := t.rowCells(b.row(b.y))
			at := min(b.x, t.cols) - 1
			if at > 0 && cells[at].isSpacer() {
				at--
			}
			if c := cells[at]; at+max(c.width(), 1) == b.x && t.printable(c) {
				x, again = at, cells[at]
			}
		}
	}
	if !again.hasContent() {
		x, again = b.x, 0
		if b.x == t.cols { // erased meanwhile
			p.emptyPending(y)
			return
		}
	}
	p.csi('H', y+1, x+1)
	// What was printed last has the pen's look; if it has another it cannot be
	// joined any more, and is printed for the wrap alone.
	joins := t.join != 0 && again.style() == t.penID && !m.Insert
	switch {
	case again == 0 || !joins && b.x < t.cols:
		if again != 0 {
			p.csi('H', y+1, b.x+1)
		}
		p.look(&t.pen)
	case joins:
		p.csi('l', 4)
		p.look(&t.pen)
		p.reprint(again)
		return
	default:
		p.look(&t.styles.all[again.style()])
		p.reprint(again)
		p.look(&t.pen)
	}
	p.csi(modeFinal(m.Insert), 4)
}

// emptyPending leaves a wrap pending in a row whose last column is empty. Only
// erasing the whole row leaves the cursor there; where the row has content, a
// blank at its end is what can be had.
func (p *painter) emptyPending(y int) {
	t := p.t
	row := t.rowCells(t.b.row(t.b.y))
	s := &t.styles.all[row[0].style()]
	same := *s == s.erased()
	for _, c := range row {
		same = same && c == row[0]
	}
	p.csi('H', y+1, t.cols)
	p.look(s)
	p.out = append(p.out, ' ')
	if same && !row[0].hasContent() {
		p.csi('K', 1)
	}
	p.look(&t.pen)
	p.csi(modeFinal(t.modes.Insert), 4)
}

// reprint prints a cell's text, by what gives it in the character set in use.
func (p *painter) reprint(c cell) {
	t := p.t
	if t.cs != nil && c&clusterBit == 0 {
		for b := byte(0x20); b < 0x7f; b++ {
			if t.cs.at(b) == rune(c&codeMask) {
				p.out = append(p.out, b)
				return
			}
		}
	}
	p.out = t.appendContent(p.out, c)
}
