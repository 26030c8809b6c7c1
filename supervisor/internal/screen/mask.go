package screen

import (
	"bytes"
	"cmp"
)

// A Mask makes questions in output mean nothing, for a viewer whose terminal must
// not answer them because another viewer or the session does. No byte comes or
// goes: the last one of a question becomes a cancel, upon which a terminal drops
// the sequence.
//
// The questions are those that some terminal answers: those of xterm
// (invisible-island.net/xterm, "XTerm Control Sequences"), of kitty
// (sw.kovidgoyal.net/kitty/protocol-extensions) and of iTerm2
// (iterm2.com/documentation-escape-codes.html). protocol/SPEC.md lists them. C1
// controls count in their UTF-8 form (U+009B is CSI), which begins with the byte
// 0xc2. Their form of one byte is no UTF-8, which terminals drop.
//
// Some questions are the session's alone (isSessions): the mask hides them from
// every viewer. It also hides that mode 2048 is set, because the session reports
// its size, and a viewer's terminal would report another size as well.
//
// The states are those of the DEC parser (vt100.net/emu/dec_ansi_parser), as
// far as questions need them. The zero value stands in the ground state.
type Mask struct {
	state maskState
	lead  bool   // the byte before was 0xc2: the next one may make it a C1 control
	kept  []byte // of the sequence, without what introduces it; at most maxKept
	long  bool   // there was more
	room  int    // what kept may take; default maxKept

	chunks bool // an image was hidden whose data goes on in further sequences
}

type maskState byte

const (
	maskGround   maskState = iota
	maskEscape             // after ESC
	maskBetween            // after ESC and an intermediate: one more byte ends it
	maskCSI                // after CSI
	maskOSC                // within an OSC
	maskDCS                // within a DCS
	maskGraphics           // within the keys of a kitty graphics command, ESC _ G
	maskImage              // within the data behind these keys, which are kept
	maskAPC                // after APC
	maskString             // within a string of another kind
	maskST                 // after the ESC that ended a question: its backslash follows
)

const (
	maxKept = 4096 // a longer sequence is no question
	cancel  = 0x18
	enq     = 0x05
	bell    = 0x07
	esc     = 0x1b
	lead    = 0xc2 // the first byte of U+0080 to U+00BF
)

// A finding is what the mask has found at a byte.
type finding byte

const (
	findNothing  finding = iota
	findQuestion         // the byte ends a question
	findSessions         // the byte ends a question that is the session's alone
	findSizeMode         // the byte ends a CSI that sets mode 2048
	findDECID            // the byte ends U+009A
)

// Apply changes p, which continues what it was given before. foreign reports,
// for a question whose last byte has the index i in p, whether another viewer or
// the session answers it.
func (m *Mask) Apply(p []byte, foreign func(i int) bool) {
	for i := 0; i < len(p); i++ {
		if m.state == maskGround && !m.lead {
			n := bytes.IndexByte(p[i:], esc)
			if n < 0 {
				n = len(p) - i
			}
			if k := bytes.IndexByte(p[i:i+n], lead); k >= 0 {
				n = k
			}
			for k := i; k < i+n; k++ {
				j := bytes.IndexByte(p[k:i+n], enq)
				if j < 0 {
					break
				}
				if k += j; foreign(k) {
					p[k] = 0
				}
			}
			if i += n; i == len(p) {
				return
			}
		}
		switch found := m.next(p[i]); {
		case found == findSizeMode:
			m.hideSizeMode(p, i)
		case found == findSessions, found != findNothing && foreign(i):
			switch {
			case found == findDECID:
				p[i] = 0x80 // U+0080, which does nothing
				continue
			case p[i] == enq:
				p[i] = 0
				continue
			case p[i] == esc:
				m.state = maskST
			}
			p[i] = cancel
		case m.state == maskST:
			m.state = maskGround
			if p[i] == '\\' {
				p[i] = 0
			} else {
				i-- // no ST after all
			}
		}
	}
}

// Pass takes note of p, which continues what it was given before, for a viewer
// that answers all questions in it but those that are the session's alone.
func (m *Mask) Pass(p []byte) {
	own := func(int) bool { return false }
	if bytes.Contains(p, []byte("2048")) || bytes.Contains(p, []byte("69$p")) {
		m.Apply(p, own)
		return
	}
	// The end of a sequence at the beginning of p may make it one of the session's
	// questions. Of the others only the last one can go on behind p.
	for len(p) > 0 && m.state != maskGround {
		m.Apply(p[:1], own)
		p = p[1:]
	}
	if i := max(bytes.LastIndexByte(p, esc), bytes.LastIndexByte(p, lead)); i >= 0 {
		m.Apply(p[i:], own)
	}
}

