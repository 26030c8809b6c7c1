package vttest

import (
	"bytes"
	"fmt"
	"strings"
)

// hostileBytes is the length of a hostile input. An input may be longer by a page.
const hostileBytes = 1 << 20

// Hostile is a list of inputs that should keep a terminal of 80x24, or a larger one, busy, or make it hold much
// memory.
var Hostile = []Input{
	// Styles.
	{"every byte a new look", numbered("", "\x1b[38;2;%d;%d;%dmx", func(i int) []any { return []any{i & 255, i >> 8 & 255, i >> 16} })},
	{"every byte a new look and background", numbered("", "\x1b[38;2;%d;%d;%d;48;2;%[2]d;%[3]d;%[1]dmx", func(i int) []any { return []any{i & 255, i >> 8 & 255, i >> 16} })},
	{"two looks in turn", repeated("", "\x1b[31mx\x1b[32my")},
	{"SGR of 32 parameters", repeated("", "\x1b[1;2;3;4;5;7;8;9;21;22;23;24;25;27;28;29;30;31;32;33;34;35;36;37;38;5;9;39;40;41;42;43mx")},
	{"SGR of 32 sub-parameters", repeated("", "\x1b[4:3;38:2::1:2:3;48:2::4:5:6;58:2::7:8:9;38:5:1;48:5:2;58:5:3;4:0mx")},
	{"SGR and no text", repeated("", "\x1b[31m\x1b[42m\x1b[m")},
	{"links with ever new ids", numbered("", "\x1b]8;id=%d;http://x/\x1b\\x", index)},
	{"links with ever new URIs", numbered("", "\x1b]8;;http://x/%d\x1b\\x\x1b]8;;\x1b\\", index)},
	{"links with long URIs", numbered("", "\x1b]8;;http://x/%d/"+strings.Repeat("a", 2000)+"\ax", index)},

	// Whole screens.
	{"DECALN", repeated("", "\x1b#8")},
	{"DECALN in colour", repeated("", "\x1b[31m\x1b#8\x1b[32m\x1b#8")},
	{"DECALN and a character", repeated("", "\x1b#8\x1b[31mx")},
	{"ED 2", repeated("", "\x1b[2J")},
	{"ED 2 of full rows", repeated("", "\x1b#8\x1b[2J")},
	{"ED 2 in colour", repeated("\x1b[41m", "\x1b[2Jx")},
	{"ED 0 and 1", repeated(wide, "\x1b[12;40H\x1b[J\x1b[1J")},
	{"ED 3", repeated("", "x\n\x1b[3J")},
	{"selective erase", repeated("\x1b[1\"q"+wide, "\x1b[?2J\x1b[?2K")},
	{"selective erase in colour", repeated("\x1b[1\"q"+wide, "\x1b[41m\x1b[?2J\x1b[42m\x1b[?2K")},
	{"selective erase of parts", repeated("\x1b[1\"q"+wide, "\x1b[12;40H\x1b[?J\x1b[?1J")},
	{"ED 2 in two colours", repeated("", "\x1b[41m\x1b[2J\x1b[42m\x1b[2J")},
	{"DECALN and ED 0 in colour", repeated("", "\x1b[m\x1b#8\x1b[12H\x1b[41m\x1b[J")},
	{"DECALN and IL in colour", repeated("", "\x1b[m\x1b#8\x1b[41m\x1b[7L")},
	{"DECALN, SU and SD", repeated("", "\x1b#8\x1b[9S\x1b[9T")},
	{"DECALN and DECIC", repeated("", "\x1b#8\x1b['}")},
	{"?1049", repeated(wide, "\x1b[?1049h\x1b[?1049l")},
	{"?1049 and text", repeated(wide, "\x1b[?1049hx\x1b[?1049lx")},
	{"?47", repeated(wide, "\x1b[?47h\x1b[?47l")},
	{"RIS", repeated("", "\x1bc")},
	{"RIS of a screen in use", repeated("", "\x1bcx\x1b[?1049hy")},
	{"DECSTR", repeated("", "\x1b[!p")},

	// Scrolling.
	{"LF", repeated("", "\n")},
	{"LF behind a region", repeated("\x1b[1;12r\x1b[12H", "\n")},
	{"LF in colour", repeated("\x1b[41m", "\n")},
	{"LF of coloured full rows", repeated("", "\x1b[31m"+strings.Repeat("x", 80)+"\x1b[41m\n")},
	{"RI", repeated("", "\x1bM")},
	{"RI in a new region", repeated(colorful, "\x1b[;r\x1bM")},
	{"IND and RI", repeated("", "\x1b[24H\x1bD\x1b[H\x1bM")},
	{"a new region for each line", numbered("", "\x1b[%d;%dry\r\n", func(i int) []any { return []any{1 + i%11, 13 + i%11} })},
	{"IL and DL", repeated(colorful, "\x1b[L\x1b[M")},
	{"SU and SD", repeated(colorful, "\x1b[S\x1b[T")},
	{"SU of huge counts", repeated(colorful, "\x1b[2147483647S")},
	{"SD of huge counts", repeated(colorful, "\x1b[2147483647T")},
	{"IL of huge counts", repeated(colorful, "\x1b[2147483647L")},
	{"DL of huge counts", repeated(colorful, "\x1b[2147483647M")},

	// Changes within rows.
	{"ICH", repeated(colorful, "\x1b[@")},
	{"DCH", repeated(colorful, "\x1b[P")},
	{"ICH of wide rows", repeated(wide, "\x1b[@")},
	{"DCH of wide rows", repeated(wide, "\x1b[P")},
	{"ICH of huge counts", repeated(wide, "\x1b[2147483647@")},
	{"DCH of huge counts", repeated(wide, "\x1b[2147483647P")},
	{"ECH of huge counts", repeated(wide, "\x1b[2147483647X")},
	{"insert mode", repeated("\x1b[4h", "x\r")},
	{"insert mode in wide rows", repeated(wide+"\x1b[4h", "你\r")},
	{"insert mode in colour", repeated("\x1b[4h", "\x1b[31mx\x1b[32my\r")},
	{"DECIC", repeated("", "\x1b['}")},
	{"DECIC of coloured rows", repeated(colorful, "\x1b['}")},
	{"DECDC of coloured rows", repeated(colorful, "\x1b['~")},
	{"DECIC and DECDC of wide rows", repeated(wide, "\x1b['}\x1b['~")},
	{"SL and SR", repeated(colorful, "\x1b[ @\x1b[ A")},
	{"SL and SR of wide rows", repeated(wide, "\x1b[ @\x1b[ A")},
	{"DECIC and DECDC of some rows", repeated(colorful, "\x1b[;9r\x1b['}\x1b[;19r\x1b['~")},
	{"EL", repeated(colorful, "\x1b[K\x1b[1K")},
	{"EL behind changing rows", repeated("", "\x1b[31mxxxx\r\x1b[3C\x1b[32my\x1b[1K")},
	{"ECH", repeated("\x1b[41m", strings.Repeat("x", 80)+"\r\x1b[10C\x1b[5X")},
	{"overwritten with another look", repeated("", "\r\x1b[31mxx\x1b[2D\x1b[32my")},
	{"overwritten rows with another look", repeated("", "\x1b[H\x1b[31mx\x1b[B\x1b[32my\x1b[A\x1b[Ky")},
	{"two looks in a sparse row", repeated("", "\x1b[31m\x1b[9999Gx\x1b[32m\x1b[Gx\r\n")},
	{"columns inserted in a sparse row", repeated("", "\x1b[9999Gx\r\x1b[@\n")},
	{"a mark in the last column", repeated("", "\x1b[9999G\u0301e\u0301\n")},
	{"halves of wide characters erased", repeated(wide, "\x1b[2G\x1b[X你\x1b[3Gx\x1b[2D")},
	{"wide characters at the last column", repeated("", "\x1b[80G你\r")},
	{"wide characters without a wrap", repeated("\x1b[?7l", "\x1b[80G你你你")},
	{"backspaces with reverse wrap", repeated(strings.Repeat("x", 300)+"\x1b[?45h", strings.Repeat("\b", 300)+strings.Repeat("x", 300))},

	// Characters.
	{"marks without end", repeated("e", "\u0301")},
	{"marks on wide characters", repeated("", "你\u0301\u0302")},
	{"ever new clusters", clusters("")},
	{"ever new clusters under 2027", clusters("\x1b[?2027h")},
	{"marks under 2027", repeated("\x1b[?2027he", "\u0301")},
	{"emoji", repeated("", "👨‍👩‍👧‍👦")},
	{"emoji under 2027", repeated("\x1b[?2027h", "👨‍👩‍👧‍👦")},
	{"joiners under 2027", repeated("\x1b[?2027h👨", "\u200d👩")},
	{"flags under 2027", repeated("\x1b[?2027h", "🇫🇷🇯")},
	{"text under 2027", repeated("\x1b[?2027h", "plain text and 你好 ")},
	{"wide characters and letters", repeated("", "你x")},
	{"four bytes each", repeated("", "\U0001f600\U00020000")},
	{"no UTF-8", repeated("", "\xff\xfe\x80\xc0\xaf")},
	{"cut UTF-8", repeated("", "\xe4\xbd\xf0\x9f\x98a\xc3")},
	{"overlong UTF-8", repeated("", "\xe0\x80\xaf\xf0\x80\x80\xaf\xed\xa0\x80")},
	{"DEC graphics", repeated("\x1b(0", "lqqqk\r")},
	{"character sets in turn", repeated("\x1b)0", "x\x0ex\x0f")},
	{"national character sets", repeated("", "\x1b(A#\x1b(K[\x1b(B")},

	// REP, tabs and moves.
	{"REP", repeated("", "x\x1b[b")},
	{"REP of huge counts", repeated("", "x\x1b[2147483647b")},
	{"REP of huge counts of wide characters", repeated("", "你\x1b[2147483647b")},
	{"REP of huge counts of marked characters", repeated("", "e\u0301\x1b[2147483647b")},
	{"REP of huge counts of wide characters in insert mode", repeated("\x1b[4h", "你\x1b[2147483647b")},
	{"REP of huge counts in colour", repeated("", "\x1b[31mx\x1b[2147483647b\x1b[32my\x1b[2147483647b")},
	{"REP of huge counts of DEC graphics", repeated("\x1b(0", "x\x1b[2147483647b")},
	{"REP of huge counts of clusters", repeated("\x1b[?2027h", "🇫🇷\x1b[2147483647b")},
	{"tabs", repeated("", "\t\t\t\t\t\t\t\t\t\t\r")},
	{"tabs without stops", repeated("\x1b[3g", "\t\r")},
	{"tab stops set and cleared", repeated("", "\x1bH\x1b[g \x1b[3g")},
	{"CHT and CBT", repeated("", "\x1b[2147483647I\x1b[2147483647Z")},
	{"CHT and CBT without stops", repeated("\x1b[3g", "\x1b[2147483647I\x1b[2147483647Z")},
	{"CUP", repeated("", "\x1b[24;80H\x1b[H")},
	{"CUP and text", numbered("", "\x1b[%d;%dHx", func(i int) []any { return []any{1 + i%24, 1 + i*7%80} })},
	{"CUP and text in colour", numbered("", "\x1b[%d;%dH\x1b[3%dmx", func(i int) []any { return []any{1 + i%24, 1 + i*7%80, i % 8} })},
	{"moves of huge counts", repeated("", "\x1b[2147483647A\x1b[2147483647B\x1b[2147483647C\x1b[2147483647D")},
	{"DECSC and DECRC", repeated("\x1b[31m", "\x1b7\x1b8")},
	{"DECSC and DECRC of looks", repeated("", "\x1b[31m\x1b7\x1b[32m\x1b8")},

	// Strings, and sequences without end.
	{"OSC without end", repeated("\x1b]0;", "x")},
	{"DCS without end", repeated("\x1bPq", "x")},
	{"APC without end", repeated("\x1b_G", "x")},
	{"OSC without end, not ASCII", repeated("\x1b]0;", "你")},
	{"OSC of 60 KB", repeated("", "\x1b]0;"+strings.Repeat("x", 60<<10)+"\a")},
	{"sixels", repeated("", "\x1bPq#0;2;0;0;0#0~~@@vv@@~~@@~~$-\x1b\\")},
	{"titles", numbered("", "\x1b]2;title %d\a", index)},
	{"the stack of titles", repeated("\x1b]2;"+strings.Repeat("x", 4000)+"\a", "\x1b[22t")},
	{"working directories", numbered("", "\x1b]7;file://host/dir/%d\a", index)},
	{"palette", numbered("", "\x1b]4;%d;rgb:12/34/56\a", func(i int) []any { return []any{i & 255} })},
	{"notifications and bells", repeated("", "\x1b]9;text\a\a")},
	{"marks of a shell", repeated("", "\x1b]133;A\a\x1b]133;C\a\x1b]133;D;1\a")},
	{"marks of a shell in a line of many rows", repeated(wide, "\x1b]133;C\a")},
	{"CSI without end", repeated("\x1b[", "1")},
	{"CSI of semicolons", repeated("\x1b[", ";")},
	{"CSI of colons", repeated("\x1b[", "1:")},
	{"CSI of 1000 digits", repeated("", "\x1b["+strings.Repeat("9", 1000)+"m")},
	{"CSI of 1000 parameters", repeated("", "\x1b["+strings.Repeat("1;", 1000)+"m")},
	{"CSI with intermediates", repeated("", "\x1b[1 q\x1b[0\"q\x1b[!x")},
	{"CSI that nobody knows", repeated("", "\x1b[?1;2;3$~\x1b[>y\x1b[5i")},
	{"CSI with controls within", repeated("", "\x1b[3\r1m\x1b[\n3m")},
	{"CSI aborted", repeated("", "\x1b[1\x18\x1b[1\x1b[1\x1a")},
	{"ESC", repeated("", "\x1b")},
	{"ESC with intermediates", repeated("\x1b", " ")},
	{"C1 in 8 bits", repeated("", "\u009b31mx\u0085\u009d2;t\u009c")},
	{"controls", repeated("", "\x00\x01\x05\x0b\x0c\x11\x7f")},
	{"modes", repeated("", "\x1b[?1;6;7;25;1000;1006;2004;2026h\x1b[?1;6;7;25;1000;1006;2004;2026l")},
	{"kitty flags", repeated("", "\x1b[>1u\x1b[=3;2u\x1b[<u")},

	// Questions whose answers are not read.
	{"DSR and DA", repeated("", "\x1b[6n\x1b[c\x1b[>c\x1b[5n")},
	{"DECRQM", repeated("", "\x1b[?2026$p\x1b[4$p")},
	{"DECRQSS", repeated("", "\x1bP$qm\x1b\\\x1bP$qr\x1b\\")},
	{"DECRQSS of a long look", repeated("\x1b[1;2;3;4:3;5;7;8;9;53;38;2;100;100;100;48;2;200;200;200;58;2;1;2;3m", "\x1bP$qm\x1b\\")},
	{"questions of colours", repeated("", "\x1b]10;?\a\x1b]11;?\a\x1b]4;7;?\a")},
	{"XTGETTCAP", repeated("", "\x1bP+q544e;436f\x1b\\")},
	{"XTVERSION and kitty", repeated("", "\x1b[>q\x1b[?u\x1b[18t")},
}

