package vt

import "slices"

// Colours and styles are packed as in xterm.js, so that its computations can be compared bit
// by bit.
const (
	colorMask   = 0x3ffffff // mode<<24 | value
	colorMode16 = 1 << 24
	colorModeP  = 2 << 24
	colorModeRG = 3 << 24

	fgInverse   = 1 << 26
	fgBold      = 1 << 27
	fgUnderline = 1 << 28
	fgBlink     = 1 << 29
	fgInvisible = 1 << 30
	fgStrike    = 1 << 31

	bgItalic    = 1 << 26
	bgDim       = 1 << 27
	bgExtended  = 1 << 28 // style.extended and style.link are in effect
	bgProtected = 1 << 29
	bgOverline  = 1 << 30

	underlineShift = 26 // in style.extended, above the colour of the underline
	underlineMask  = 7 << underlineShift
)

// A style is the appearance of a cell or of the pen.
type style struct {
	fg, bg   uint32
	extended uint32 // underline style and colour
	link     *link
}

// link is a link that OSC 8 has opened, or the part of a picture that a cell shows, or both. Two
// cells belong to the same link if they have the same pointer. A cell of a picture has a link of
// its own.
type link struct {
	id, uri string
	serial  uint32
	tile    int32          // index of the cell within the picture, counted by rows
	picture *placedPicture // nil if the cell shows no picture
}

// erased returns the style of cells that are erased with the pen s: only its background.
func (s style) erased() style { return style{bg: s.bg & colorMask} }

// refresh sets or clears bgExtended to agree with extended and link.
func (s *style) refresh() {
	if s.extended&underlineMask == 0 && s.link == nil {
		s.bg &^= bgExtended
	} else {
		s.bg |= bgExtended
	}
}

func (s style) underline() int {
	switch {
	case s.fg&fgUnderline == 0:
		return 0
	case s.bg&bgExtended == 0:
		return 1
	}
	return int(s.extended & underlineMask >> underlineShift)
}

// visible returns the style without its invisible bits. If the results for two styles are
// equal, both are displayed in the same way, although their links may differ.
func (s style) visible() style {
	v := style{fg: s.fg &^ fgUnderline, bg: s.bg &^ bgExtended}
	if s.bg&bgExtended != 0 || s.fg&fgUnderline == 0 { // it is visible, or will be with an underline
		v.extended = s.extended & colorMask
	}
	if n := s.underline(); n > 0 {
		v.fg |= fgUnderline
		v.extended |= uint32(n) << underlineShift
	}
	return v
}

// shownLink returns the link that cells of this style belong to.
func (s style) shownLink() *link {
	if s.bg&bgExtended == 0 || s.link == nil || s.link.uri == "" && s.link.id == "" {
		return nil
	}
	return s.link
}

// shownTile returns the link that has the part of a picture that cells of this style show, or nil.
func (s *style) shownTile() *link {
	if s.bg&bgExtended == 0 || s.link == nil || s.link.picture == nil {
		return nil
	}
	return s.link
}

func (s style) attr() Attr {
	a := Attr{Fg: s.fg & colorMask, Bg: s.bg & colorMask, Underline: s.underline()}
	for _, f := range flagBits {
		if f.fg&s.fg|f.bg&s.bg != 0 {
			a.Flags |= f.flag
		}
	}
	if s.bg&bgExtended != 0 {
		a.UnderlineColor = s.extended & colorMask
		if s.link != nil {
			a.URI, a.LinkID = s.link.uri, s.link.id
		}
	}
	return a
}

// styleTable assigns a number to each style in use. A style is found by open addressing. sweep
// frees the numbers that are no longer in use.
//
// The styles are in pages, so that a table that grows copies no style. A copy of the table
// shares its pages, and a table replaces a shared page before it changes a style in it. This
// matters because a large screen may have millions of styles.
type styleTable struct {
	pages []stylePage // styles by id; 0 is the default
	count int         // ids so far
	first styleID     // smaller ids are those of the original: slots has none of them, and they stay
	slots []styleID   // its length is a power of two; 0 is a free slot
	free  []styleID   // ids that are not in use, the smallest last
	limit int         // if more ids than this are in use, the table should be swept
	last  styleID
}

// A stylePage holds the styles of pageLen ids, or nil if none of the ids is in use. The last
// page may be shorter.
type stylePage struct {
	styles []style
	shared bool // a copy of the table has the page, too
}

// pageLen is a power of two.
const pageLen = 256

// minSweep is the number of styles up to which the table is never swept. Programs seldom use
// as many, and they take 100 KiB.
const minSweep = 1 << 12

func newStyleTable() styleTable {
	return styleTable{pages: []stylePage{{styles: make([]style, 1, 8)}}, count: 1, slots: make([]styleID, 16), limit: minSweep}
}

