package vt

// A joinState is what the next character's width depends on: the value
// xterm.js calls character properties (UnicodeService.createPropertyValue).
//
//	bit 0       the character joins the cell before it
//	bits 1, 2   width of the whole cell, once the character is in it
//	bits 3..26  the provider's state; always 0 when not counting clusters
//
// 0 means that nothing is before: the start, or a control function came in
// between.
type joinState uint32

// joins says whether the character belongs to the cell before it.
func (s joinState) joins() bool { return s&1 != 0 }

// width is how many cells the character takes along with all it joined.
func (s joinState) width() int { return int(s >> 1 & 3) }

// state is the provider's own part.
func (s joinState) state() uint32 { return uint32(s) >> 3 }

// joinOf puts a joinState together.
func joinOf(state uint32, width int, joins bool) joinState {
	s := joinState(state&stateMask)<<3 | joinState(width)<<1
	if joins {
		s |= 1
	}
	return s
}

// A breakKind is a value of the property Grapheme_Cluster_Break of UAX #29,
// table 2, or Extended_Pictographic of UTS #51, with the numbers of xterm.js's
// UnicodeProperties.ts. Control characters are breakOther there.
type breakKind = uint32

const (
	breakOther breakKind = iota
	breakPrepend
	breakExtend
	breakRegional
	breakSpacing
	breakL
	breakV
	breakT
	breakLV
	breakLVT
	breakZWJ
	breakPictographic
)

// What a state is made of: a break kind in its low bits, and above it either
// the width class of the table, if nothing was before, or one of these.
const (
	stateMask   = 0xffffff // of the whole
	stateKind   = 0xf      // of the break kind
	stateJoined = 16       // added to the kind of what joined
	stateBroke  = 16       // subtracted from the kind of what did not
	statePaired = 32       // a second regional indicator; its kind reads as breakOther
)

// Width classes, above the break kind in the table (UnicodeProperties.ts): 0 is
// usual, 1 always one cell, 2 of ambiguous width, taken as one cell.
const (
	classShift = 4
	classWide  = 3
)

// joinedTo has, per break kind, the kinds that do not break from it. The rules
// are those of UAX #29, 3.1.1, with two liberties xterm.js takes: GB11 forgets
// what was before the joiner, and GB9c is from a later version.
var joinedTo = [stateKind + 1]uint16{
	breakOther:        joinAlways,
	breakPrepend:      0xffff, // GB9b
	breakExtend:       joinAlways,
	breakRegional:     joinAlways | 1<<breakRegional, // GB12, GB13; see statePaired
	breakSpacing:      joinAlways,
	breakL:            joinAlways | 1<<breakL | 1<<breakV | 1<<breakLV | 1<<breakLVT, // GB6
	breakV:            joinAlways | 1<<breakV | 1<<breakT,                            // GB7
	breakT:            joinAlways | 1<<breakT,                                        // GB8
	breakLV:           joinAlways | 1<<breakV | 1<<breakT,                            // GB7
	breakLVT:          joinAlways | 1<<breakT,                                        // GB8
	breakZWJ:          joinAlways | 1<<breakPictographic,                             // GB11
	breakPictographic: joinAlways,
}

// joinAlways are the kinds that join whatever they follow: GB9, GB9a.
const joinAlways = 1<<breakExtend | 1<<breakZWJ | 1<<breakSpacing

// joinWidth says what printing r after before comes to, as charProperties of
// xterm.js's providers does: the one of Unicode 11, or with clusters the one
// called 15-graphemes (@xterm/addon-unicode-graphemes 0.4.0), but for the emoji
// that they do not know, as in runeWidth.
func joinWidth(r rune, before joinState, clusters bool) (after joinState) {
	// ASCII joins nothing and is joined to nothing without a state, and state 0
	// is what stays after it: the whole of a plain text.
	if uint32(r)-0x20 < 0x7f-0x20 && before < 1<<3 {
		return 1 << 1
	}
	return joinAny(r, before, clusters)
}

// joinAny is joinWidth without the short way.
func joinAny(r rune, before joinState, clusters bool) joinState {
	if clusters {
		return joinCluster(r, before)
	}
	return joinMark(r, before)
}

// joinMark joins what takes no cell to a cell before it, if there is one.
func joinMark(r rune, before joinState) joinState {
	w := runeWidth(r)
	if w == 0 && before.width() != 0 {
		return joinOf(0, before.width(), true)
	}
	return joinOf(0, w, false)
}

// joinCluster joins r to the grapheme cluster before it. Nothing takes 0 cells
// here: a mark after nothing has one of its own.
func joinCluster(r rune, before joinState) joinState {
	// State 0 is short-cut in xterm.js, which shows: it stays 0.
	if uint32(r)-0x20 < 0x7f-0x20 && before.state() == 0 {
		return 1 << 1
	}
	info := clusterInfo(r)
	w := 1
	// U+FE0F asks for the emoji form of what it follows.
	if info>>classShift == classWide || r == 0xfe0f {
		w = 2
	}
	if before == 0 {
		return joinOf(info, w, false)
	}
	kind := info & stateKind
	if joinedTo[before.state()&stateKind]>>kind&1 == 0 {
		return joinOf(kind-stateBroke, w, false)
	}
	state := kind + stateJoined
	if kind == breakRegional {
		state = statePaired
	}
	if before.width() > w {
		w = before.width()
	} else if kind == breakRegional {
		w = 2
	}
	return joinOf(state, w, true)
}

// clusterInfo looks r up: class<<classShift | break kind. What is no code point
// is as good as unassigned.
func clusterInfo(r rune) uint32 {
	u := uint32(r)
	page := u / 128
	if page >= uint32(len(clusterIndex)) {
		return 0
	}
	return uint32(clusterPages[uint32(clusterIndex[page])*128+u%128] - '0')
}
