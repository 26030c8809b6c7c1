package vt

import (
	"bytes"
	"slices"
	"strings"

	"holdfast/shared/termmode"
)

// AppendTransition appends bytes to dst that change a terminal from the state of from to the
// state of t. Both must have the same size. The bytes do not change the history: they never
// scroll. They contain no question and no bell. If the two states do not differ, no bytes are
// appended; if they differ a little, the bytes are few. They contain the pictures that the terminal shows.
//
// State that only the hidden screen has is not changed until that screen is shown.
func (t *Term) AppendTransition(dst []byte, from *Term, shows Shows) []byte {
	if t == from {
		return dst
	}
	c := transition{
		painter: painter{
			t: t, out: dst, linkRoom: maxScreenLinks, pen: from.pen, isPenUnknown: from.pen != style{},
			insertKnown: true, insert: from.modes.Insert,
			album: album{Shows: shows, room: maxPainted, work: maxDecoded},
		},
		from: from, top: from.b.top, bot: from.b.bot, fresh: t.rows,
	}
	if c.painter.pen.link != nil {
		c.painter.pen.bg |= bgExtended // after DECRC the link may be hidden
	}
	was, is := from.pending(nil), t.pending(nil)
	if len(was) > 0 {
		c.add("\x18") // CAN ends the unfinished sequence
	}
	begun := len(c.out)
	if t.modes.Graphemes != from.modes.Graphemes {
		c.private(termmode.Graphemes, t.modes.Graphemes)
	}
	c.virtual(from.graphics.virtual)
	c.screens()
	c.titlesFrom()
	c.colorsFrom()
	c.modes(from)
	c.modifyOtherKeys(from.keyboard.ModifyOtherKeys)
	c.restorePrinting()
	if len(c.out) == begun && !c.moved && c.sameCursor() {
		if len(was) == 0 || bytes.HasPrefix(is, was) { // the unfinished sequence continues
			return append(dst, is[len(was):]...)
		}
	}
	if c.moved || !c.sameCursor() || t.join != 0 && len(c.out) > len(dst) {
		c.placeCursor()
	}
	return t.pending(c.out)
}

// transition holds the state of a call of AppendTransition.
type transition struct {
	painter
	from     *Term
	top, bot int    // the scroll region of the viewer's terminal
	neutral  bool   // modes and character sets are those of a new terminal
	moved    bool   // the cursor has been moved, or must be moved
	large    bool   // so many rows change that mode 2026 should hide the steps
	shift    int    // number of rows by which the screen was moved up
	fresh    int    // the rows from here on are empty before they are painted
	touched  []bool // by row: the parts of pictures that the row had are gone
}

// prepare resets the modes and character sets that would change how text is printed.
func (c *transition) prepare() {
	c.moved = true
	if !c.neutral {
		c.neutral = true
		m := &c.from.modes
		if c.large && !m.Synchronized {
			c.private(termmode.Synchronized, true)
		}
		if m.Origin {
			c.private(termmode.Origin, false)
		}
		if !m.Wraparound {
			c.private(termmode.Wraparound, true)
		}
		c.setInsert(false)
		c.resetCharsets()
	}
	if c.top != 0 || c.bot != c.t.rows-1 {
		c.add("\x1b[r")
		c.top, c.bot = 0, c.t.rows-1
	}
}

// resetCharsets restores the default character sets.
func (c *transition) resetCharsets() {
	for g, cs := range c.from.gsets {
		if cs != nil {
			c.designate(g, nil)
		}
	}
	if c.from.cs != nil || c.from.gl != 0 {
		c.add("\x0f")
	}
}

// restorePrinting restores the state that changes how text is printed, except for the pen and
// IRM.
func (c *transition) restorePrinting() {
	t, from := c.t, c.from
	b := t.b
	if c.top != b.top || c.bot != b.bot || t.gsets != from.gsets || t.gl != from.gl || t.cs != from.cs {
		c.prepare() // it may write more than is necessary
	}
	if c.neutral {
		c.region(b)
		if t.cs != t.gsets[t.gl] { // charsets will then write DECRC, which may hide a link
			c.setPen(&style{})
		}
		c.charsets()
	}
	m, was := &t.modes, from.modes
	synchronized := was.Synchronized || c.neutral && c.large
	if c.neutral {
		was.Wraparound, was.Origin = true, false
	}
	if m.Wraparound != was.Wraparound {
		c.private(termmode.Wraparound, m.Wraparound)
	}
	if m.NewLine != was.NewLine {
		c.csi(termmode.Final(m.NewLine), termmode.NewLine)
	}
	if m.Origin != was.Origin {
		c.private(termmode.Origin, m.Origin)
		c.moved = true
	}
	if m.Synchronized != synchronized {
		c.private(termmode.Synchronized, m.Synchronized)
	}
	c.moved = c.moved || m.Insert != was.Insert
}

// sameCursor reports whether both states have the same cursor and pen, and the same character
// for REP and combining characters.
func (c *transition) sameCursor() bool {
	a, b := c.t, c.from
	return a.b.x == b.b.x && a.b.y == b.b.y && a.join == b.join && sameStyle(&a.pen, &b.pen)
}

