package vt

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"holdfast/shared/termmode"
	"holdfast/supervisor/internal/picture"
)

// Snapshot returns a snapshot with the whole history.
func (t *Term) Snapshot() []byte { return t.AppendSnapshot(nil, t.hist.lines, Shows{}) }

// AppendSnapshot appends a snapshot to dst: bytes that bring a new terminal of the same size
// into the state of t, as far as bytes can. They contain the last history lines above the
// screen. They contain no question and no bell. If the program's output ends within a
// sequence, so does the snapshot, so that the next byte of the output continues it. They contain
// the pictures that the terminal shows.
//
// README.md lists the sequences for each part of the state, and their order.
func (t *Term) AppendSnapshot(dst []byte, history int, shows Shows) []byte {
	p := &painter{t: t, out: dst, linkRoom: maxScreenLinks, album: album{Shows: shows, room: maxPainted, work: maxDecoded}}
	p.snapshot(min(history, t.hist.lines))
	return p.out
}

// snapshot writes a snapshot with history lines above the screen.
func (p *painter) snapshot(history int) {
	t := p.t
	p.private(termmode.Graphemes, t.modes.Graphemes)
	p.images()
	p.normal(history)
	p.tabs(&t.normal)
	if t.b == &t.normal {
		p.saved(&t.normal, t.hist.lines)
	}
	p.keyboard(t.keyboard.Kitty[0])
	if t.b == &t.alt {
		p.region(&t.normal)
		p.toAlternate()
		p.add("\x1b[H")
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
	switch format := t.unfinishedPicture(); {
	case format == 0 || p.album.Formats.Has(format):
		p.out = t.pending(p.out)
	case format == picture.Sixel:
		p.out = append(p.out, unknownDCS...)
	case format == picture.Kitty:
		p.out = append(p.out, unknownAPC...)
	default:
		p.out = append(p.out, unknownOSC...)
	}
}

// tabs sets the tab stops, unless they are the default ones.
func (p *painter) tabs(b *buffer) {
	for x := range p.t.cols {
		if b.hasTab(x) != plainTab(x) {
			p.setTabs(b)
			return
		}
	}
}

// plainTab reports whether a column has a tab stop by default.
func plainTab(x int) bool { return x%8 == 0 }

// setTabs sets the tab stops, whatever stops the viewer's terminal has.
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

// saved restores the cursor that DECSC saved, unless it is the default one. base is the number
// of lines above the screen.
func (p *painter) saved(b *buffer, base int) {
	if s := p.t.shownSaved(b, base); s != (saved{}) {
		p.save(s)
	}
}

// shownSaved returns the cursor that DECSC saved, with its position on the screen.
func (t *Term) shownSaved(b *buffer, base int) saved {
	s := b.saved
	s.x, s.y = min(s.x, t.cols-1), min(max(s.y-base, 0), t.rows-1)
	return s
}

// toAlternate shows the alternate screen, which is empty then. It saves the cursor of the normal screen by the mode
// itself, because tmux restores only that cursor when the program leaves the screen, and because Alacritty has no other
// mode for this screen. If the cursor of the normal screen is another one, it is set afterwards.
func (p *painter) toAlternate() {
	t := p.t
	s := t.shownSaved(&t.normal, t.hist.lines)
	p.saveBy(s, "\x1b[?1049h")
	if s.pen.bg != 0 { // the new screen has the background of the saved pen
		p.add("\x1b[2J")
	}
	if x, y := min(t.normal.x, t.cols-1), t.normal.y; x != s.x || y != s.y {
		p.private(termmode.AlternateScreen, false)
		p.csi('H', y+1, x+1)
		p.private(termmode.AlternateScreen, true)
	}
}

// save writes the sequences with which the viewer's terminal saves the cursor s.
func (p *painter) save(s saved) { p.saveBy(s, "\x1b7") }

// saveBy writes the sequences with which the viewer's terminal saves the cursor s. how is the last one of them.
func (p *painter) saveBy(s saved, how string) {
	p.csi('H', s.y+1, s.x+1)
	pen := s.pen
	if pen.bg&bgExtended != 0 {
		if pen.fg&fgUnderline != 0 {
			pen.extended = 1 << underlineShift
		} else { // without an underline, only a link can have set bgExtended
			pen.link = &link{uri: "about:blank"}
		}
	}
	p.setPen(&pen)
	p.designate(0, s.cs)
	p.add("\x0f" + how)
	p.designate(0, nil)
	p.setPen(&style{})
}

func (p *painter) designate(g int, cs *charset) {
	d := byte('B')
	if cs != nil {
		d = cs.designators[0]
	}
	p.out = append(p.out, 0x1b, "()*+"[g], d)
}

// keyboard restores the kitty keyboard flags of a screen.
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
	p.setTitles("2", t.titleStack, t.title)
	p.setTitles("1", t.iconStack, t.icon)
	p.directory()
}

