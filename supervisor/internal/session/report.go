package session

import (
	"bytes"
	"strconv"
	"strings"

	"holdfast/shared/escseq"
)

// isReport reports whether a terminal sends u by itself: focus, movements of the mouse, responses
// to queries. If a key has the form of a report (modified F3 looks like a cursor position), it
// counts as a report. The forms of reports are those of "XTerm Control Sequences"
// (invisible-island.net/xterm/ctlseqs).
func isReport(u *escseq.Input) bool {
	switch {
	case !u.Complete:
		return false
	case u.Mouse != nil:
		return isMotion(int(u.Mouse[0]) - 32)
	case u.Kind == escseq.OSC || u.Kind == escseq.DCS || u.Kind == escseq.APC: // colours, DECRQSS, XTVERSION, XTGETTCAP, graphics
		return true
	case u.Kind != escseq.CSI:
		return false
	case len(u.Body) == 0:
		return isFocus(u)
	}
	switch u.Body[0] {
	case '<': // the mouse: button, column, row
		return (u.Final == 'M' || u.Final == 'm') && isMotion(leadingNumber(u.Body[1:]))
	case '?', '>', '=':
		return true
	}
	return strings.IndexByte("Rntxy", u.Final) >= 0
}

// leadingNumber returns the number with which p begins. If it is greater than 255, the result is
// greater than 255.
func leadingNumber(p []byte) (n int) {
	for _, c := range p {
		if c < '0' || c > '9' || n > 255 {
			break
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// isMotion reports whether a button code means that the mouse moved without a pressed button.
func isMotion(button int) bool { return button&32 != 0 && button&3 == 3 && button&64 == 0 }

// isFocus reports whether u tells that the terminal has got or lost the focus.
func isFocus(u *escseq.Input) bool {
	return isCSI(u) && len(u.Body) == 0 && (u.Final == 'I' || u.Final == 'O')
}

// isDeviceAttributes reports whether u is a response to DA1 or DA2.
func isDeviceAttributes(u *escseq.Input) bool {
	return isCSI(u) && u.Final == 'c' && len(u.Body) > 0 && (u.Body[0] == '?' || u.Body[0] == '>')
}

// pasteFrame reports whether u begins or ends a pasted text.
func pasteFrame(u *escseq.Input) (begins, ends bool) {
	if !isCSI(u) || u.Final != '~' {
		return false, false
	}
	return string(u.Body) == "200", string(u.Body) == "201"
}

// isCSI reports whether u is a whole CSI sequence.
func isCSI(u *escseq.Input) bool { return u.Kind == escseq.CSI && u.Complete }

// maxKeyBody is the length of the longest parameters of a key.
const maxKeyBody = 30

// isKey reports whether u is the sequence of an arrow, a function key or the mouse, or a report
// without text. It returns false for a sequence that may stand for a character.
func isKey(u *escseq.Input) bool {
	if u.Kind == escseq.Escape && len(u.Body) > 0 { // SS3
		return u.Complete && strings.IndexByte("ABCDFHMPQRS", u.Final) >= 0
	}
	if !isCSI(u) || len(u.Body) > maxKeyBody {
		return false
	}
	first, _, _ := bytes.Cut(u.Body, []byte(";"))
	switch u.Final {
	case '~':
		return string(first) != "27" // modifyOtherKeys
	case 'u': // a key by its code, which may be that of a character
		code, err := strconv.Atoi(string(first))
		return err == nil && (code < ' ' || code == 0x7f) && bytes.Count(u.Body, []byte(";")) <= 1
	case 'M':
		return bytes.HasPrefix(u.Body, []byte("<"))
	}
	return strings.IndexByte("ABCDEFHIOPQRSZcmnty", u.Final) >= 0
}

// onlyReports reports whether p consists only of reports that a terminal sends by itself. Such
// input does not show that a person uses this viewer.
func onlyReports(p []byte) bool {
	for len(p) > 0 {
		u := escseq.NextInput(p)
		if !isReport(&u) {
			return false
		}
		p = p[u.Len:]
	}
	return true
}
