package vt

//go:generate sh -c "node ../../../scripts/oracle/widths.mjs emoji > ../../../proxy/internal/web/client/src/emoji.ts"
//go:generate sh -c "node ../../../scripts/oracle/widths.mjs > width_table.go"

// RuneWidth returns the width of r in columns: 0, 1 or 2.
func RuneWidth(r rune) int { return runeWidth(r) }

// runeWidth returns the width of r in columns: 0, 1 or 2. For every code point it is the
// wcwidth of xterm.js's Unicode 11 provider (@xterm/addon-unicode11 0.9.0), except for the
// emoji of Unicode 13 to 17, which that provider does not know: they take 2
// (Emoji_Presentation; scripts/oracle/emoji.mjs).
//
// Control characters, including U+007F to U+009F, take 0. U+00AD, a soft hyphen, takes 1. A
// value that is no code point, or that is neither assigned in Unicode 12 nor such an emoji,
// takes 1.
func runeWidth(r rune) int {
	// Printable ASCII has width 1 in the table, too. Most text is printable ASCII, and for it
	// the two loads would take most of the time of this function.
	if uint32(r)-0x20 < 0x7f-0x20 {
		return 1
	}
	return tableWidth(r)
}

// tableWidth returns the width of every r from the table, without the shortcut for ASCII.
func tableWidth(r rune) int {
	u := uint32(r)
	page := u / 128
	if page >= uint32(len(widthIndex)) {
		return 1
	}
	return int(widthPages[widthIndex[page]][u/32%4] >> (u % 32 * 2) & 3)
}