// next takes one byte and returns what it ends. A question that ESC \ ends is
// found at the ESC.
func (m *Mask) next(b byte) finding {
	if m.state == maskST {
		return findNothing
	}
	if m.lead {
		m.lead = false
		if b >= 0x80 && b < 0xa0 {
			if k := len(m.kept); k > 0 && m.kept[k-1] == lead {
				m.kept = m.kept[:k-1]
			}
			return m.c1(b)
		}
	}
	switch {
	case b == cancel || b == 0x1a:
		m.state = maskGround
		return findNothing
	case b == esc:
		found := m.ends()
		m.enter(maskEscape)
		return found
	case b == lead:
		m.lead = true
	}
	switch m.state {
	case maskEscape:
		return m.escape(b)
	case maskBetween:
		if b >= 0x30 {
			m.state = maskGround
		}
	case maskCSI:
		switch {
		case b >= 0x40 && b <= 0x7e:
			m.state = maskGround
			if m.long {
				return findNothing
			}
			return findCSI(m.kept, b)
		case b >= 0x20 && b < 0x40:
			m.keep(b)
		case b == enq:
			return findQuestion
		}
	case maskAPC:
		if m.state = maskString; b == 'G' {
			m.state = maskGraphics
		}
	case maskGraphics:
		if b == ';' {
			m.state = maskImage
		} else {
			m.keep(b)
		}
	case maskOSC, maskDCS:
		if b == 0x07 && m.state == maskOSC {
			found := m.ends()
			m.state = maskGround
			return found
		}
		m.keep(b)
	}
	return findNothing
}

func (m *Mask) enter(s maskState) { m.state, m.kept, m.long = s, m.kept[:0], false }

func (m *Mask) keep(b byte) {
	if len(m.kept) >= cmp.Or(m.room, maxKept) {
		m.long = true
		return
	}
	m.kept = append(m.kept, b)
}

func (m *Mask) escape(b byte) finding {
	switch b {
	case '[', ']', 'P', 'X', '^', '_':
		m.introduce(b)
	case 'Z': // DECID
		m.state = maskGround
		return findQuestion
	default:
		switch {
		case b >= 0x20 && b < 0x30:
			m.state = maskBetween
		case b >= 0x30:
			m.state = maskGround
		}
	}
	return findNothing
}

// introduce enters the sequence that begins with ESC and b.
func (m *Mask) introduce(b byte) {
	switch b {
	case '[':
		m.enter(maskCSI)
	case ']':
		m.enter(maskOSC)
	case 'P':
		m.enter(maskDCS)
	case '_':
		m.enter(maskAPC)
	default:
		m.enter(maskString)
	}
}

// c1 takes the second byte of a C1 control, which ends the sequence it is in.
func (m *Mask) c1(b byte) finding {
	switch b {
	case 0x9c: // ST
		found := m.ends()
		m.state = maskGround
		return found
	case 0x90, 0x98, 0x9b, 0x9d, 0x9e, 0x9f:
		m.introduce(b - 0x40)
	case 0x9a:
		m.state = maskGround
		return findDECID
	default:
		m.state = maskGround
	}
	return findNothing
}

// ends returns what the string is that ends here.
func (m *Mask) ends() finding {
	question := false
	switch {
	case m.long:
	case m.state == maskOSC:
		question = isOSCQuestion(m.kept)
	case m.state == maskDCS: // DECRQSS, XTGETTCAP, XTGETXRES
		question = bytes.HasPrefix(m.kept, []byte("$q")) || bytes.HasPrefix(m.kept, []byte("+q")) || bytes.HasPrefix(m.kept, []byte("+Q"))
	case m.state == maskGraphics || m.state == maskImage:
		question = m.isGraphicsQuestion()
	}
	if question {
		return findQuestion
	}
	return findNothing
}

// isGraphicsQuestion reports whether a terminal answers the kitty graphics
// command that ends here: a=q asks whether it knows the protocol, and commands
// with an id are answered unless q=2 says otherwise. An image may come in
// several commands, of which the first has all keys; those that follow it share
// its fate, or the terminal would take them for the beginning of another image.
func (m *Mask) isGraphicsQuestion() bool {
	action, quiet, more := "t", "", ""
	hasID, begins := false, false
	for pair := range bytes.SplitSeq(m.kept, []byte(",")) {
		key, value, _ := bytes.Cut(pair, []byte("="))
		switch string(key) {
		case "a":
			action = string(value)
		case "q":
			quiet = string(value)
		case "m":
			more = string(value)
		case "i", "I":
			hasID = hasID || len(bytes.Trim(value, "0")) > 0
			begins = true
		case "":
		default:
			begins = true
		}
	}
	if m.chunks && !begins {
		m.chunks = more == "1"
		return true
	}
	question := action == "q" || hasID && quiet != "2" && action != "d"
	m.chunks = question && more == "1"
	return question
}