// setTitles restores a title and its stack in a terminal that has no title of the program. If the program has not set one
// either, the terminal keeps the title that its user sees, also where the program has pushed it.
func (p *painter) setTitles(which string, stack []string, title string) {
	unset := 0
	for unset < len(stack) && stack[unset] == "" {
		unset++
	}
	p.add(strings.Repeat("\x1b[22;"+which+"t", unset))
	p.pushTitles(which, stack[unset:])
	if title != "" || unset < len(stack) {
		p.add("\x1b]" + which + ";" + title + "\x1b\\")
	}
}

// pushTitles pushes titles on a stack, oldest first. which is 2 for titles, and 1 for icon
// names.
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

// colors restores the colours that the program has set. They have a fixed order, so that two
// snapshots of one screen have the same bytes: proxies compare them.
func (p *painter) colors() {
	for _, n := range slices.Sorted(maps.Keys(p.t.colors)) {
		p.color(n, p.t.colors[n])
	}
}

// color sets colour n.
func (p *painter) color(n int, rgb uint32) {
	if n < foreground {
		p.add("\x1b]4;" + strconv.Itoa(n) + ";")
	} else {
		p.add("\x1b]" + strconv.Itoa(10+n-foreground) + ";")
	}
	p.add(hexColor(rgb) + "\x1b\\")
}

// resetColor resets colour n to its default.
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

// These are the modes that do not change how text is printed.
var (
	quietModes     = modesAt(termmode.Quiet)
	mouseModes     = modesAt(termmode.Mouse)
	mouseEncodings = modesAt(termmode.Encoding)
)

// modes restores the modes that do not change how text is printed. from has the state of the
// viewer's terminal, and only the modes that differ are written. If from is nil, the terminal's
// modes are unknown, and all are written, whether they are on or off.
func (p *painter) modes(from *Term) {
	t := p.t
	for _, b := range quietModes {
		if on := b.isSet(t); from == nil || b.isSet(from) != on {
			p.quiet(b.Number, on)
		}
	}
	p.setOneMode(mouseModes, from)
	p.setOneMode(mouseEncodings, from)
	if s := t.modes.AlternateScroll; from == nil && s != Unknown || from != nil && s != from.modes.AlternateScroll {
		p.private(termmode.AlternateScroll, s == KnownSet)
	}
	if s := t.modes.CursorStyle; from == nil || from.modes.CursorStyle != s {
		p.out = append(strconv.AppendInt(append(p.out, "\x1b["...), int64(s), 10), " q"...)
	}
}

// quiet sets or resets a mode. tmux and Alacritty know the mode of the keypad only by DECKPAM and DECKPNM.
func (p *painter) quiet(n int, on bool) {
	switch {
	case n != termmode.Keypad:
		p.private(n, on)
	case on:
		p.add("\x1b=")
	default:
		p.add("\x1b>")
	}
}

// setOneMode restores modes of which at most one is set. It writes resets before the mode that
// is set, because a terminal may reset all of them with any of them.
func (p *painter) setOneMode(group []*modeBinding, from *Term) {
	var set *modeBinding
	for _, b := range group {
		switch on := b.isSet(p.t); {
		case from != nil && b.isSet(from) == on:
		case on:
			set = b
		default:
			p.private(b.Number, false)
		}
	}
	if set != nil {
		p.private(set.Number, true)
	}
}

