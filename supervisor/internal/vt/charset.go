package vt

import "strings"

// A charset is a 7-bit character set that ESC ( and similar sequences designate, stored as its
// difference from US ASCII. The nil charset is US ASCII.
//
// The sets are those of xterm.js 6.0.0 (common/data/Charsets.ts), including its deviations
// from the VT220 manual.
type charset struct {
	designators string // the final bytes that select the set
	replaced    *replacements
}

// replacements holds, for each byte, the character that is shown instead of it, or 0 if the
// byte is not replaced. It ends before 0x7f, because xterm.js replaces only the bytes below.
type replacements [0x7f]uint16

// at returns the character that the set shows for the byte b. If the set does not replace b,
// it is b itself.
func (c *charset) at(b byte) rune {
	if c == nil || int(b) >= len(c.replaced) || c.replaced[b] == 0 {
		return rune(b)
	}
	return rune(c.replaced[b])
}

// charsetFor returns the set with a designator. It returns nil for 'B', which is US ASCII, and
// for an unknown designator, which xterm.js ignores. Use knownCharset to tell the two apart.
func charsetFor(designator byte) *charset {
	for i := range charsets {
		if strings.IndexByte(charsets[i].designators, designator) >= 0 {
			return &charsets[i]
		}
	}
	return nil
}

// knownCharset reports whether designator selects a set. US ASCII is one of the sets.
func knownCharset(designator byte) bool {
	return designator == 'B' || charsetFor(designator) != nil
}

// charsets lists all sets except US ASCII.
var charsets = [...]charset{
	{"0", &decGraphics},
	{"A", &british},
	{"4", &dutch},
	{"C5", &finnish},
	{"R", &french},
	{"Q", &frenchCanadian},
	{"K", &german},
	{"Y", &italian},
	{"E6", &norwegianDanish},
	{"Z", &spanish},
	{"H7", &swedish},
	{"=", &swiss},
}

// The tables are in the manuals at vt100.net/docs: DEC special graphics in the VT102 user
// guide, 5-13; the others in the VT220 reference manual, 2-5 to 2-15.
var (
	decGraphics = replacements{
		'`': '◆', 'a': '▒', 'b': '␉', 'c': '␌', 'd': '␍', 'e': '␊', 'f': '°', 'g': '±',
		'h': '␤', 'i': '␋', 'j': '┘', 'k': '┐', 'l': '┌', 'm': '└', 'n': '┼', 'o': '⎺',
		'p': '⎻', 'q': '─', 'r': '⎼', 's': '⎽', 't': '├', 'u': '┤', 'v': '┴', 'w': '┬',
		'x': '│', 'y': '≤', 'z': '≥', '{': 'π', '|': '≠', '}': '£', '~': '·',
	}
	british = replacements{'#': '£'}
	// In the manual, [ is the letter ij. xterm.js has the two letters i and j instead, and shows
	// the first one.
	dutch = replacements{
		'#': '£', '@': '¾', '[': 'i', '\\': '½', ']': '|',
		'{': '¨', '|': 'f', '}': '¼', '~': '´',
	}
	finnish = replacements{
		'[': 'Ä', '\\': 'Ö', ']': 'Å', '^': 'Ü', '`': 'é',
		'{': 'ä', '|': 'ö', '}': 'å', '~': 'ü',
	}
	french = replacements{
		'#': '£', '@': 'à', '[': '°', '\\': 'ç', ']': '§',
		'{': 'é', '|': 'ù', '}': 'è', '~': '¨',
	}
	frenchCanadian = replacements{
		'@': 'à', '[': 'â', '\\': 'ç', ']': 'ê', '^': 'î', '`': 'ô',
		'{': 'é', '|': 'ù', '}': 'è', '~': 'û',
	}
	german = replacements{
		'@': '§', '[': 'Ä', '\\': 'Ö', ']': 'Ü',
		'{': 'ä', '|': 'ö', '}': 'ü', '~': 'ß',
	}
	italian = replacements{
		'#': '£', '@': '§', '[': '°', '\\': 'ç', ']': 'é', '`': 'ù',
		'{': 'à', '|': 'ò', '}': 'è', '~': 'ì',
	}
	norwegianDanish = replacements{
		'@': 'Ä', '[': 'Æ', '\\': 'Ø', ']': 'Å', '^': 'Ü', '`': 'ä',
		'{': 'æ', '|': 'ø', '}': 'å', '~': 'ü',
	}
	spanish = replacements{
		'#': '£', '@': '§', '[': '¡', '\\': 'Ñ', ']': '¿',
		'{': '°', '|': 'ñ', '}': 'ç',
	}
	swedish = replacements{
		'@': 'É', '[': 'Ä', '\\': 'Ö', ']': 'Å', '^': 'Ü', '`': 'é',
		'{': 'ä', '|': 'ö', '}': 'å', '~': 'ü',
	}
	swiss = replacements{
		'#': 'ù', '@': 'à', '[': 'é', '\\': 'ç', ']': 'ê', '^': 'î', '_': 'è', '`': 'ô',
		'{': 'ä', '|': 'ö', '}': 'ü', '~': 'û',
	}
)

func (t *Term) shift(g int) {
	t.gl = g
	t.cs = t.gsets[g]
}

func (t *Term) designate(g int, cs *charset) {
	t.gsets[g] = cs
	if t.gl == g {
		t.cs = cs
	}
}

func (t *Term) resetCharsets() {
	t.gsets, t.gl, t.cs = [4]*charset{}, 0, nil
}
