package vt

import (
	"encoding/hex"
	"strconv"
	"strings"

	"holdfast/shared/palette"
	"holdfast/shared/termmode"
)

// answerQuestion executes a control sequence that csi does not know: it answers a question of
// the program to the terminal, and ignores all other sequences.
func (t *Term) answerQuestion(seq uint32) {
	first := t.par.v[0]
	switch seq {
	case 'c': // DA1: a VT100 with advanced video, as in xterm.js
		switch {
		case first > 0:
		case t.showsSixels(): // as the addon of xterm.js: a VT220 with sixel, character sets and colours
			t.reply("\x1b[?62;4;9;22c")
		default:
			t.reply("\x1b[?1;2c")
		}
	case '>'<<8 | 'c': // DA2
		if first <= 0 {
			t.reply("\x1b[>0;276;0c")
		}
	case '='<<8 | 'c': // DA3
		if first <= 0 {
			t.reply("\x1bP!|00000000\x1b\\")
		}
	case 'n':
		switch first {
		case 5:
			t.reply("\x1b[0n")
		case 6:
			t.replyf("\x1b[%d;%dR", t.b.y+1, t.b.x+1)
		}
	case '?'<<8 | 'n':
		switch first {
		case 6:
			t.replyf("\x1b[?%d;%dR", t.b.y+1, t.b.x+1)
		case 996: // colour scheme (contour-terminal.org): 1 is dark, 2 is light
			t.replyf("\x1b[?997;%dn", 1+modeBit(t.appearance.light()))
		}
	case '>'<<8 | 'q': // XTVERSION
		if first == 0 {
			t.replyRequired("\x1bP>|%s\x1b\\", t.version())
		}
	case '$'<<8 | 'p':
		t.replyf("\x1b[%d;%d$y", first, t.modeState(ansiModes, first))
	case '?'<<16 | '$'<<8 | 'p':
		reply := t.replyf
		// If a viewer's terminal answered that it has left and right margins, programs would use
		// them, and the viewer would show another screen than this core.
		if first == termmode.Margins || first == termmode.SizeReports {
			reply = t.replyRequired
		}
		reply("\x1b[?%d;%d$y", first, t.modeState(privateModes, first))
	case '?'<<8 | 'm': // XTQMODKEYS; the core has only the resource 4
		if first == 4 {
			t.replyf("\x1b[>4;%dm", t.keyboard.ModifyOtherKeys)
		}
	case '?'<<8 | 'S':
		t.reportGraphics(first)
	case 'x': // DECREQTPARM
		if first <= 1 {
			t.replyf("\x1b[%d;1;1;128;128;1;0x", first+2)
		}
	}
}

// These are the states of a mode in DECRPM.
const (
	modeUnknown = iota
	modeSet
	modeReset
	modeAlwaysSet
	modeAlwaysReset
)

// modeState returns the state of mode n of one kind, as DECRPM reports it.
func (t *Term) modeState(known modeIndex, n int32) int {
	b := known.find(n)
	if b == nil || b == privateModes.find(termmode.Graphemes) && t.appearance.NoGraphemes && !t.modes.Graphemes {
		return modeUnknown
	}
	return b.report(t)
}

// dcs executes a device control string. All strings that the core knows are questions, except for
// sixels.
func (t *Term) dcs(seq uint32, p []byte) {
	if seq == 'q' {
		t.sixel(p)
		return
	}
	if t.replyLost {
		return
	}
	switch seq {
	case '$'<<8 | 'q':
		t.requestSetting(string(p))
	case '+'<<8 | 'q':
		t.requestCapabilities(string(p))
	}
}

// requestSetting answers DECRQSS.
func (t *Term) requestSetting(name string) {
	switch name {
	case `"q`:
		protected := 0
		if t.pen.bg&bgProtected != 0 {
			protected = 1
		}
		t.replyf("\x1bP1$r%d\"q\x1b\\", protected)
	case `"p`:
		t.reply("\x1bP1$r61;1\"p\x1b\\")
	case "r":
		t.replyf("\x1bP1$r%d;%dr\x1b\\", t.b.top+1, t.b.bot+1)
	case "m":
		// Neovim and Helix split the reply at semicolons, and know a colour only with colons in it.
		t.reply("\x1bP1$r" + string(appendSGR(nil, t.pen.visible(), ':')) + "m\x1b\\")
	case " q":
		style := t.modes.CursorStyle
		if style == 0 {
			style = 2 - modeBit(t.modes.CursorBlink)
		}
		t.replyf("\x1bP1$r%d q\x1b\\", style)
	default:
		t.reply("\x1bP0$r\x1b\\")
	}
}

func modeBit(on bool) int {
	if on {
		return 1
	}
	return 0
}

// requestCapabilities answers XTGETTCAP. Each name is in hexadecimal, and has its own answer.
func (t *Term) requestCapabilities(names string) {
	for i, name := range strings.Split(names, ";") {
		if i == maxParams {
			return
		}
		plain, err := hex.DecodeString(name)
		value := ""
		if err == nil {
			value = t.capability(string(plain))
		}
		if value == "" {
			t.reply("\x1bP0+r\x1b\\")
			continue
		}
		t.reply("\x1bP1+r" + name + "=" + hex.EncodeToString([]byte(value)) + "\x1b\\")
	}
}

func (t *Term) capability(name string) string {
	switch name {
	case "TN", "name":
		return "xterm-256color"
	case "Co", "colors":
		return "256"
	case "RGB":
		return "8"
	case "Ms": // OSC 52 sets the clipboard of the viewers
		return "\x1b]52;%p1%s;%p2%s\x07"
	case "cols", "co":
		return strconv.Itoa(t.cols)
	case "lines", "li":
		return strconv.Itoa(t.rows)
	}
	return ""
}

// reportColor answers a question for a colour as xterm does, with 16 bits for each part.
func (t *Term) reportColor(code string, n int) {
	c := t.color(n)
	t.replyf("\x1b]%s;rgb:%02[2]x%02[2]x/%02[3]x%02[3]x/%02[4]x%02[4]x\x1b\\", code, c>>16, c>>8&255, c&255)
}

// color returns the colour that the program has set, or the default colour.
func (t *Term) color(n int) uint32 {
	if c, ok := t.colors[n]; ok {
		return c
	}
	if n < foreground {
		return palette.RGB(n)
	}
	return t.appearance.color(n)
}
