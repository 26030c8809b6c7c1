package vt

//go:generate sh -c "node ../../../scripts/oracle/widths.mjs emoji > ../../../proxy/internal/web/page/src/emoji.json"
//go:generate sh -c "node ../../../scripts/oracle/widths.mjs > width_table.go"

// runeWidth says how many cells r takes: 0, 1 or 2, as wcwidth of xterm.js's
// Unicode 11 provider does for every code point (@xterm/addon-unicode11 0.9.0),
// but for the emoji of Unicode 13 to 17, which that provider does not know: they
// take 2 (Emoji_Presentation; scripts/oracle/emoji.mjs).
//
// Control characters take 0, U+007F to U+009F included; U+00AD, a soft hyphen,
// takes 1, and so does what is neither assigned in Unicode 12 nor such an emoji,
// or no code point.
func runeWidth(r rune) int {
	// Printable ASCII is all 1 in the table too. It is most of what is printed,
	// and the two loads would be most of this function.
	if uint32(r)-0x20 < 0x7f-0x20 {
		return 1
	}
	return tableWidth(r)
}

// tableWidth is runeWidth for every r, without the short way.
func tableWidth(r rune) int {
	u := uint32(r)
	page := u / 128
	if page >= uint32(len(widthIndex)) {
		return 1
	}
	return int(widthPages[widthIndex[page]][u/32%4] >> (u % 32 * 2) & 3)
}
