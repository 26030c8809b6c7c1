package screen

import (
	"strings"
	"unicode/utf8"

	"holdfast/protocol"
)

// maxLine is how many characters of one line are kept.
const maxLine = protocol.MaxTailLine / utf8.UTFMax

// Plain returns the lines that data leaves on paper: escape sequences are
// taken out, carriage return, backspace and tab move within the line, and what
// is printed there again overwrites. Invalid UTF-8 becomes U+FFFD. Blanks at a
// line's end are cut, and empty lines at the end of all.
//
// The states are those of the DEC parser (vt100.net/emu/dec_ansi_parser), as
// far as skipping needs them.
func Plain(data []byte) []string {
	p := plain{}
	for len(data) > 0 {
		if p.state != ground || data[0] < 0x20 || data[0] == 0x7f {
			p.control(data[0])
			data = data[1:]
			continue
		}
		r, n := utf8.DecodeRune(data)
		p.print(r)
		data = data[n:]
	}
	p.newline()
	for len(p.lines) > 0 && p.lines[len(p.lines)-1] == "" {
		p.lines = p.lines[:len(p.lines)-1]
	}
	return p.lines
}

type parserState int

const (
	ground    parserState = iota
	escape                // after ESC
	nonPrint              // after ESC and an intermediate: one more byte ends it
	csi                   // after ESC [
	str                   // within OSC, DCS, APC, PM or SOS
	strEscape             // the same, after ESC
)

type plain struct {
	state parserState
	lines []string
	line  []rune
	col   int
	param int // the last CSI parameter
}

func (p *plain) control(b byte) {
	switch p.state {
	case escape:
		p.escape(b)
	case nonPrint:
		if b >= 0x30 {
			p.state = ground
		}
	case csi:
		p.csi(b)
	case str, strEscape:
		p.string(b)
	default:
		p.c0(b)
	}
}

func (p *plain) c0(b byte) {
	switch b {
	case 0x1b:
		p.state = escape
	case '\n', '\v', '\f':
		p.newline()
	case '\r':
		p.col = 0
	case '\b':
		p.col = max(0, p.col-1)
	case '\t':
		p.col = min(p.col/8*8+8, maxLine)
	}
}

func (p *plain) escape(b byte) {
	switch {
	case b == '[':
		p.state, p.param = csi, 0
	case b == ']' || b == 'P' || b == '^' || b == '_' || b == 'X':
		p.state = str
	case b >= 0x20 && b < 0x30:
		p.state = nonPrint
	case b == 0x1b:
	default:
		p.state = ground
	}
}

func (p *plain) csi(b byte) {
	switch {
	case b >= '0' && b <= '9':
		p.param = min(p.param*10+int(b-'0'), maxLine)
	case b == ';' || b == ':':
		p.param = 0
	case b == 0x1b:
		p.state = escape
	case b < 0x20:
		p.c0(b)
	case b >= 0x40:
		p.state = ground
		p.final(b)
	}
}

// final acts on the few sequences without which a prompt or a progress bar
// would leave rubbish behind.
func (p *plain) final(b byte) {
	switch b {
	case 'K':
		switch p.param {
		case 0:
			p.line = p.line[:min(p.col, len(p.line))]
		case 2:
			p.line = p.line[:0]
		}
	case 'C':
		p.col = min(p.col+max(1, p.param), maxLine)
	case 'D':
		p.col = max(0, p.col-max(1, p.param))
	case 'G':
		p.col = max(1, p.param) - 1
	case 'H', 'f': // somewhere else on the screen: another line of paper
		p.newline()
	}
}

func (p *plain) string(b byte) {
	switch {
	case b == 0x1b:
		p.state = strEscape
	case b == 0x07, p.state == strEscape && b == '\\', b == 0x18, b == 0x1a:
		p.state = ground
	case p.state == strEscape: // ESC ends a string, whatever follows it
		p.state = escape
		p.escape(b)
	}
}

func (p *plain) print(r rune) {
	if p.col >= maxLine {
		return
	}
	for len(p.line) < p.col {
		p.line = append(p.line, ' ')
	}
	if p.col < len(p.line) {
		p.line[p.col] = r
	} else {
		p.line = append(p.line, r)
	}
	p.col++
}

func (p *plain) newline() {
	p.lines = append(p.lines, strings.TrimRight(string(p.line), " "))
	p.line, p.col = p.line[:0], 0
}
