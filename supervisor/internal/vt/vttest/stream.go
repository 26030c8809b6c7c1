package vttest

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// StreamOptions describe a stream. If a field is zero, its default is used.
type StreamOptions struct {
	Cols, Rows int     // size of the terminal at the start; default 80 and 24
	Bytes      int     // approximate length in bytes; default 2,000
	Profile    Profile // kind of most of the stream; default is chosen at random
	NoResize   bool
	NoReset    bool // no RIS and no DECSTR, which would end modes that are set before the stream
	Graphemes  bool // the stream sets and resets mode 2027
}

// Profile is the kind of program whose output a stream resembles.
type Profile string

// The profiles.
const (
	Text    Profile = "text"    // lines and paragraphs that scroll
	Editor  Profile = "editor"  // margins, inserted and deleted lines and characters
	Wide    Profile = "wide"    // wide characters, clusters, broken UTF-8
	Colours Profile = "colours" // colours and links
	Modal   Profile = "modes"   // modes, charsets, saved cursors, both screens
	Garbage Profile = "garbage" // sequences that programs do not print on purpose
	Reflow  Profile = "reflow"  // long lines and resizes
)

// Profiles lists all profiles.
var Profiles = []Profile{Text, Editor, Wide, Colours, Modal, Garbage, Reflow}

// Stream generates terminal output over the whole grammar of xterm.js.
//
// Input that xterm.js handles wrongly is not generated. The comments below tell the reasons.
func Stream(r *rand.Rand, o StreamOptions) []Step {
	o.Cols, o.Rows = cmp.Or(o.Cols, 80), cmp.Or(o.Rows, 24)
	o.Bytes = cmp.Or(o.Bytes, 2000)
	if o.Profile == "" {
		o.Profile = Profiles[r.IntN(len(Profiles))]
	}
	g := &generator{Rand: r, options: o, cols: o.Cols, rows: o.Rows}
	g.weigh()
	for g.total+len(g.pending) < o.Bytes {
		g.act()
	}
	g.flush()
	return g.steps
}

type generator struct {
	*rand.Rand
	options    StreamOptions
	cols, rows int
	weights    []int // cumulative weights of the actions
	pending    []byte
	total      int
	steps      []Step
}

// An action prints a piece of output. Its weight is that for the profile, or base if the
// profile has none.
type action struct {
	print   func(*generator)
	base    int
	weights map[Profile]int
}

func (g *generator) weigh() {
	sum := 0
	for _, a := range actions {
		weight, ok := a.weights[g.options.Profile]
		if !ok {
			weight = a.base
		}
		sum += weight
		g.weights = append(g.weights, sum)
	}
}

func (g *generator) act() {
	n := g.IntN(g.weights[len(g.weights)-1])
	i := slices.IndexFunc(g.weights, func(sum int) bool { return n < sum })
	actions[i].print(g)
}

func (g *generator) print(format string, args ...any) {
	if len(args) == 0 {
		g.pending = append(g.pending, format...)
		return
	}
	g.pending = fmt.Appendf(g.pending, format, args...)
}

// flush turns the printed bytes into writes that are cut at random places.
func (g *generator) flush() {
	b := g.pending
	if g.options.NoReset {
		b = noReset.apply(b)
	}
	g.total += len(b)
	g.pending = nil
	longest := []int{1 << 20, 1000, 100, 10, 1}[min(g.IntN(20)/3, 4)]
	if len(b) > 1000 && longest < 10 {
		longest = 10
	}
	for len(b) > 0 {
		n := 1 + g.IntN(min(longest, len(b)))
		if longest == 1<<20 {
			n = len(b)
		}
		g.steps = append(g.steps, Step{Write: b[:n:n]})
		b = b[n:]
	}
}

// noReset replaces the sequences that reset the terminal.
var noReset = replacement{{"\x1bc", "\x1bQ"}, {"!p", "!q"}}

type replacement [][2]string

func (r replacement) apply(b []byte) []byte {
	for _, pair := range r {
		b = bytes.ReplaceAll(b, []byte(pair[0]), []byte(pair[1]))
	}
	return b
}

