package vt

// A joinState is the state on which the width of the next character depends. It has the form
// that xterm.js calls character properties (UnicodeService.createPropertyValue).
//
//	bit 0       the character joins the cell before it
//	bits 1, 2   width of the whole cell, including the character
//	bits 3..26  the provider's state; always 0 if clusters are not counted
//
// It is 0 if there is no character before: at the beginning, and behind a control function.
type joinState uint32

// joins reports whether the character joins the cell before it.
func (s joinState) joins() bool { return s&1 != 0 }

// width returns the number of columns of the character together with all characters that it
// joined.
func (s joinState) width() int { return int(s >> 1 & 3) }

// state returns the provider's part of s.
func (s joinState) state() uint32 { return uint32(s) >> 3 }

// joinOf builds a joinState from its parts.
func joinOf(state uint32, width int, joins bool) joinState {
	s := joinState(state&stateMask)<<3 | joinState(width)<<1
	if joins {
		s |= 1
	}
	return s
}

// A breakKind is a value of the property Grapheme_Cluster_Break of UAX #29, table 2, or
// Extended_Pictographic of UTS #51. It has the number that xterm.js's UnicodeProperties.ts
// gives it. Control characters are breakOther there.
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

// The provider's state holds a break kind in its low bits. Above it stands the width class of
// the table if there was no character before, and otherwise one of these values.
const (
	stateMask   = 0xffffff // mask of the whole state
	stateKind   = 0xf      // mask of the break kind
	stateJoined = 16       // added to the kind of a character that joined
	stateBroke  = 16       // subtracted from the kind of a character that did not join
	statePaired = 32       // state of a second regional indicator; its kind reads as breakOther
)

// These width classes stand above the break kind in the table (UnicodeProperties.ts): 0 is
// usual, 1 always takes one column, 2 is of ambiguous width and takes one column.
const (
	classShift = 4
	classWide  = 3
)

// joinedTo holds, for each break kind, the set of kinds that join it. The rules are those of
// UAX #29, 3.1.1, with two deviations of xterm.js: GB11 ignores the characters before the
// joiner, and GB9c is missing, because it belongs to a later version.
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

// joinAlways is the set of kinds that join every kind: GB9, GB9a.
const joinAlways = 1<<breakExtend | 1<<breakZWJ | 1<<breakSpacing

// joinWidth returns the state after r is printed behind the state before. It computes the
// charProperties of an xterm.js provider: that of Unicode 11, or if clusters is set, the one
// called 15-graphemes (@xterm/addon-unicode-graphemes 0.4.0). Emoji that these providers do
// not know have the width that runeWidth returns.
func joinWidth(r rune, before joinState, clusters bool) (after joinState) {
	// ASCII never joins, and if the state before is 0, the state after it is 0 as well. Plain
	// text therefore takes only this path.
	if uint32(r)-0x20 < 0x7f-0x20 && before < 1<<3 {
		return 1 << 1
	}
	return joinAny(r, before, clusters)
}

// joinAny computes joinWidth for every r, without the shortcut for ASCII.
func joinAny(r rune, before joinState, clusters bool) joinState {
	if clusters {
		return joinCluster(r, before)
	}
	return joinMark(r, before)
}

// joinMark computes the state without clusters: a character of zero width joins the cell
// before it, if there is one.
func joinMark(r rune, before joinState) joinState {
	w := runeWidth(r)
	if w == 0 && before.width() != 0 {
		return joinOf(0, before.width(), true)
	}
	return joinOf(0, w, false)
}

// joinCluster computes the state with clusters: r joins the grapheme cluster before it if the
// break rules say so. Every character has a width here: a combining mark without a character
// before it takes a column.
func joinCluster(r rune, before joinState) joinState {
	// xterm.js has the same shortcut, and its effect is visible: the state stays 0.
	if uint32(r)-0x20 < 0x7f-0x20 && before.state() == 0 {
		return 1 << 1
	}
	info := clusterInfo(r)
	w := 1
	// U+FE0F requests the emoji form of the character before it.
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

// clusterInfo returns the entry of r in the table: class<<classShift | break kind. A value
// that is no code point has the entry of an unassigned one.
func clusterInfo(r rune) uint32 {
	u := uint32(r)
	page := u / 128
	if page >= uint32(len(clusterIndex)) {
		return 0
	}
	return uint32(clusterPages[uint32(clusterIndex[page])*128+u%128] - '0')
}