// isOSCQuestion reports whether an OSC asks for something, by its text.
func isOSCQuestion(text []byte) bool {
	number, arg, _ := bytes.Cut(text, []byte(";"))
	switch string(number) {
	case "0", "1", "2", "7", "8", "9", "66", "133", "633", "777": // texts, which may have a "?"
		return false
	case "21": // kitty: colours, key=? for each that is asked for
		return bytes.Contains(arg, []byte("=?"))
	case "22", "50": // the pointer's shape, the font
		return bytes.HasPrefix(arg, []byte("?"))
	case "60", "61": // xterm: what is allowed
		return true
	case "99": // kitty: what notifications can do, and which are there
		meta, _, _ := bytes.Cut(arg, []byte(";"))
		for pair := range bytes.SplitSeq(meta, []byte(":")) {
			if string(pair) == "p=?" || string(pair) == "p=alive" {
				return true
			}
		}
		return false
	case "1337":
		for _, name := range []string{"ReportCellSize", "ReportVariable=", "ReportDirectories", "Capabilities", "RequestUpload="} {
			if bytes.HasPrefix(arg, []byte(name)) {
				return true
			}
		}
		return false
	case "5522": // kitty: the clipboard; writing is answered, too
		return true
	}
	return bytes.HasSuffix(text, []byte(";?")) || bytes.Contains(text, []byte(";?;"))
}

// findCSI returns what a CSI sequence is, by its parameters and intermediates and
// its final byte.
func findCSI(params []byte, final byte) finding {
	switch {
	case final == 'h' && setsSizeMode(params):
		return findSizeMode
	case !isQuestion(params, final):
		return findNothing
	case isSessions(params, final):
		return findSessions
	}
	return findQuestion
}

// isSessions reports whether the session alone answers a question, because no
// viewer can: DECRQM of mode 69 (left and right margins, which the core does not
// keep, so that a snapshot would show another screen) and of mode 2048 (reports
// of the size, which is the session's).
func isSessions(params []byte, final byte) bool {
	return final == 'p' && (string(params) == "?69$" || string(params) == "?2048$")
}

func isSizeMode(param []byte) bool { return string(bytes.TrimLeft(param, "0")) == "2048" }

func setsSizeMode(params []byte) bool {
	modes, private := bytes.CutPrefix(params, []byte("?"))
	if private {
		for mode := range bytes.SplitSeq(modes, []byte(";")) {
			if isSizeMode(mode) {
				return true
			}
		}
	}
	return false
}

// hideSizeMode changes the CSI that ends at p[i] so that it does not set mode 2048.
// If it sets other modes as well, 2048 becomes 0, which is no mode; unless a
// part of it was in output before p: then the viewer's terminal has mode 2048.
func (m *Mask) hideSizeMode(p []byte, i int) {
	modes := bytes.TrimPrefix(m.kept, []byte("?"))
	if isSizeMode(modes) {
		p[i] = cancel
		return
	}
	first := i - len(modes)
	if first < 0 || !bytes.Equal(p[first:i], modes) {
		return
	}
	for mode := range bytes.SplitSeq(p[first:i], []byte(";")) {
		if isSizeMode(mode) {
			copy(mode, bytes.Repeat([]byte("0"), len(mode)))
		}
	}
}

// isQuestion reports whether a CSI sequence is one, by what stands between
// ESC [ and its final byte.
func isQuestion(params []byte, final byte) bool {
	prefix, last := byte(0), byte(0)
	if k := len(params); k > 0 {
		prefix, last = params[0], params[k-1]
	}
	switch final {
	case 'c': // DA1, DA2 (>), DA3 (=)
		return prefix != '?'
	case 'n': // DSR; with > it sets key modifiers
		return prefix != '>'
	case 'p': // DECRQM
		return last == '$'
	case 'q': // XTVERSION; kitty's multiple cursors
		return prefix == '>'
	case 'u': // kitty keyboard: what are the flags? DECRQTSR, DECRQUPSS
		return string(params) == "?" || last == '$' || last == '&'
	case 't': // reports of window and cell sizes, positions and titles
		ps, _, _ := bytes.Cut(params, []byte(";"))
		switch string(ps) {
		case "11", "13", "14", "15", "16", "18", "19", "20", "21":
			return true
		}
	case 'x': // DECREQTPARM
		return len(params) <= 1
	case 'w': // DECRQPSR
		return last == '$'
	case 'y': // DECRQCRA
		return last == '*'
	case 'S': // XTSMGRAPHICS, XTTITLEPOS
		return prefix == '?' || last == '#'
	case 'm', 'g': // XTQMODKEYS, XTQFMTKEYS
		return prefix == '?'
	case 'v': // DECRQDE
		return last == '"'
	case '|': // DECRQLP, XTREPORTSGR
		return last == '\'' || last == '#'
	case 'R': // XTREPORTCOLORS
		return last == '#'
	}
	return false
}