// screens paints the screen that is shown, and the normal screen if it has changed behind the
// alternate screen.
func (c *transition) screens() {
	t, from := c.t, c.from
	alt, was := t.b == &t.alt, from.b == &from.alt
	changed := c.changed(&t.normal, &from.normal)
	if was && alt {
		if len(changed) == 0 && c.sameButRows(&t.normal, &from.normal) && t.keyboard.Kitty[0].same(from.keyboard.Kitty[0]) {
			changed = c.changed(&t.alt, &from.alt)
			c.large = len(changed) > 1
			c.buffer(&t.alt, &from.alt, changed)
			return
		}
	}
	c.large = alt || was || len(changed) > 1
	if was {
		c.prepare()
		c.add("\x1b[?1049l\x1b(B\x0f") // also restores the saved cursor, with its pen and character set
		c.isPenUnknown = true
		c.top, c.bot = from.normal.top, from.normal.bot
	}
	c.buffer(&t.normal, &from.normal, changed)
	if !alt {
		return
	}
	c.prepare()
	c.region(&t.normal)
	c.toAlternate()
	c.top, c.bot = 0, t.rows-1
	c.buffer(&t.alt, nil, nil)
}

// sameButRows reports whether two buffers of the same screen have the same region, tab stops
// and saved cursor.
func (c *transition) sameButRows(b, fb *buffer) bool {
	return b.top == fb.top && b.bot == fb.bot && c.sameTabs(b, fb) && c.sameSaved(b, fb)
}

func (c *transition) sameTabs(b, fb *buffer) bool {
	for x := range c.t.cols {
		if b.hasTab(x) != fb.hasTab(x) {
			return false
		}
	}
	return true
}

func (c *transition) sameSaved(b, fb *buffer) bool {
	s, f := c.t.shownSaved(b, c.t.linesAbove(b)), c.from.shownSaved(fb, c.from.linesAbove(fb))
	return s == f
}

// linesAbove returns the number of lines above a screen.
func (t *Term) linesAbove(b *buffer) int {
	if b == &t.alt {
		return 0
	}
	return t.hist.lines
}

func (k KittyKeyboard) same(o KittyKeyboard) bool {
	return k.Flags == o.Flags && slices.Equal(k.Stack, o.Stack)
}

// buffer changes the screen that is shown from fb to b. changed has the numbers of the rows
// that differ. If fb is nil, the viewer's terminal has just switched to this screen, which is
// empty.
func (c *transition) buffer(b, fb *buffer, changed []int) {
	t := c.t
	which := 0
	if b == &t.alt {
		which = 1
	}
	if fb == nil || len(changed) > 0 {
		c.prepare()
		c.rows(b, fb, changed)
	}
	switch {
	case fb == nil:
		c.tabs(b)
	case !c.sameTabs(b, fb):
		c.prepare()
		c.setTabs(b)
	}
	if fb == nil || !c.sameSaved(b, fb) {
		c.prepare()
		c.save(t.shownSaved(b, t.linesAbove(b)))
	}
	if k := t.keyboard.Kitty[which]; fb == nil || !k.same(c.from.keyboard.Kitty[which]) {
		c.add("\x1b[<99u") // pops more flags than the stack can have, so that none remain
		c.keyboard(k)
	}
}

// titlesFrom restores the titles, icon names and the directory that have changed.
func (c *transition) titlesFrom() {
	t, from := c.t, c.from
	c.titleFrom("2", t.titleStack, from.titleStack, t.title, from.title)
	c.titleFrom("1", t.iconStack, from.iconStack, t.icon, from.icon)
	if t.workDir != from.workDir {
		c.directory()
	}
}

// titleFrom restores a title and its stack if they have changed. which is as in pushTitles.
func (c *transition) titleFrom(which string, stack, fromStack []string, title, fromTitle string) {
	if slices.Equal(stack, fromStack) {
		if title != fromTitle {
			c.add("\x1b]" + which + ";" + title + "\x1b\\")
		}
		return
	}
	c.add(strings.Repeat("\x1b[23;"+which+"t", len(fromStack)))
	if len(fromStack) > 0 {
		fromTitle = fromStack[0]
	}
	if fromTitle == "" { // the viewer's terminal has its own title now
		c.setTitles(which, stack, title)
		return
	}
	c.pushTitles(which, stack)
	c.add("\x1b]" + which + ";" + title + "\x1b\\")
}

// colorsFrom restores the colours that have changed, and resets those that are no longer set.
func (c *transition) colorsFrom() {
	t, from := c.t, c.from
	if len(t.colors)+len(from.colors) == 0 {
		return
	}
	for n := range cursorColor + 1 {
		rgb, ok := t.colors[n]
		was, set := from.colors[n]
		switch {
		case ok && (!set || was != rgb):
			c.color(n, rgb)
		case !ok && set:
			c.resetColor(n)
		}
	}
}
