package vt

import (
	"encoding/hex"
	"strconv"
	"strings"

	"holdfast/shared/palette"
)

// question answers what a program asks the terminal by a control sequence.
func (t *Term) question(seq uint32) {
	first := t.par.v[0]
	switch seq {
	case 'c': // DA1: a VT100 with advanced video, as xterm.js
		if first <= 0 {
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
			t.replyf("\x1b[?997;%dn", 1+modeBit(t.look.light()))
		}
	case '>'<<8 | 'q': // XTVERSION
		if first == 0 {
			t.replyf("\x1bP>|%s\x1b\\", t.version())
		}
	case '$'<<8 | 'p':
		t.replyf("\x1b[%d;%d$y", first, t.ansiMode(int(first)))
	case '?'<<16 | '$'<<8 | 'p':
		reply := t.replyf
		// A terminal that has left and right margins would have programs use them,
		// and show another screen than this one keeps.
		if first == 69 || first == 2048 {
			reply = t.replyAlone
		}
		reply("\x1b[?%d;%d$y", first, t.privateMode(int(first)))
	case '?'<<8 | 'm': // XTQMODKEYS, of which we keep the resource 4
		if first == 4 {
			t.replyf("\x1b[>4;%dm", t.keyboard.ModifyOtherKeys)
		}
	case 'x': // DECREQTPARM
		if first <= 1 {
			t.replyf("\x1b[%d;1;1;128;128;1;0x", first+2)
		}
	}
}

// What DECRPM says of a mode.
const (
	modeUnknown = iota
	modeSet
	modeReset
	modeAlwaysSet
	modeAlwaysReset
)

func (t *Term) ansiMode(n int) int {
	switch n {
	case 2:
		return modeAlwaysReset
	case 4:
		return modeState(t.modes.Insert)
	case 12:
		return modeAlwaysSet
	case 20:
		return modeState(t.modes.NewLine)
	}
	return modeUnknown
}

func modeState(on bool) int {
	if on {
		return modeSet
	}
	return modeReset
}

func (t *Term) privateMode(n int) int {
	m := &t.modes
	switch n {
	case 8, 1048:
		if n == 8 {
			return modeAlwaysSet
		}
		return modeSet
	case 67, 1005, 1015:
		return modeAlwaysReset
	case 1:
		return modeState(m.ApplicationCursor)
	case 6:
		return modeState(m.Origin)
	case 7:
		return modeState(m.Wraparound)
	case 9:
		return modeState(m.Mouse == "X10")
	case 12:
		return modeState(m.CursorBlink)
	case 25:
		return modeState(!m.CursorHidden)
	case 45:
		return modeState(m.ReverseWrap)
	case 47, 1047, 1049:
		return modeState(t.b == &t.alt)
	case 66:
		return modeState(m.ApplicationKeypad)
	case 1000:
		return modeState(m.Mouse == "VT200")
	case 1002:
		return modeState(m.Mouse == "DRAG")
	case 1003:
		return modeState(m.Mouse == "ANY")
	case 1004:
		return modeState(m.Focus)
	case 1006:
		return modeState(m.MouseEncoding == "SGR")
	case 1007:
		return modeState(m.AlternateScroll == KnownSet)
	case 1016:
		return modeState(m.MouseEncoding == "SGR_PIXELS")
	case 2004:
		return modeState(m.BracketedPaste)
	case 2026:
		return modeState(m.Synchronized)
	case 2027:
		if t.look.NoGraphemes && !m.Graphemes {
			return modeUnknown
		}
		return modeState(m.Graphemes)
	case 2031:
		return modeState(m.ColorScheme)
	case 2048:
		return modeState(m.SizeReports)
	case 9001:
		return modeState(m.Win32Input)
	}
	return modeUnknown
}

// dcs carries out a device control string. Those we know are questions.
func (t *Term) dcs(seq uint32, p []byte) {
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

// requestSetting is DECRQSS.
func (t *Term) requestSetting(what string) {
	switch what {
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
		t.reply("\x1bP1$r" + string(appendSGR(nil, t.pen.visible())) + "m\x1b\\")
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

// requestCapabilities is XTGETTCAP: names in hexadecimal, answered one by one.
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

// tellColor answers a question for a colour as xterm does: 16 bits a part.
func (t *Term) tellColor(code string, n int) {
	c := t.color(n)
	t.replyf("\x1b]%s;rgb:%02[2]x%02[2]x/%02[3]x%02[3]x/%02[4]x%02[4]x\x1b\\", code, c>>16, c>>8&255, c&255)
}

// color returns what the program has set, or what it was before.
func (t *Term) color(n int) uint32 {
	if c, ok := t.colors[n]; ok {
		return c
	}
	if n < foreground {
		return palette.RGB(n)
	}
	return t.look.color(n)
}
