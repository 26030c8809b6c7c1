package vt

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxNumber bounds line numbers and counts of a Rest, so that none wraps around:
// no program prints so much.
const maxNumber = 1 << 62

// maxWide bounds the columns that the rows of an alternate screen have, those
// that are not shown too: twice as many as the largest screen (protocol.MaxCols
// and MaxRows) has.
const maxWide = 2 * 2000 * 1000

// Validate reports what a Rest of unknown origin cannot mean. What Restored
// only has to clamp is not looked at.
func (r *Rest) Validate() error {
	if r.History < 0 || r.Next > maxNumber || r.FocusAsked > maxNumber {
		return errors.New("numbers out of range")
	}
	room := maxWide
	for _, o := range r.Odd {
		if o.Alt {
			room -= o.Width
		}
		if o.Up < 0 || o.From < 0 || o.Width < 0 || room < 0 || o.From+len(o.Cells) > maxSize || len(o.Marks) > maxMarks {
			return errors.New("a row out of range")
		}
		for _, c := range o.Cells {
			if c.Width < 0 || c.Width > 2 || c.Attr < 0 || c.Attr >= len(r.Looks) || len(c.Text) > maxCluster || !utf8.ValidString(c.Text) || strings.HasPrefix(c.Text, "\x00") {
				return errors.New("a cell out of range")
			}
		}
		for _, m := range o.Marks {
			if m.Col < 0 || m.Col >= maxSize || len(m.Text) > maxMark {
				return errors.New("a mark out of range")
			}
		}
	}
	return nil
}

// Expect prepares a terminal that has printed nothing for a saved snapshot,
// which is written next, by Refill, and then Restored is called.
func (t *Term) Expect(r *Rest) { t.normal.row(0).wrapped = r.Continues }

// Refill is Write for what a long history is made again from. As it may have
// been compressed, it is compressed early: then as much has room.
func (t *Term) Refill(p []byte) {
	t.Write(p)
	t.packHalf()
}

func (t *Term) packHalf() {
	h := &t.hist
	if h.bytes <= h.maxBytes/2 {
		return
	}
	plain := 0
	for _, a := range h.arenas {
		if !a.packed {
			plain += a.size()
		}
	}
	if plain > h.maxBytes/8 {
		t.Pack()
	}
}

// Restored brings a terminal that has got a snapshot to the state it was made
// of. r is valid.
func (t *Term) Restored(r *Rest) {
	t.replaceOdd(r)
	t.restorePlace(&t.normal, r.Normal, t.hist.lines)
	t.restorePlace(&t.alt, r.Alt, 0)
	if t.b == &t.alt {
		t.alt.row(0).wrapped = r.AltContinues
	}
	if cs := charsetFor(first(r.Charset)); cs != t.cs && cs.name() == r.Charset {
		t.cs = cs
	}
	if r.TooLong && t.inString() {
		t.str, t.tooLong = nil, true
	}
	if dir := string(r.WorkDir); len(dir) <= maxTitle {
		t.workDir = dir
	}
	for i, k := range r.Kitty {
		if len(k.Stack) <= maxKeyboard && !slices.ContainsFunc(append(k.Stack[:len(k.Stack):len(k.Stack)], k.Flags), func(f int) bool { return f != f&31 }) {
			t.keyboard.Kitty[i] = KittyKeyboard{k.Flags, slices.Clone(k.Stack)}
		}
	}
	t.focusAsked = r.FocusAsked
	t.SetAppearance(r.Appearance)
	t.modes.SizeReports = r.SizeTold
	t.replies, t.alone, t.replyLost = nil, nil, r.ReplyLost
	if len(r.Replies) <= maxReply && len(r.Alone) <= maxReply {
		t.replies, t.alone = slices.Clone(r.Replies), slices.Clone(r.Alone)
	}
	t.restorePen(r)
	numbers := t.hist.numbered() + uint64(len(t.begins(nil)))
	t.hist.first = max(r.Next, numbers) - numbers
}

func first(s string) byte {
	if s == "" {
		return 0
	}
	return s[0]
}

func (t *Term) restorePlace(b *buffer, p *Place, base int) {
	if p == nil {
		return
	}
	b.x, b.y = min(max(p.X, 0), t.cols), min(max(p.Y, 0), t.rows-1)
	b.saved = saved{
		x: min(max(p.SavedX, 0), maxSize), y: min(max(p.SavedY, -base), maxSize) + base,
		pen: t.styleOf(&p.SavedPen), cs: charsetFor(first(p.SavedCharset)),
	}
	for _, x := range p.Tabs {
		if x >= t.cols && x <= maxSize {
			b.addTab(x)
		}
	}
}

// styleOf is a look as a style, but for bits that mean nothing.
func (t *Term) styleOf(l *Look) style {
	s := style{
		fg:       l.Fg,
		bg:       l.Bg & (colorMask | bgItalic | bgDim | bgExtended | bgProtected | bgOverline),
		extended: l.Extended & (colorMask | underlineMask),
	}
	if l.Linked {
		s.link = t.links.open(l.LinkID, l.URI)
	}
	return s
}

// restorePen restores the pen, and what may join what was printed last.
func (t *Term) restorePen(r *Rest) {
	if r.Pen != nil {
		link := t.pen.link
		if t.pen = t.styleOf(r.Pen); sameLink(link, t.pen.link) {
			t.pen.link = link // what was printed under it belongs together
		}
		t.penChanged()
	}
	t.join, t.printing = 0, r.Printing
	if j := joinState(r.Join); r.Join <= maxJoin && j.width() <= 2 {
		t.join = j
	}
}

// maxJoin is the largest joinState.
const maxJoin = stateMask<<3 | 7