var (
	// colorful fills a screen of up to 300x100 with rows that are in cell form, because each column has another
	// colour than the one before.
	colorful = "\x1b[H" + strings.Repeat("\x1b[31ma\x1b[32mb\x1b[33mc\x1b[34md\x1b[45me\x1b[46mf\x1b[47mg\x1b[mh", 300*100/8) + "\x1b[12;20H"

	// wide fills such a screen with wide characters.
	wide = "\x1b[H" + strings.Repeat("你好世界终端屏幕", 300*100/16) + "\x1b[12;20H"
)

// repeated returns start, followed by unit until the input is long enough.
func repeated(start, unit string) func() []byte {
	return func() []byte {
		b := make([]byte, 0, len(start)+hostileBytes+len(unit))
		b = append(b, start...)
		return append(b, strings.Repeat(unit, hostileBytes/len(unit)+1)...)
	}
}

// numbered returns start, followed by format until the input is long enough. of returns the
// arguments of format for the i-th time.
func numbered(start, format string, of func(i int) []any) func() []byte {
	return func() []byte {
		var b bytes.Buffer
		b.WriteString(start)
		for i := 0; b.Len() < hostileBytes; i++ {
			fmt.Fprintf(&b, format, of(i)...)
		}
		return b.Bytes()
	}
}

func index(i int) []any { return []any{i} }

// clusters returns different letters with combining marks.
func clusters(start string) func() []byte {
	return func() []byte {
		b := []byte(start)
		for i := 0; len(b) < hostileBytes; i++ {
			b = append(b, byte('a'+i%26))
			for n := i / 26; n > 0; n /= 112 {
				b = append(b, string(rune(0x300+n%112))...)
			}
		}
		return b
	}
}
