package vt

// How a colour and a look are packed is xterm.js's choice too, so that what it
// computes with them can be followed bit by bit.
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
	bgExtended  = 1 << 28 // extended and link of the style count
	bgProtected = 1 << 29
	bgOverline  = 1 << 30

	underlineShift = 26 // in style.extended, above the underline's colour
	underlineMask  = 7 << underlineShift
)

// A style is a look: of a cell, or of the pen.
type style struct {
	fg, bg   uint32
	extended uint32 // underline style and colour
	link     *link
}

// link is what OSC 8 opened. Two cells belong together if they have the same.
type link struct {
	id, uri string
	serial  uint32
}

// erased is the look that erasing with the pen s leaves: its background.
func (s style) erased() style { return style{bg: s.bg & colorMask} }

// refresh sets bgExtended as what is held demands.
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

// visible is the style without what does not show: two that are equal then look
// alike, but for their links.
func (s style) visible() style {
	v := style{fg: s.fg &^ fgUnderline, bg: s.bg &^ bgExtended}
	if s.bg&bgExtended != 0 || s.fg&fgUnderline == 0 { // it shows, or will with an underline
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
	if s.bg&bgExtended == 0 {
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

// styleTable gives every look in use a number. Numbers are found again by open
// addressing; those no longer in use come back by a sweep.
type styleTable struct {
	all   []style   // by id; 0 is the default
	slots []styleID // power of two long; 0 is a free slot
	free  []styleID // ids of all that are not in use
	limit int       // ids in use at which the next sweep is due
	last  styleID
}

// minSweep is how many looks are kept before the first sweep: more than programs
// use, and 100 KiB.
const minSweep = 1 << 12

func newStyleTable() styleTable {
	return styleTable{all: make([]style, 1, 8), slots: make([]styleID, 16), limit: minSweep}
}

func (s *style) hash() uint32 {
	h := s.fg*0x9e3779b1 ^ s.bg*0x85ebca6b ^ s.extended*0xc2b2ae35
	if s.link != nil {
		h ^= s.link.serial * 0x27d4eb2f
	}
	return h ^ h>>15
}

// id returns the number of s.
func (t *styleTable) id(s style) styleID {
	if s.bg&bgExtended == 0 {
		s.extended, s.link = 0, nil
	} else if s.underline() == 0 { // DECRC may leave what does not show, and no bytes bring it back
		s.fg &^= fgUnderline
		if s.extended = 0; s.link == nil {
			s.bg &^= bgExtended
		}
	}
	if s == t.all[t.last] {
		return t.last
	}
	if s == (style{}) {
		return 0
	}
	mask := uint32(len(t.slots) - 1)
	i := s.hash() & mask
	for ; t.slots[i] != 0; i = (i + 1) & mask {
		if t.all[t.slots[i]] == s {
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
		t.all[id] = s
	} else {
		id = styleID(len(t.all))
		t.all = append(t.all, s)
	}
	t.slots[slot] = id
	if 2*t.used() > len(t.slots) {
		t.rehash(2 * len(t.slots))
	}
	return id
}

func (t *styleTable) used() int { return len(t.all) - len(t.free) }

// rehash makes the slots anew, for those ids that are not free.
func (t *styleTable) rehash(size int) {
	t.slots = make([]styleID, size)
	mask := uint32(size - 1)
	for id := range t.all {
		if id == 0 || t.all[id] == (style{}) {
			continue
		}
		i := t.all[id].hash() & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = styleID(id)
	}
}

// sweep frees every id that is not in live, which is as long as all.
func (t *styleTable) sweep(live []bool) {
	t.free = t.free[:0]
	for len(t.all) > 1 && !live[len(t.all)-1] {
		t.all = t.all[:len(t.all)-1]
	}
	for id := 1; id < len(t.all); id++ {
		if !live[id] {
			t.all[id] = style{}
			t.free = append(t.free, styleID(id))
		}
	}
	if 2*len(t.all) < cap(t.all) {
		t.all = append(make([]style, 0, len(t.all)), t.all...)
	}
	size := 16
	for size < 4*t.used() {
		size *= 2
	}
	t.rehash(size)
	t.limit = max(minSweep, 2*t.used())
	t.last = 0
}