// copy returns a table with the same styles. It finds none of them, so that a style that both
// tables use may have a second id in the copy.
func (t *styleTable) copy() styleTable {
	for i := range t.pages {
		t.pages[i].shared = true
	}
	n := len(t.pages) * pageLen
	return styleTable{pages: slices.Clone(t.pages), count: n, first: styleID(n), slots: make([]styleID, 16), limit: minSweep}
}

// at returns the style with an id that is in use. The caller must not change the style.
func (t *styleTable) at(id styleID) *style { return &t.pages[id/pageLen].styles[id%pageLen] }

// page returns the page of an id for changes.
func (t *styleTable) page(id styleID) *stylePage {
	p := &t.pages[id/pageLen]
	switch {
	case p.styles == nil:
		*p = stylePage{styles: make([]style, pageLen)}
	case p.shared:
		*p = stylePage{styles: append(make([]style, 0, pageLen), p.styles...)}
	}
	return p
}

func (s *style) hash() uint32 {
	h := s.fg*0x9e3779b1 ^ s.bg*0x85ebca6b ^ s.extended*0xc2b2ae35
	if s.link != nil {
		h ^= s.link.serial * 0x27d4eb2f
	}
	return h ^ h>>15
}

// id returns the number of s, and assigns one if s is new.
func (t *styleTable) id(s style) styleID {
	if s.bg&bgExtended == 0 {
		s.extended, s.link = 0, nil
	} else if s.underline() == 0 { // DECRC may leave invisible bits, which no bytes can restore
		s.fg &^= fgUnderline
		if s.extended = 0; s.link == nil {
			s.bg &^= bgExtended
		}
	}
	if s == *t.at(t.last) {
		return t.last
	}
	if s == (style{}) {
		return 0
	}
	mask := uint32(len(t.slots) - 1)
	i := s.hash() & mask
	for ; t.slots[i] != 0; i = (i + 1) & mask {
		if *t.at(t.slots[i]) == s {
			t.last = t.slots[i]
			return t.last
		}
	}
	t.last = t.add(s, i)
	return t.last
}

func (t *styleTable) add(s style, slot uint32) styleID {
	var id styleID
	if k := len(t.free); k > 0 {
		id, t.free = t.free[k-1], t.free[:k-1]
		t.page(id).styles[id%pageLen] = s
	} else {
		id = styleID(t.count)
		t.count++
		if int(id/pageLen) == len(t.pages) {
			t.pages = append(t.pages, stylePage{styles: make([]style, 0, pageLen)})
		}
		p := t.page(id)
		p.styles = append(p.styles, s)
	}
	t.slots[slot] = id
	if 2*t.used() > len(t.slots) {
		t.rehash(2 * len(t.slots))
	}
	return id
}

func (t *styleTable) used() int { return t.count - int(t.first) - len(t.free) }

// rehash rebuilds the slots with the given length, for the ids that are in use.
func (t *styleTable) rehash(size int) {
	t.slots = make([]styleID, size)
	mask := uint32(size - 1)
	for id := max(t.first, 1); int(id) < t.count; id++ {
		if t.pages[id/pageLen].styles == nil || *t.at(id) == (style{}) {
			continue
		}
		i := t.at(id).hash() & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = id
	}
}

// clearPage forgets the styles of a page that are not set in live.
func (t *styleTable) clearPage(i int, live []bool) {
	if i > 0 && !slices.Contains(live, true) {
		t.pages[i] = stylePage{}
		return
	}
	for k := range live {
		if id := styleID(i*pageLen + k); id > 0 && !live[k] && *t.at(id) != (style{}) {
			t.page(id).styles[k] = style{}
		}
	}
}

// sweep frees every id that is not set in live, except for those of the original. live must
// have an entry for each id.
func (t *styleTable) sweep(live []bool) {
	first := max(int(t.first), 1)
	for t.count > first && !live[t.count-1] {
		t.count--
	}
	pages := (t.count + pageLen - 1) / pageLen
	t.pages, t.free = slices.Delete(t.pages, pages, len(t.pages)), t.free[:0]
	if n := t.count % pageLen; n > 0 {
		t.pages[pages-1].styles = t.pages[pages-1].styles[:n]
	}
	for id := t.count - 1; id >= first; id-- {
		if !live[id] {
			t.free = append(t.free, styleID(id))
		}
	}
	for i := first / pageLen; i < pages; i++ {
		t.clearPage(i, live[i*pageLen:min((i+1)*pageLen, t.count)])
	}
	size := 16
	for size < 4*t.used() {
		size *= 2
	}
	t.rehash(size)
	t.limit = max(minSweep, 2*t.used())
	t.last = 0
}
