package vt

import (
	"bytes"
	"slices"
	"strings"
)

// AppendTransition appends bytes to dst that bring a terminal in the state of
// from to this state, but for the history, which they leave alone: nothing of
// them scrolls. Both have the same size. They are none if nothing differs, few
// if little does, and ask and ring nothing.
//
// What only the other screen has while it is hidden stays as it is.
func (t *Term) AppendTransition(dst []byte, from *Term) []byte {
	if t == from {
		return dst
	}
	c := transition{
		painter: painter{
			t: t, out: dst, pen: from.pen, lost: from.pen != style{},
			insertKnown: true, insert: from.modes.Insert,
		},
		from: from, top: from.b.top, bot: from.b.bot, fresh: t.rows,
	}
	if c.painter.pen.link != nil {
		c.painter.pen.bg |= bgExtended // after DECRC it may only be hidden
	}
	was, is := from.pending(nil), t.pending(nil)
	if len(was) > 0 {
		c.add("\x18") // which ends it
	}
	begun := len(c.out)
	if t.modes.Graphemes != from.modes.Graphemes {
		c.private(2027, t.modes.Graphemes)
	}
	c.screens()
	c.titlesFrom()
	c.colorsFrom()
	c.modes(&from.modes)
	c.modifyOtherKeys(from.keyboard.ModifyOtherKeys)
	c.printing()
	if len(c.out) == begun && !c.moved && c.sameCursor() {
		if len(was) == 0 || bytes.HasPrefix(is, was) { // it goes on
			return append(dst, is[len(was):]...)
		}
	}
	if c.moved || !c.sameCursor() || t.join != 0 && len(c.out) > len(dst) {
		c.place()
	}
	return t.pending(c.out)
}

// transition is what AppendTransition is about.
type transition struct {
	painter
	from     *Term
	top, bot int  // the scroll region that is set
	neutral  bool // printing is as in a fresh terminal
	moved    bool // the cursor was moved, or has to be
	large    bool // so much changes that it shall be shown at once
	shift    int  // by how many rows the screen was moved up
	fresh    int  // rows from here on are empty before they are painted
}

// prepare sees to it that text is printed as in a fresh terminal.
func (c *transition) prepare() {
	c.moved = true
	if !c.neutral {
		c.neutral = true
		m := &c.from.modes
		if c.large && !m.Synchronized {
			c.private(2026, true)
		}
		if m.Origin {
			c.private(6, false)
		}
		if !m.Wraparound {
			c.private(7, true)
		}
		c.setInsert(false)
		c.resetCharsets()
	}
	if c.top != 0 || c.bot != c.t.rows-1 {
		c.add("\x1b[r")
		c.top, c.bot = 0, c.t.rows-1
	}
}

// resetCharsets brings the character sets to their beginning.
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

// printing restores what changes printing, but for the pen and IRM.
func (c *transition) printing() {
	t, from := c.t, c.from
	b := t.b
	if c.top != b.top || c.bot != b.bot || t.gsets != from.gsets || t.gl != from.gl || t.cs != from.cs {
		c.prepare() // which may be more than is needed
	}
	if c.neutral {
		c.region(b)
		if t.cs != t.gsets[t.gl] { // then DECRC comes, which may hide a link
			c.look(&style{})
		}
		c.charsets()
	}
	m, was := &t.modes, from.modes
	synchronized := was.Synchronized || c.neutral && c.large
	if c.neutral {
		was.Wraparound, was.Origin = true, false
	}
	if m.Wraparound != was.Wraparound {
		c.private(7, m.Wraparound)
	}
	if m.NewLine != was.NewLine {
		c.csi(modeFinal(m.NewLine), 20)
	}
	if m.Origin != was.Origin {
		c.private(6, m.Origin)
		c.moved = true
	}
	if m.Synchronized != synchronized {
		c.private(2026, m.Synchronized)
	}
	c.moved = c.moved || m.Insert != was.Insert
}

// sameCursor reports whether cursor and pen are the same, and what REP and
// combining characters refer to.
func (c *transition) sameCursor() bool {
	a, b := c.t, c.from
	return a.b.x == b.b.x && a.b.y == b.b.y && a.join == b.join && sameStyle(&a.pen, &b.pen)
}

// screens brings back what is shown, and the normal screen.
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
		c.private(1047, false)
		c.top, c.bot = from.normal.top, from.normal.bot
	}
	c.buffer(&t.normal, &from.normal, changed)
	if !alt {
		return
	}
	c.prepare()
	c.region(&t.normal)
	c.look(&style{})
	c.private(1047, true)
	c.top, c.bot = 0, t.rows-1
	c.buffer(&t.alt, nil, nil)
}

// sameButRows reports whether two of the same screen have the same region, tab
// stops and saved cursor.
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

// linesAbove is the number of lines above a screen.
func (t *Term) linesAbove(b *buffer) int {
	if b == &t.alt {
		return 0
	}
	return t.hist.lines
}

func (k KittyKeyboard) same(o KittyKeyboard) bool {
	return k.Flags == o.Flags && slices.Equal(k.Stack, o.Stack)
}

// buffer brings the screen that is shown to b. It was fb before, the rows
// changed of which differ; nil is one that was shown just now.
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
		c.add("\x1b[<99u") // more than there are: none is left
		c.keyboard(k)
	}
}

// titlesFrom restores titles, icon names and the directory.
func (c *transition) titlesFrom() {
	t, from := c.t, c.from
	title, icon := t.title != from.title, t.icon != from.icon
	if !slices.Equal(t.titleStack, from.titleStack) {
		c.add(strings.Repeat("\x1b[23;2t", len(from.titleStack)))
		c.pushTitles("2", t.titleStack)
		title = true
	}
	if !slices.Equal(t.iconStack, from.iconStack) {
		c.add(strings.Repeat("\x1b[23;1t", len(from.iconStack)))
		c.pushTitles("1", t.iconStack)
		icon = true
	}
	if title {
		c.add("\x1b]2;" + t.title + "\x1b\\")
	}
	if icon {
		c.add("\x1b]1;" + t.icon + "\x1b\\")
	}
	if t.workDir != from.workDir {
		c.directory()
	}
}

// colorsFrom restores the colours that were set, and resets others.
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
