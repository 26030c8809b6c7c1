package vt

import (
	"io"
	"math"
	"slices"

	"holdfast/supervisor/internal/picture"
)

// A Remainder is the part of a terminal's state that a snapshot does not contain, because no
// bytes can express it or because a viewer must not get it. Snapshot and remainder together
// restore the terminal, also in another program whose core has other internals. Fields may be
// added, but must not be removed or change their meaning. If a field is missing, the state
// that the snapshot has made stays.
//
// The size and the limits are not part of it. A terminal is created with them.
type Remainder struct {
	History      int    `json:"history"`                 // rows above the screen in the snapshot
	Continues    bool   `json:"continues,omitempty"`     // the first row of the snapshot continues a row that is not in it
	AltContinues bool   `json:"alt_continues,omitempty"` // the first row of the alternate screen continues another row
	Next         uint64 `json:"next"`                    // the number of the line that follows the last one (lines.go)

	Normal   *CursorState `json:"normal,omitempty"`
	Alt      *CursorState `json:"alt,omitempty"`
	Pen      *StyleBits   `json:"pen,omitempty"`
	Charset  string       `json:"charset,omitempty"`  // designator of the character set in use; "" for US ASCII
	Join     uint32       `json:"join,omitempty"`     // xterm.js's character properties (grapheme.go) of the character that was printed last
	Printing bool         `json:"printing,omitempty"` // the last byte was part of printed text
	TooLong  bool         `json:"too_long,omitempty"` // the unfinished string is too long and will be ignored

	WorkDir         []byte           `json:"work_dir,omitempty"`
	Kitty           [2]KittyKeyboard `json:"kitty"`
	FocusAsked      uint64           `json:"focus_asked,omitempty"`
	Replies         []byte           `json:"replies,omitempty"`   // answers that Replies has not returned yet
	RequiredReplies []byte           `json:"alone,omitempty"`     // those of Replies that RequiredReplies returns
	SizeTold        bool             `json:"size_told,omitempty"` // mode 2048 is set
	ReplyLost       bool             `json:"reply_lost,omitempty"`
	Appearance      Appearance       `json:"appearance"`

	Styles []Attr   `json:"looks,omitempty"` // the styles to which Odd refers
	Odd    []OddRow `json:"odd,omitempty"`   // the lowest rows first
}

// A CursorState is the cursor of a screen, the cursor that DECSC saved there, and the tab
// stops that the screen does not show.
type CursorState struct {
	X            int       `json:"x"` // 0..cols; cols is a pending wrap
	Y            int       `json:"y"`
	SavedX       int       `json:"saved_x"`
	SavedY       int       `json:"saved_y"` // relative to the screen's first row; negative if it is above
	SavedPen     StyleBits `json:"saved_pen"`
	SavedCharset string    `json:"saved_charset,omitempty"`
	Tabs         []int     `json:"tabs,omitempty"` // tab stops behind the last column
}

// StyleBits is a style bit by bit, as xterm.js packs it (style.go). It keeps bits that are not
// visible, because the next SGR or DECRC may make them visible.
type StyleBits struct {
	Fg       uint32 `json:"fg,omitempty"`
	Bg       uint32 `json:"bg,omitempty"`
	Extended uint32 `json:"extended,omitempty"`
	Linked   bool   `json:"linked,omitempty"`
	URI      string `json:"uri,omitempty"`
	LinkID   string `json:"link_id,omitempty"`
}

// Save writes a snapshot with the last history lines to w, and returns the remaining state. If
// there are fewer lines, it writes all of them. The bytes are those of AppendSnapshot; Save
// passes them to w in pieces, so that they need little memory.
//
// Errors: those of w.
func (t *Term) Save(w io.Writer, history int) (*Remainder, error) {
	h := &t.hist
	r := &Remainder{
		History: min(max(history, 0), h.lines), Pen: styleBitsOf(t.pen), Charset: t.cs.name(),
		Join: uint32(t.join), Printing: t.printing, TooLong: t.tooLong && t.inString(),
		WorkDir: []byte(t.workDir), FocusAsked: t.focusAsked,
		Replies: slices.Clone(t.replies), RequiredReplies: slices.Clone(t.requiredReplies), ReplyLost: t.replyLost, Appearance: t.appearance,
		SizeTold: t.modes.SizeReports,
	}
	for i, k := range t.keyboard.Kitty {
		r.Kitty[i] = KittyKeyboard{k.Flags, slices.Clone(k.Stack)}
	}
	_, _, r.Next = t.LineNumbers()
	r.Normal = t.cursorState(&t.normal, h.lines)
	r.Alt = t.cursorState(&t.alt, 0)
	p := &painter{
		t: t, w: w, linkRoom: maxScreenLinks, odd: &oddRows{t: t}, linksFrom: h.lines - t.linksWithin(r.History, maxSavedLinks),
		album: album{Shows: Shows{picture.AllFormats, t.Cell()}, room: math.MaxInt, work: maxDecoded},
	}
	p.snapshot(r.History)
	p.flush()
	p.odd.addShown()
	r.AltContinues = t.b == &t.alt && t.alt.row(0).wrapped
	r.Odd, r.Styles = p.odd.finish()
	r.Continues = p.odd.continues
	return r, p.err
}

func (t *Term) inString() bool {
	return t.state == oscString || t.state == dcsPassthrough || t.state == otherString
}

func (t *Term) cursorState(b *buffer, base int) *CursorState {
	p := &CursorState{
		X: b.x, Y: b.y, SavedX: b.saved.x, SavedY: b.saved.y - base,
		SavedPen: *styleBitsOf(b.saved.pen), SavedCharset: b.saved.cs.name(),
	}
	for x := t.cols; x < 64*len(b.tabs); x++ {
		if b.hasTab(x) {
			p.Tabs = append(p.Tabs, x)
		}
	}
	return p
}

func styleBitsOf(s style) *StyleBits {
	l := &StyleBits{Fg: s.fg, Bg: s.bg, Extended: s.extended}
	if s.link != nil {
		l.Linked, l.URI, l.LinkID = true, s.link.uri, s.link.id
	}
	return l
}
