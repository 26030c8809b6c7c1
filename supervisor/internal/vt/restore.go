package vt

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxNumber bounds the line numbers and counts of a Remainder, so that adding to them cannot
// overflow. No program prints so many lines.
const maxNumber = 1 << 62

// maxWide bounds the columns of all rows of an alternate screen together, including those
// behind its last visible column. It is twice the number of cells of the largest screen
// (protocol.MaxCols and MaxRows).
const maxWide = 2 * 2000 * 1000

// Validate checks a Remainder of unknown origin. It returns an error if a value is out of
// range, unless FinishRestore clamps or ignores that value.
func (r *Remainder) Validate() error {
	if r.History < 0 || r.Next > maxNumber || r.FocusAsked > maxNumber {
		return fmt.Errorf("invalid saved screen: history %d, next line %d or focus count %d is out of range", r.History, r.Next, r.FocusAsked)
	}
	room := maxWide
	for i, o := range r.Odd {
		if o.Alt {
			room -= o.Width
		}
		if o.Up < 0 || o.From < 0 || o.Width < 0 || room < 0 || o.From+len(o.Cells) > maxSize || len(o.Marks) > maxMarks {
			return fmt.Errorf("invalid saved screen: odd row %d has a column, width or number of marks out of range", i)
		}
		for _, c := range o.Cells {
			if c.Width < 0 || c.Width > 2 || c.Attr < 0 || c.Attr >= len(r.Styles) || len(c.Text) > maxCluster || !utf8.ValidString(c.Text) || strings.HasPrefix(c.Text, "\x00") {
				return fmt.Errorf("invalid saved screen: odd row %d has a cell whose width, style or text is out of range", i)
			}
		}
		for _, m := range o.Marks {
			if m.Col < 0 || m.Col >= maxSize || len(m.Text) > maxMark {
				return fmt.Errorf("invalid saved screen: odd row %d has a mark whose column or length is out of range", i)
			}
		}
	}
	return nil
}

// PrepareRestore prepares a terminal that has printed nothing for a saved snapshot. The caller
// must then write the snapshot with Refill, and call FinishRestore.
func (t *Term) PrepareRestore(r *Remainder) {
	t.normal.row(0).wrapped = r.Continues
	t.SetAppearance(r.Appearance) // the snapshot's pictures are for cells of its size
}

// Refill writes a part of a saved snapshot. It compresses the history earlier than Write does:
// the saved history may have been compressed, and must have room in the same number of bytes.
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

// FinishRestore restores the state that the snapshot does not contain. r must be valid.
func (t *Term) FinishRestore(r *Remainder) {
	t.restoreOddRows(r)
	t.restoreCursorState(&t.normal, r.Normal, t.hist.lines)
	t.restoreCursorState(&t.alt, r.Alt, 0)
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
	t.replies, t.requiredReplies, t.replyLost = nil, nil, r.ReplyLost
	if len(r.Replies) <= maxReply && len(r.RequiredReplies) <= maxReply {
		t.replies, t.requiredReplies = slices.Clone(r.Replies), slices.Clone(r.RequiredReplies)
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

func (t *Term) restoreCursorState(b *buffer, p *CursorState, base int) {
	if p == nil {
		return
	}
	b.x, b.y = min(max(p.X, 0), t.cols), min(max(p.Y, 0), t.rows-1)
	b.saved = saved{
		// A change of the size can leave the row above the first one of the history, as in xterm.js.
		x: min(max(p.SavedX, 0), maxSize), y: min(max(p.SavedY, -base-maxSize), maxSize) + base,
		pen: t.styleOf(&p.SavedPen), cs: charsetFor(first(p.SavedCharset)),
	}
	for _, x := range p.Tabs {
		if x >= t.cols && x <= maxSize {
			b.addTab(x)
		}
	}
}

// styleOf decodes a style, without bits that have no meaning.
func (t *Term) styleOf(l *StyleBits) style {
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

// restorePen restores the pen, and the state on which the next character's joining depends.
func (t *Term) restorePen(r *Remainder) {
	if r.Pen != nil {
		link := t.pen.link
		if t.pen = t.styleOf(r.Pen); sameLink(link, t.pen.link) {
			t.pen.link = link // text that was printed with this link and text that follows must have the same link
		}
		t.penChanged()
	}
	t.settleAll() // as beginPrinting does
	t.join, t.printing = 0, r.Printing
	if j := joinState(r.Join); r.Join <= maxJoin && j.width() <= 2 {
		t.join = j
	}
}

// maxJoin is the largest joinState.
const maxJoin = stateMask<<3 | 7
