package vt

import "slices"

// A Rest is what a snapshot leaves out of a terminal's state, because no bytes
// say it or because a viewer must not be told. With the snapshot it makes the
// terminal again: in another program too, whose core may have other internals.
// Fields are only added; one that is missing leaves what the snapshot made.
//
// Not in it: the size and the limits, which a terminal is made with.
type Rest struct {
	History      int    `json:"history"`                 // rows above the screen that are in the snapshot
	Continues    bool   `json:"continues,omitempty"`     // the first of all rows continues one that is not
	AltContinues bool   `json:"alt_continues,omitempty"` // the same of the alternate screen
	Next         uint64 `json:"next"`                    // the number after the last line's (lines.go)

	Normal   *Place `json:"normal,omitempty"`
	Alt      *Place `json:"alt,omitempty"`
	Pen      *Look  `json:"pen,omitempty"`
	Charset  string `json:"charset,omitempty"`  // designator of what is in use, "" for US ASCII
	Join     uint32 `json:"join,omitempty"`     // xterm.js's character properties (grapheme.go) of what was printed last
	Printing bool   `json:"printing,omitempty"` // the last thing done was to print
	TooLong  bool   `json:"too_long,omitempty"` // the unfinished string is longer than is looked at

	WorkDir    []byte           `json:"work_dir,omitempty"`
	Kitty      [2]KittyKeyboard `json:"kitty"`
	FocusAsked uint64           `json:"focus_asked,omitempty"`
	Replies    []byte           `json:"replies,omitempty"`   // not fetched yet
	Alone      []byte           `json:"alone,omitempty"`     // those of them that RepliesAlone returns
	SizeTold   bool             `json:"size_told,omitempty"` // mode 2048 is set
	ReplyLost  bool             `json:"reply_lost,omitempty"`
	Appearance Appearance       `json:"appearance"`

	Looks []Attr   `json:"looks,omitempty"` // what Odd refers to
	Odd   []OddRow `json:"odd,omitempty"`   // the last rows first
}

// A Place is where a screen's cursor is, and what DECSC has kept there.
type Place struct {
	X            int    `json:"x"` // 0..cols; cols is a pending wrap
	Y            int    `json:"y"`
	SavedX       int    `json:"saved_x"`
	SavedY       int    `json:"saved_y"` // from the screen's first row on; negative above it
	SavedPen     Look   `json:"saved_pen"`
	SavedCharset string `json:"saved_charset,omitempty"`
	Tabs         []int  `json:"tabs,omitempty"` // those beyond the last column
}

// A Look is a style bit by bit, as xterm.js packs it (style.go): what does not
// show may do so after the next SGR or DECRC.
type Look struct {
	Fg       uint32 `json:"fg,omitempty"`
	Bg       uint32 `json:"bg,omitempty"`
	Extended uint32 `json:"extended,omitempty"`
	Linked   bool   `json:"linked,omitempty"`
	URI      string `json:"uri,omitempty"`
	LinkID   string `json:"link_id,omitempty"`
}

// AppendSave appends AppendSnapshot's bytes for the last history lines, which
// may be more than there are, and returns what they leave out.
func (t *Term) AppendSave(dst []byte, history int) ([]byte, *Rest) {
	h := &t.hist
	r := &Rest{
		History: min(max(history, 0), h.lines), Pen: lookOf(t.pen), Charset: t.cs.name(),
		Join: uint32(t.join), Printing: t.printing, TooLong: t.tooLong && t.inString(),
		WorkDir: []byte(t.workDir), FocusAsked: t.focusAsked,
		Replies: slices.Clone(t.replies), Alone: slices.Clone(t.alone), ReplyLost: t.replyLost, Appearance: t.look,
		SizeTold: t.modes.SizeReports,
	}
	for i, k := range t.keyboard.Kitty {
		r.Kitty[i] = KittyKeyboard{k.Flags, slices.Clone(k.Stack)}
	}
	_, _, r.Next = t.LineNumbers()
	r.Normal = t.place(&t.normal, h.lines)
	r.Alt = t.place(&t.alt, 0)
	p := &painter{t: t, out: dst, odd: &oddRows{t: t}}
	p.snapshot(r.History)
	p.odd.shown()
	r.AltContinues = t.b == &t.alt && t.alt.row(0).wrapped
	r.Odd, r.Looks = p.odd.done()
	r.Continues = p.odd.continues
	return p.out, r
}

func (t *Term) inString() bool {
	return t.state == oscString || t.state == dcsPassthrough || t.state == otherString
}

func (t *Term) place(b *buffer, base int) *Place {
	p := &Place{
		X: b.x, Y: b.y, SavedX: b.saved.x, SavedY: b.saved.y - base,
		SavedPen: *lookOf(b.saved.pen), SavedCharset: b.saved.cs.name(),
	}
	for x := t.cols; x < 64*len(b.tabs); x++ {
		if b.hasTab(x) {
			p.Tabs = append(p.Tabs, x)
		}
	}
	return p
}

func lookOf(s style) *Look {
	l := &Look{Fg: s.fg, Bg: s.bg, Extended: s.extended}
	if s.link != nil {
		l.Linked, l.URI, l.LinkID = true, s.link.uri, s.link.id
	}
	return l
}
