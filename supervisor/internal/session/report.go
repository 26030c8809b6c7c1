package session

import (
	"bytes"
	"strings"
)

// onlyReports reports whether all of p is what a terminal sends by itself:
// focus, the mouse's movements, answers to questions. Nobody has typed then.
// What looks like a report and is a key (modified F3 is one that tells where
// the cursor is) counts as a report; the key after it does not.
func onlyReports(p []byte) bool {
	for len(p) > 0 {
		n := reportLen(p)
		if n == 0 {
			return false
		}
		p = p[n:]
	}
	return true
}

// reportLen returns the length of the report that p begins with, 0 if it does
// not. Their forms are those of "XTerm Control Sequences"
// (invisible-island.net/xterm/ctlseqs).
func reportLen(p []byte) int {
	if len(p) < 3 || p[0] != esc {
		return 0
	}
	switch p[1] {
	case ']', 'P', '_': // colours, DECRQSS, XTVERSION, XTGETTCAP, graphics
		return stringLen(p)
	case '[':
		return csiReportLen(p)
	}
	return 0
}

const (
	esc = 0x1b
	bel = 0x07
)

// stringLen is the length of a control string with its end, BEL or ST.
func stringLen(p []byte) int {
	end := bytes.IndexAny(p[2:], "\a\x1b")
	switch i := end + 2; {
	case end < 0:
	case p[i] == bel:
		return i + 1
	case i+1 < len(p) && p[i+1] == '\\':
		return i + 2
	}
	return 0
}

func csiReportLen(p []byte) int {
	if p[2] == 'M' { // the mouse, in three bytes
		if len(p) >= 6 && isMotion(int(p[3])-32) {
			return 6
		}
		return 0
	}
	i := 2
	for i < len(p) && p[i] >= 0x20 && p[i] < 0x40 {
		i++
	}
	if i == len(p) {
		return 0
	}
	params, final := p[2:i], p[i]
	report := false
	switch {
	case len(params) == 0:
		report = final == 'I' || final == 'O'
	case params[0] == '<': // the mouse: button, column, row
		button := 0
		for _, c := range params[1:] {
			if c < '0' || c > '9' || button > 255 {
				break
			}
			button = 10*button + int(c-'0')
		}
		report = (final == 'M' || final == 'm') && isMotion(button)
	case params[0] == '?' || params[0] == '>' || params[0] == '=':
		report = true
	default:
		report = strings.IndexByte("Rntxy", final) >= 0
	}
	if !report {
		return 0
	}
	return i + 1
}

// isMotion reports whether a button's code means that the mouse moved without
// one.
func isMotion(button int) bool { return button&32 != 0 && button&3 == 3 && button&64 == 0 }