func (p *painter) modifyOtherKeys(was int) {
	if n := p.t.keyboard.ModifyOtherKeys; n != was {
		p.add("\x1b[>4;" + strconv.Itoa(n) + "m")
	}
}

func (p *painter) private(n int, on bool) {
	p.out = strconv.AppendInt(append(p.out, "\x1b[?"...), int64(n), 10)
	p.out = append(p.out, termmode.Final(on))
}

// region restores the scroll region.
func (p *painter) region(b *buffer) {
	if b.top != 0 || b.bot != p.t.rows-1 {
		p.csi('r', b.top+1, b.bot+1)
	}
}

// charsets restores the character sets. After DECRC, the set in use may differ from the one
// that is shifted in. Only another DECRC can restore that.
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
		p.isPenUnknown = true
	}
}

// cursor restores the modes that change how text is printed, and then the cursor.
func (p *painter) cursor() {
	m := &p.t.modes
	p.private(termmode.Wraparound, m.Wraparound)
	p.csi(termmode.Final(m.NewLine), termmode.NewLine)
	p.private(termmode.Origin, m.Origin)
	p.private(termmode.Synchronized, m.Synchronized)
	p.placeCursor()
}

// placeCursor restores the pen and the cursor. To restore a pending wrap, or the character
// that a combining character or REP refers to, it prints the last character again.
func (p *painter) placeCursor() {
	t, b, m := p.t, p.t.b, &p.t.modes
	p.flip(false)
	y := b.y
	if m.Origin {
		if b.y < b.top || b.y > b.bot { // no sequence moves the cursor there; changing between the screens has left it there
			p.csi('H', min(max(b.y-b.top, 0), b.bot-b.top)+1, min(b.x, t.cols-1)+1)
			p.setPen(&t.pen)
			p.setInsert(m.Insert)
			return
		}
		y -= b.top
	}
	x, again, joins := t.lastCharacter()
	if p.hides(again) {
		x, again, joins = b.x, 0, false
	}
	if !again.hasContent() && b.x == t.cols { // it was erased after it was printed
		p.emptyPending(y)
		return
	}
	if !joins && b.x < t.cols {
		x, again = b.x, 0
	}
	if cells := t.rowCells(b.row(b.y))[:x]; t.isWidthAmbiguous(cells) {
		p.printUpTo(y, cells)
		p.flip(false)
	} else {
		p.csi('H', y+1, x+1)
	}
	switch {
	case again == 0:
		p.setPen(&t.pen)
	case joins:
		p.setInsert(false)
		p.setPen(&t.pen)
		p.reprint(again)
		return
	default:
		p.insertOff()
		p.flip(!t.printableUnder(m.Graphemes, again))
		p.setPen(t.styles.at(again.style()))
		p.reprint(again)
		p.flip(false)
		p.setPen(&t.pen)
	}
	p.setInsert(m.Insert)
}

