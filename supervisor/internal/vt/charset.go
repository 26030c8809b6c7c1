package vt

// A charset is a 7-bit character set that ESC ( and its like designate, or the
// difference of one to US ASCII. The nil charset is US ASCII.
//
// The sets and what they replace are those of xterm.js 6.0.0
// (common/data/Charsets.ts), its deviations from the VT220 manual included.
type charset struct {
	designator byte // the final byte that selected it
	replaced   *replacements
}

// replacements has what is shown for a byte, 0 where that is the byte itself.
// 0x7f is not there: xterm.js replaces what is below.
type replacements [0x7f]uint16

// at is the character b stands for; b itself unless the set replaces it.
func (c *charset) at(b byte) rune {
	if c == nil || int(b) >= len(c.replaced) || c.replaced[b] == 0 {
		return rune(b)
	}
	return rune(c.replaced[b])
}

// charsetFor is the set with a designator. It is nil for US ASCII, 'B', and for
// what is not known, which xterm.js ignores; knownCharset tells them apart.
func charsetFor(designator byte) *charset {
	for i := range charsets {
		if charsets[i].designator == designator {
			return &charsets[i]
		}
	}
	return nil
}

// knownCharset says whether designator selects a set, US ASCII being one.
func knownCharset(designator byte) bool {
	return designator == 'B' || charsetFor(designator) != nil
}

// charsets is all of them but US ASCII. Three have two designators.
var charsets = [...]charset{
	{'0', &decGraphics},
	{'A', &british},
	{'4', &dutch},
	{'C', &finnish}, {'5', &finnish},
	{'R', &french},
	{'Q', &frenchCanadian},
	{'K', &german},
	{'Y', &italian},
	{'E', &norwegianDanish}, {'6', &norwegianDanish},
	{'Z', &spanish},
	{'H', &swedish}, {'7', &swedish},
	{'=', &swiss},
}

// The manual's tables are at vt100.net/docs: DEC special graphics in the VT102
// user guide, 5-13; the others in the VT220 reference manual, 2-5 to 2-15.
var (
	decGraphics = replacements{
		'`': '◆', 'a': '▒', 'b': '␉', 'c': '␌', 'd': '␍', 'e': '␊', 'f': '°', 'g': '±',
		'h': '␤', 'i': '␋', 'j': '┘', 'k': '┐', 'l': '┌', 'm': '└', 'n': '┼', 'o': '⎺',
		'p': '⎻', 'q': '─', 'r': '⎼', 's': '⎽', 't': '├', 'u': '┤', 'v': '┴', 'w': '┬',
		'x': '│', 'y': '≤', 'z': '≥', '{': 'π', '|': '≠', '}': '£', '~': '·',
	}
	british = replacements{'#': '£'}
	// [ is the letter ij in the manual. xterm.js has the two letters i and j
	// there and shows the first.
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
