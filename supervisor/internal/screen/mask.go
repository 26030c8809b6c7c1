package screen

import (
	"bytes"
	"strconv"

	"holdfast/shared/escseq"
	"holdfast/shared/termmode"
)

// A Mask disables questions in the output, so that the terminal of a viewer does not answer them,
// because another viewer or the session answers. The length of the output does not change: the
// last byte of a question becomes CAN, so that the terminal drops the sequence.
//
// The questions are those that some terminal answers: those of xterm
// (invisible-island.net/xterm, "XTerm Control Sequences"), of kitty
// (sw.kovidgoyal.net/kitty/protocol-extensions) and of iTerm2
// (iterm2.com/documentation-escape-codes.html). The README of package vt lists them. C1 controls
// are recognised in their UTF-8 form (U+009B is CSI), which begins with the byte 0xc2. Their
// form of one byte is invalid UTF-8, which terminals drop.
//
// Some questions only the session may answer (isSessions): the mask hides them from every
// viewer. It also hides that mode 2048 is set, because the session reports its size, and a
// viewer's terminal would report another size as well.
//
// The zero value is between sequences.
type Mask struct {
	tokens     escseq.Tokenizer
	isEndFirst bool // the first byte of ST was replaced, and its second byte may follow
	chunks     bool // an image was hidden, and its data continues in further sequences
}

const (
	maxKept = 4096 // a sequence with a longer body is no question
	enq     = 0x05
)

// A finding is the kind of a sequence.
type finding byte

const (
	findNothing  finding = iota
	findQuestion         // a question
	findSessions         // a question that only the session may answer
	findSizeMode         // it sets mode 2048
)

// Apply disables questions in p, which must continue the bytes of the last call. foreign is
// called with the index in p of the last byte of each question. It must report whether another
// viewer or the session answers that question, so that it must be disabled.
func (m *Mask) Apply(p []byte, foreign func(i int) bool) {
	m.tokens.Room = maxKept
	hasENQ := bytes.IndexByte(p, enq) >= 0
	for i := 0; i < len(p); {
		if m.isEndFirst {
			m.isEndFirst = false
			if p[i] == '\\' {
				p[i] = 0
				i++
				continue
			}
		}
		tok := m.tokens.Next(p, i)
		i = tok.End
		if hasENQ && tok.Kind <= escseq.CSI {
			hideENQ(p, tok, foreign)
		}
		if tok.Final == 0 {
			continue
		}
		found, last := m.find(&tok), tok.End-1
		if tok.Final == escseq.ESC {
			last = tok.End
		}
		switch {
		case found == findSizeMode:
			m.hideSizeMode(p, last)
		case found == findSessions, found == findQuestion && foreign(last):
			m.isEndFirst = tok.Final == escseq.ESC
			with := byte(escseq.CAN)
			if tok.Kind == escseq.Escape && p[last] == 0x9a { // U+009A becomes U+0080, which has no effect
				with = 0x80
			}
			p[last] = with
			i = last + 1
		}
	}
}

// hideENQ disables ENQ, which is a question in text and within a sequence that is no string.
func hideENQ(p []byte, tok escseq.Token, foreign func(i int) bool) {
	for i := tok.Start; i < tok.End; i++ {
		n := bytes.IndexByte(p[i:tok.End], enq)
		if n < 0 {
			return
		}
		if i += n; foreign(i) {
			p[i] = 0
		}
	}
}

// Pass parses p, which must continue the bytes of the last call, for a viewer that answers the
// questions itself. It disables only the questions that the session alone answers.
func (m *Mask) Pass(p []byte) {
	if bytes.IndexByte(p, '?') >= 0 || bytes.IndexByte(p, '>') >= 0 { // each sequence of the session has one of them, and the parts begin with bytes that text has
		for _, part := range sessionsParts {
			if bytes.Contains(p, part) {
				m.Apply(p, notForeign)
				return
			}
		}
	}
	m.Follow(p)
}

func notForeign(int) bool { return false }

// Follow parses p, which must continue the bytes of the last call and complete no question. A snapshot is such
// output. It may end within a sequence that the output after it completes.
func (m *Mask) Follow(p []byte) {
	for len(p) > 0 && (m.isEndFirst || !m.tokens.IsBetween()) {
		m.Apply(p[:1], notForeign)
		p = p[1:]
	}
	if i := lastSequence(p); i >= 0 {
		m.Apply(p[i:], notForeign)
	}
}

// lastSequence returns an index in p, which must begin between sequences, from which on p must be parsed to learn in which sequence
// it ends, or -1 if it ends in none. ESC ends every earlier sequence. A C1 control does not, because a string may contain it.
func lastSequence(p []byte) int {
	if bytes.IndexByte(p, escseq.ESC) >= 0 { // which is many times as fast as LastIndexByte if there is none
		return bytes.LastIndexByte(p, escseq.ESC)
	}
	return bytes.IndexByte(p, escseq.C1Lead)
}