// isWidthAmbiguous reports whether a terminal with other rules for widths may have another
// column behind these cells, and whether printing them again is possible without side effects.
// The cells must be those of a row before the cursor.
func (t *Term) isWidthAmbiguous(cells []cell) bool {
	if t.cs != nil || t.gl != 0 || t.gsets[0] != nil { // the character set would change the text
		return false
	}
	differs := false
	for i, c := range cells {
		switch {
		case t.styles.at(c.style()).shownTile() != nil || t.isPlaceholder(c): // text would replace the picture
			return false
		case c.isSpacer():
			if i == 0 || !cells[i-1].isWide() {
				return false
			}
		case !c.hasContent():
			// Under DECOM, moving the cursor over empty columns would also move it down, as in
			// moveCursor.
			if !t.styles.at(c.style()).isErased() || t.modes.Origin && t.b.top > 0 {
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

// printUpTo moves the cursor behind the cells, with which the row y begins, by printing them
// again. If the viewer's terminal has other rules for widths, its cursor is then behind the
// same text, although in another column. Wraparound is off meanwhile.
func (p *painter) printUpTo(y int, cells []cell) {
	wraparound := p.t.modes.Wraparound
	if wraparound {
		p.private(termmode.Wraparound, false)
	}
	p.insertOff()
	p.csi('H', y+1)
	p.joins = false
	p.cells(cells, nil)
	if n := len(cells) - p.x; n > 0 {
		p.csi('C', n)
	}
	p.private(termmode.Wraparound, wraparound) // it also prevents that the next character joins the last one
}

// lastCharacter returns the last character before the cursor, its column, and whether a
// character may join it. It returns a cell only if that cell was printed last, or if a wrap is
// pending behind it. Otherwise the cell is 0, and x is the column of the cursor.
//
// A character that was printed last has the pen's style. If its style differs, no character
// can join it any more, and it is needed only for a pending wrap.
func (t *Term) lastCharacter() (x int, c cell, joins bool) {
	b := t.b
	if b.x == t.cols || t.join != 0 {
		if w := max(t.join.width(), 1); b.x-w >= 0 {
			cells := t.rowCells(b.row(b.y))
			at := min(b.x, t.cols) - 1
			if at > 0 && cells[at].isSpacer() {
				at--
			}
			if c = cells[at]; c.hasContent() && at+max(c.width(), 1) == b.x && t.printable(c) &&
				// A set that DECRC has restored cannot be designated again for the character.
				(t.cs == t.gsets[t.gl] || t.cs.byteFor(c) != 0 || !t.isReplaced(c)) {
				return at, c, t.join != 0 && t.sameStyleID(c.style(), t.penID) && !t.modes.Insert && t.printableUnder(t.modes.Graphemes, c)
			}
		}
	}
	return b.x, 0, false
}

// setInsert sets IRM, unless it is known to have this state.
func (p *painter) setInsert(on bool) {
	if !p.insertKnown || p.insert != on {
		p.csi(termmode.Final(on), termmode.Insert)
		p.insert = on
	}
}

// insertOff resets IRM if its state is known. In a new terminal it is reset already.
func (p *painter) insertOff() {
	if p.insertKnown {
		p.setInsert(false)
	}
}

// emptyPending makes a wrap pending in a row whose last column is empty. Erasing the whole row
// keeps a pending wrap, so this works if all columns are empty. If the row has content, its
// last column gets a blank instead, as it does if the row shows a picture.
func (p *painter) emptyPending(y int) {
	t := p.t
	row := t.rowCells(t.b.row(t.b.y))
	s := t.styles.at(row[0].style())
	same := s.isErased()
	for _, c := range row {
		same = same && (c^row[0])&(contentMask|widthMask) == 0 && t.sameStyleID(c.style(), row[0].style()) && t.styles.at(c.style()).shownTile() == nil
	}
	p.csi('H', y+1, t.cols)
	p.insertOff()
	p.setPen(s)
	p.out = append(p.out, ' ')
	if same && !row[0].hasContent() {
		p.csi('K', 1)
	}
	p.setPen(&t.pen)
	p.setInsert(t.modes.Insert)
}

// reprint prints the text of a cell, with the byte that means this text in the character set
// in use.
func (p *painter) reprint(c cell) {
	t := p.t
	if b := t.cs.byteFor(c); b != 0 {
		p.out = append(p.out, b)
		return
	}
	other := t.isReplaced(c)
	if other { // it was printed with another character set
		p.designate(t.gl, nil)
	}
	p.out = t.appendContent(p.out, c)
	if other {
		p.designate(t.gl, t.cs)
	}
}

// isReplaced reports whether the character set in use replaces the first character of the
// cell's text by another one.
func (t *Term) isReplaced(c cell) bool {
	if t.cs == nil {
		return false
	}
	var buf [maxCluster]byte
	first := t.appendContent(buf[:0], c)[0]
	return t.cs.at(first) != rune(first)
}

// byteFor returns the byte for which the set shows the cell's text. It returns 0 if there is
// none, or if the cell has several code points.
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