func (g *generator) resize() {
	if g.options.NoResize {
		return
	}
	g.flush()
	rows := g.rows
	switch g.IntN(8) {
	case 0:
		g.cols, g.rows = 2+g.IntN(119), 1+g.IntN(40)
	case 1:
		g.rows = 1 + g.IntN(40)
	case 2:
		g.cols, g.rows = 2+g.IntN(5), 1+g.IntN(3)
	case 3:
		g.cols, g.rows = g.options.Cols, g.options.Rows
	default: // as if the edge of a window is dragged
		g.cols = min(max(2, g.cols+g.IntN(21)-10), 120)
		g.rows = min(max(1, g.rows+g.IntN(7)-3), 40)
	}
	g.steps = append(g.steps, Step{Cols: g.cols, Rows: g.rows})
	// In xterm.js, a hidden alternate screen does not lose the rows that a resize removes, and
	// gets a history when it is shown. Leaving the alternate screen creates it again.
	if g.rows < rows && g.chance(60) {
		g.print("\x1b[?47h\x1b[?47l")
	}
}

// one returns one of the choices.
func one[T any](g *generator, choices ...T) T { return choices[g.IntN(len(choices))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// count returns a parameter that is a count. It must be small, because xterm.js takes 40
// minutes for the largest one.
func (g *generator) count() string {
	switch g.IntN(12) {
	case 0, 1, 2:
		return ""
	case 3:
		return "0"
	case 4:
		return strconv.Itoa(g.IntN(300))
	case 5:
		return strconv.Itoa(1+g.IntN(3)) + one(g, ";", ";7", ":2", ";0;1", ":")
	default:
		return strconv.Itoa(1 + g.IntN(5))
	}
}

// place returns a parameter that is a row or column of a screen with size rows or columns.
func (g *generator) place(size int) string {
	switch g.IntN(14) {
	case 0:
		return ""
	case 1:
		return "0"
	case 2:
		return strconv.Itoa(size)
	case 3:
		return strconv.Itoa(size - 1 + g.IntN(4))
	case 4:
		return one(g, "1", "300", "5000", "32768", "2147483647", "4294967296", "99999999999999999999")
	default:
		return strconv.Itoa(1 + g.IntN(size))
	}
}

// csi prints a control sequence. Rarely, there is a control in the middle of it, which the
// terminal must execute or ignore.
func (g *generator) csi(params, final string) {
	lead := "\x1b["
	if g.chance(2) {
		lead = "\u009b"
	}
	if g.chance(2) {
		params += one(g, "\r", "\b", "\x00", "\x7f", "\a")
	}
	g.print("%s", lead+params+final)
}

var actions = []action{
	// Text.
	{func(g *generator) { g.print("%s", g.words(1+g.IntN(20))) }, 12, map[Profile]int{Text: 20, Garbage: 6}},
	{func(g *generator) { g.print("%s%s", g.words(1+g.IntN(g.cols)), one(g, "\r\n", "\r\n", "\n", "\r")) }, 6, map[Profile]int{Text: 20, Reflow: 12}},
	{func(g *generator) { g.print("%s", g.words(g.cols+g.IntN(2*g.cols))) }, 2, map[Profile]int{Text: 6, Reflow: 14}},
	{func(g *generator) { g.print("%s", strings.Repeat("\r\n", 1+g.IntN(4))) }, 5, map[Profile]int{Text: 8}},
	{func(g *generator) { g.print("%s", g.unicode(1+g.IntN(10))) }, 3, map[Profile]int{Wide: 60, Reflow: 5}},
	{(*generator).broken, 1, map[Profile]int{Wide: 10, Garbage: 6}},
	{(*generator).c0, 6, nil},
	{func(g *generator) { g.print("%s", string(rune(0x80+g.IntN(0x20)))); g.terminate() }, 1, map[Profile]int{Garbage: 6}},
	// REP. Only behind ASCII words it has large counts, because the core bounds the bytes that
	// REP prints.
	{func(g *generator) { g.csi(one(g, "", "1", "2", "5"), "b") }, 1, map[Profile]int{Wide: 4}},
	{func(g *generator) { g.print("%s", g.words(1+g.IntN(3))); g.csi(one(g, "1", "7", "40", "95"), "b") }, 1, nil},

	// The cursor.
	{func(g *generator) { g.csi(g.place(g.rows)+";"+g.place(g.cols), one(g, "H", "H", "f")) }, 8, map[Profile]int{Editor: 14}},
	{func(g *generator) { g.csi(g.place(6), one(g, "A", "B", "C", "D", "E", "F", "a", "e")) }, 5, map[Profile]int{Editor: 8}},
	{func(g *generator) { g.csi(g.place(g.cols), one(g, "G", "`")) }, 2, nil},
	{func(g *generator) { g.csi(g.place(g.rows), "d") }, 2, nil},
	{func(g *generator) { g.csi(strconv.Itoa(g.cols), "G"); g.print("%s", g.words(2)) }, 2, nil}, // a pending wrap
	{func(g *generator) { g.print("%s", one(g, "\x1bD", "\x1bE", "\x1bM", "\u0084", "\u0085")) }, 3, map[Profile]int{Editor: 6}},
	{func(g *generator) {
		g.print("%s", one(g, "\x1b7", "\x1b8", "\x1b[s", "\x1b[u", "\x1b[?1048h", "\x1b[?1048l"))
	}, 2, map[Profile]int{Modal: 8}},
	{(*generator).tabs, 2, map[Profile]int{Modal: 4}},

	// Erasing and moving.
	{(*generator).erase, 3, map[Profile]int{Editor: 5}},
	{func(g *generator) { g.csi(g.count(), one(g, "@", "P", "X")) }, 3, map[Profile]int{Editor: 8, Wide: 5}},
	{func(g *generator) { g.csi(g.count(), one(g, "L", "M", "S", "T")) }, 3, map[Profile]int{Editor: 8}},
	{func(g *generator) { g.csi(g.count(), one(g, " @", " A", "'}", "'~")) }, 1, map[Profile]int{Editor: 4, Wide: 3}},
	{func(g *generator) { g.csi(g.place(g.rows)+one(g, ";"+g.place(g.rows), ""), "r") }, 2, map[Profile]int{Editor: 5, Text: 1, Reflow: 1}},
	{func(g *generator) {
		g.csi(strconv.Itoa(1+g.IntN(max(1, g.rows/2)))+";"+strconv.Itoa(g.rows-g.IntN(max(1, g.rows/2))), "r")
	}, 2, map[Profile]int{Editor: 5, Text: 1, Reflow: 1}},
	{func(g *generator) { g.csi(one(g, "0", "1", "2", "", "3"), `"q`) }, 1, nil}, // DECSCA
	// Under DECOM, DECALN of xterm.js fills lines behind the screen, because it counts them from
	// the region's top.
	{func(g *generator) { g.print("\x1b[?6l\x1b#8") }, 0, map[Profile]int{Modal: 1, Editor: 1}},

	// Styles.
	{(*generator).sgr, 8, map[Profile]int{Colours: 50}},
	{(*generator).link, 2, map[Profile]int{Colours: 12}},

	// Modes.
	{(*generator).mode, 3, map[Profile]int{Modal: 40, Text: 1, Reflow: 1}},
	{func(g *generator) { g.csi(one(g, "?1049", "?1047", "?47"), one(g, "h", "l")) }, 1, map[Profile]int{Modal: 5, Editor: 2}},
	{func(g *generator) { g.print("\x1b[?7h\x1b[4l") }, 1, nil}, // makes text wrap again
	{func(g *generator) { g.csi(strconv.Itoa(g.IntN(7)), " q") }, 1, nil},
	{(*generator).charset, 1, map[Profile]int{Modal: 10}},
	{func(g *generator) { g.print("%s", one(g, "\x1b=", "\x1b>")) }, 1, nil},
	{func(g *generator) { g.print("\x1b(B\x0f") }, 1, nil},
	{func(g *generator) { g.csi("", "!p") }, 0, map[Profile]int{Modal: 2, Garbage: 1}},
	{func(g *generator) { g.print("\x1bc") }, 0, map[Profile]int{Modal: 1, Garbage: 1}},

	// Strings.
	{(*generator).osc, 2, map[Profile]int{Modal: 6, Garbage: 6}},
	{func(g *generator) { g.csi(one(g, "22", "23")+one(g, "", ";0", ";1", ";2", ";3"), "t") }, 1, nil},
	{(*generator).text, 1, map[Profile]int{Garbage: 8}},

	// Questions, and sequences without a meaning.
	{(*generator).ask, 1, nil},
	{(*generator).unknown, 1, map[Profile]int{Garbage: 12}},
	{(*generator).unfinished, 1, map[Profile]int{Garbage: 12}},
	{(*generator).noise, 0, map[Profile]int{Garbage: 6}},

	{(*generator).resize, 0, map[Profile]int{Text: 1, Editor: 2, Wide: 2, Colours: 2, Modal: 2, Garbage: 1, Reflow: 12}},
}

func (g *generator) words(n int) string {
	var b strings.Builder
	for b.Len() < n {
		if g.chance(15) {
			b.WriteByte(' ')
		}
		b.WriteByte(byte('!' + g.IntN('~'-'!'+1)))
	}
	return b.String()
}

// glyphs begin a new cell; marks do not. A mark is not printed without a character before it:
// at a pending wrap it would move the cursor of xterm.js out of the line.
var (
	glyphs = []string{
		"漢", "字", "가", "あ", "中", "ｗ", "！", "Ａ", "，",
		"é", "ß", "Ж", "ж", "α", "─", "│", "█", "…", "€", "№", "±", "°", "①", "☺", "☃", "★", "\u00a0", "\u00ad", "\u3000", "\ufffd", "\ue0b0",
		"🎉", "😀", "👍", "🚀", "👩", "🏳", "⌚", "⏰", "❤", "☎", "©", "🇩", "🇪", "🇯", "🇵", "1", "a", "x", " ",
		"👨\u200d👩\u200d👧\u200d👦", "🏳\ufe0f\u200d🌈", "👍🏽", "🇩🇪", "1\ufe0f\u20e3", "❤\ufe0f", "☎\ufe0e",
		"e\u0301", "n\u0303", "漢\u0301", "ก\u0e33", "क\u094d\u0937", "\u1100\u1161\u11a8", "ᄀ", "𝒳", "\U0001f600\U0001f3fb", "\U000e0100",
	}
	marks = []string{"\u0301", "\u0308", "\u20dd", "\ufe0f", "\ufe0e", "\u200d", "\u200b", "\u200c", "\u2060", "\u0e33", "\u1161", "\u11a8", "\U0001f3fd", "\u0300\u0301\u0302"}
)

func (g *generator) unicode(n int) string {
	var b strings.Builder
	b.WriteString(one(g, "a", "漢", "🎉", "é"))
	for range n {
		if g.chance(20) {
			b.WriteString(one(g, marks...))
		} else {
			b.WriteString(one(g, glyphs...))
		}
	}
	return b.String()
}

// broken prints invalid UTF-8. Some of it is characters without their ends.
func (g *generator) broken() {
	whole := one(g, glyphs...)
	g.print("%s", one(g,
		"\xff", "\xfe\xff", "\x80", "\xbf\xbf", "\xc0\x80", "\xc3\x28", "\xe2\x28\xa1", "\xe2\x82\x28", "\xf0\x28\x8c\xbc", "\xf0\x90\x28\xbc",
		"\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xef\xbb\xbf", "\xef\xbf\xbf", "\xc3\x1b[m", "\xf0\x9f\r",
		whole[:g.IntN(len(whole))],
	))
	g.print("%s", g.words(1))
}

func (g *generator) c0() {
	if g.chance(60) {
		g.print("%s", one(g, "\n", "\r", "\b", "\t", "\r\n", "\b\b", "\v", "\f", "\t\t"))
		return
	}
	c := byte(g.IntN(0x20))
	if c == 0x1b { // ESC alone would change the meaning of the next bytes
		c = 0x7f
	}
	g.pending = append(g.pending, c)
}

func (g *generator) tabs() {
	switch g.IntN(6) {
	case 0:
		g.print("%s", one(g, "\x1bH", "\u0088"))
	case 1:
		g.csi(one(g, "", "0", "0", "3", "2", "1"), "g")
	case 2:
		g.csi(g.place(g.cols), "G")
		g.print("\x1bH")
	default:
		g.csi(g.count(), one(g, "I", "Z"))
	}
}

func (g *generator) erase() {
	how := one(g, "", "0", "1", "2", "0;1", "4")
	final := one(g, "K", "K", "J")
	if final == "J" {
		// In the last column, ED 1 of xterm.js clears the wrap mark of a line of the history, and
		// throws if there is none.
		if how == "1" {
			g.print("\r")
		}
		if how == "4" {
			how = "3"
		}
	}
	g.csi(one(g, "", "", "?")+how, final)
}

func (g *generator) colour() string {
	index := strconv.Itoa(g.IntN(260))
	rgb := []string{strconv.Itoa(g.IntN(256)), strconv.Itoa(g.IntN(256)), strconv.Itoa(g.IntN(300))}
	return one(g,
		"5;"+index, "5:"+index, ":5:"+index, "5::"+index,
		"2;"+strings.Join(rgb, ";"), "2:"+strings.Join(rgb, ":"), ":2:"+strings.Join(rgb, ":"), ":2::"+strings.Join(rgb, ":"), ":2:1:"+strings.Join(rgb, ":"),
		"2;"+rgb[0], "5", "", "3;1;2", ":2", ":5", "2;;;", "5;;1",
	)
}

func (g *generator) sgr() {
	var params []string
	for range 1 + g.IntN(4) {
		switch g.IntN(10) {
		case 0, 1:
			params = append(params, strconv.Itoa(30+g.IntN(8)+one(g, 0, 10, 60, 70)))
		case 2, 3:
			ground, c := one(g, "38", "48", "58"), g.colour()
			if !strings.HasPrefix(c, ":") {
				ground += ";"
			}
			params = append(params, ground+c)
		case 4:
			params = append(params, one(g, "4", "4:"+strconv.Itoa(g.IntN(8)), "21", "24", "59", "4:"))
		case 5, 6:
			params = append(params, strconv.Itoa(1+g.IntN(9)))
		case 7:
			params = append(params, strconv.Itoa(21+g.IntN(9)))
		case 8:
			params = append(params, one(g, "0", "", "39", "49", "53", "55", "100"))
		default:
			params = append(params, strconv.Itoa(g.IntN(120)))
		}
	}
	g.csi(strings.Join(params, ";"), "m")
}

func (g *generator) link() {
	id := one(g, "", "", "id=a", "id=b", "id=a:x=y", "x=y:id=c", "id=", "x")
	uri := one(g, "", "", "https://example.org/"+strconv.Itoa(g.IntN(5)), "file:///a;b", "x")
	g.print("\x1b]8;%s;%s%s", id, uri, g.terminator())
	if uri != "" && g.chance(70) {
		g.print("%s\x1b]8;;\x1b\\", g.words(1+g.IntN(10)))
	}
}

// Modes that xterm.js knows, and some that it does not know. 2027 is only in streams whose
// options ask for it, because a terminal with this mode measures text in another way
// afterwards.
var (
	privateModes = []int{1, 2, 3, 6, 7, 8, 9, 12, 25, 45, 47, 66, 67, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1048, 1049, 2004, 2026, 5, 40, 69, 1001, 1034, 2028, 99999}
	ansiModes    = []int{4, 4, 20, 2, 12, 3, 34}
)

func (g *generator) mode() {
	prefix, modes := "?", privateModes
	if g.chance(15) {
		prefix, modes = "", ansiModes
	} else if g.options.Graphemes && g.chance(30) {
		modes = []int{2027}
	}
	params := strconv.Itoa(one(g, modes...))
	for g.chance(15) {
		params += ";" + strconv.Itoa(one(g, modes...))
	}
	g.csi(prefix+params, one(g, "h", "l", "l"))
}

func (g *generator) charset() {
	if g.chance(30) {
		g.print("%s", one(g, "\x0e", "\x0f", "\x1bn", "\x1bo", "\x1b|", "\x1b}", "\x1b~", "\x1b%@", "\x1b%G"))
		return
	}
	designator := string("0ABCRQKYEZH=4567<UX"[g.IntN(19)])
	if g.chance(40) {
		designator = "0"
	}
	g.print("\x1b%s%s%s", one(g, "(", "(", ")", "*", "+", "-", ".", "/"), designator, "qx`lmjk")
}

// terminator returns the end of a string. Rarely, it is missing.
func (g *generator) terminator() string {
	if g.chance(10) {
		return one(g, "\x18", "\x1a", "\x1b[m", "\u009c", "\x1bX\x1b\\", "\x1b\x1b\\")
	}
	return one(g, "\a", "\x1b\\")
}

// terminate ends a sequence that may have begun.
func (g *generator) terminate() { g.print("%s", one(g, "\x18", "\x1a", "\x1b\\")) }

func (g *generator) osc() {
	title := one(g, "", "title", "a;b", "tïtle 漢🎉", "x\x01y\x7fz", "\xff\xc3", g.words(5), strings.Repeat("long ", 60))
	colour := one(g, "?", "#123456", "rgb:12/34/56", "#fff", "red", "rgb:1/2/3", "")
	index := strconv.Itoa(g.IntN(258))
	g.print("\x1b]%s%s", one(g,
		"0;"+title, "1;"+title, "2;"+title, "2;"+title, "2", "0", ";"+title, "3;"+title, "7;file:///tmp", "9;4;1;50", "133;A", "1337;x=y",
		"4;"+index+";"+colour, "4;"+index+";"+colour+";1;"+colour, "10;"+colour, "11;"+colour, "12;"+colour, "10;"+colour+";"+colour+";"+colour,
		"52;c;aGVsbG8=", "52;c;?", "104", "104;"+index, "104;1;2;x", "110", "111", "112", "x;"+title, "99999999999;y", "", "8", "8;", "8;;",
	), g.terminator())
}

func (g *generator) text() {
	g.print("\x1b%s", one(g, "P$q", "P1$r", "P", "P1;2|", "P+q", "Pq", "P1:2q", "P?1;2;3!x", "_", "_G", "^", "X", "P\x1b", "_\u009c"))
	g.print("%s%s", one(g, `"q`, `"p`, "r", "m", " q", "s", "", "payload 漢\xff", "a\x00\x01\nb", g.words(9)), g.terminator())
}

func (g *generator) ask() {
	g.csi(one(g, "5n", "6n", "?6n", "?15n", "?25n", "?26n", "?53n", "c", "0c", "1c", ">c", ">0c", "=c", "18t", "14t", "16t", "19t", "20t", "21t", "8;30;90t",
		"4$p", "20$p", "2$p", "?1$p", "?"+strconv.Itoa(one(g, privateModes...))+"$p", "?u", ">q"), "")
}

// unknown prints valid sequences without a meaning.
func (g *generator) unknown() {
	switch g.IntN(4) {
	case 0:
		g.print("\x1b%s%s", one(g, "", " ", "#", "%", "$", "&", "!!", "(%"), one(g, "1", "2", "3", "5", "6", "9", "F", "G", "l", "m", "Q", "z", "<", "?"))
	case 1: // known sequences with other prefixes
		g.csi(one(g, ">", "<", "=", "?", "?>", "!", "$", "*", "+", " ", "1?", ";?", "1 ")+one(g, "", "1", "4;2", "1;2;3"), string(rune('@'+g.IntN(63))))
	case 2:
		g.csi(one(g, ";", ";;", ":", "1;:", "::3", "1;2:3:4;5", strings.Repeat("1;", 40), strings.Repeat("4:", 40)+"1"), one(g, "m", "H", "m", "y", "h", "p", "o"))
	default:
		g.csi(g.place(10), one(g, "N", "O", "Q", "R", "U", "V", "W", "Y", "\\", "]", "^", "_", "i", "j", "k", "o", "p", "q", "v", "w", "x", "y", "z", "{", "|", "}", "~"))
	}
}

// unfinished prints the beginning of a sequence. The next piece must not begin with a digit,
// because it would extend a number in the sequence.
func (g *generator) unfinished() {
	g.print("%s", one(g, "\x1b", "\x1b[", "\x1b[1", "\x1b[1;", "\x1b[?", "\x1b[?2", "\x1b[4:", "\x1b[ ", "\x1b[>1;2", "\x1b(", "\x1b#", "\x1b]", "\x1b]0;half", "\x1b]8;;x", "\x1bP", "\x1bP1$", "\x1bP$qm", "\x1b_a", "\x1b^", "\u009b", "\u009d0;x", "\u0090q"))
	g.print("%s", one(g, "\x18", "\x1a", "\x1b[m", "\x1b\\", "\x1b[H", "\x1b]\a", "\u009bm", "\u009c", "\x18x", "\x1aX", "\x1b\x1b[m"))
	g.terminate()
}

// noise prints random bytes. Bytes that begin a sequence are more frequent.
func (g *generator) noise() {
	for range 1 + g.IntN(20) {
		b := byte(g.IntN(256))
		if g.chance(25) {
			b = one[byte](g, 0x1b, '[', ']', ';', '?', 'm', 'H', 'P', '\\', 0x9b, 0xc2, 0xe2, 0xf0, '\r', '\n')
		}
		g.pending = append(g.pending, b)
	}
	g.terminate()
}