// find returns the kind of a sequence that has ended.
func (m *Mask) find(tok *escseq.Token) finding {
	body, question := m.tokens.Body(), false
	switch {
	case m.tokens.IsTooLong() && tok.Kind != escseq.APC:
	case tok.Kind == escseq.APC: // if a character cancels it, other terminals than xterm.js answer it nevertheless
		question = (tok.Complete || tok.Final == escseq.Character) && m.isGraphicsQuestion()
	case !tok.Complete:
	case tok.Kind == escseq.Escape: // DECID
		question = tok.Final == 'Z' && len(body) == 0
	case tok.Kind == escseq.CSI:
		return findCSI(body, tok.Final)
	case tok.Kind == escseq.OSC:
		if string(body) == asksProgramStatus {
			return findSessions
		}
		question = isOSCQuestion(body)
	case tok.Kind == escseq.DCS: // DECRQSS, XTGETTCAP, XTGETXRES
		question = bytes.HasPrefix(body, []byte("$q")) || bytes.HasPrefix(body, []byte("+q")) || bytes.HasPrefix(body, []byte("+Q"))
	}
	if question {
		return findQuestion
	}
	return findNothing
}

// isGraphicsQuestion reports whether a terminal answers the kitty graphics command that ends
// here. a=q asks whether the terminal knows the protocol. A command with an id is answered
// unless it has q=2. An image may come in several commands, of which the first has all keys.
// If the first command is disabled, the others must be disabled, too, because the terminal
// would otherwise take them for the beginning of another image.
func (m *Mask) isGraphicsQuestion() bool {
	keys, isGraphics := bytes.CutPrefix(m.tokens.Body(), []byte("G"))
	keys, _, hasData := bytes.Cut(keys, []byte(";"))
	if !isGraphics || m.tokens.IsTooLong() && !hasData {
		return false
	}
	action, quiet, more := "t", "", ""
	hasID, begins := false, false
	for pair := range bytes.SplitSeq(keys, []byte(",")) {
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

// isOSCQuestion reports whether an OSC with this text is a question.
func isOSCQuestion(text []byte) bool {
	number, arg, _ := bytes.Cut(text, []byte(";"))
	switch string(number) {
	case "0", "1", "2", "7", "8", "9", "66", "133", "633", "777": // they have texts, which may contain a "?"
		return false
	case "21": // kitty colours: key=? asks for a colour
		return bytes.Contains(arg, []byte("=?"))
	case "22", "50": // the pointer's shape, the font
		return bytes.HasPrefix(arg, []byte("?"))
	case "60", "61": // xterm: the allowed operations
		return true
	case "99": // kitty: supported features of notifications, and open notifications
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
	case "5522": // kitty's clipboard; writing is answered, too
		return true
	}
	return bytes.HasSuffix(text, []byte(";?")) || bytes.Contains(text, []byte(";?;"))
}

// findCSI returns the kind of a CSI sequence with these parameters, intermediates and final
// byte.
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

// isSessions reports whether only the session may answer a question. These are DECRQM of mode
// 69 (left and right margins: the core does not implement them, so a snapshot would show
// another screen), DECRQM of mode 2048 (reports of the size, which is the session's), and
// XTVERSION (programs would conclude from a viewer's name that there are margins).
func isSessions(params []byte, final byte) bool {
	switch final {
	case 'p':
		return string(params) == asksMargins || string(params) == asksSizeReports
	case 'q':
		return params[0] == '>' && len(bytes.Trim(params[1:], "0")) == 0
	}
	return false
}

var (
	sizeReports       = strconv.Itoa(termmode.SizeReports)
	asksSizeReports   = "?" + sizeReports + "$"
	asksProgramStatus = "7501;?"
	asksMargins       = "?" + strconv.Itoa(termmode.Margins) + "$"
)

// sessionsParts holds, for each sequence of the session, a part of it that is rare in other
// output.
var sessionsParts = [][]byte{[]byte(sizeReports), []byte(asksMargins[1:] + "p"), []byte(">q"), []byte("0q"), []byte(asksProgramStatus)}

func isSizeMode(param []byte) bool { return string(bytes.TrimLeft(param, "0")) == sizeReports }

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

// hideSizeMode changes the CSI that ends at p[i] so that it does not set mode 2048. If the CSI
// sets other modes as well, 2048 becomes 0, which is no mode. But if a part of the CSI was in
// output before p, it cannot be changed, and the viewer's terminal gets mode 2048.
func (m *Mask) hideSizeMode(p []byte, i int) {
	modes := bytes.TrimPrefix(m.tokens.Body(), []byte("?"))
	if isSizeMode(modes) {
		p[i] = escseq.CAN
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

// isQuestion reports whether a CSI sequence is a question. params are the bytes between ESC [
// and its final byte.
func isQuestion(params []byte, final byte) bool {
	prefix, last := byte(0), byte(0)
	if k := len(params); k > 0 {
		prefix, last = params[0], params[k-1]
	}
	switch final {
	case 'c': // DA1, DA2 (>), DA3 (=)
		return prefix != '?'
	case 'n': // DSR; with > the sequence sets key modifiers
		return prefix != '>'
	case 'p': // DECRQM
		return last == '$'
	case 'q': // XTVERSION; kitty's multiple cursors
		return prefix == '>'
	case 'u': // kitty keyboard flags, DECRQTSR, DECRQUPSS
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
