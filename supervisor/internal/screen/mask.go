package screen

import "bytes"

// A Mask takes the questions out of output, for a viewer whose terminal must
// not answer them because somebody else does. No byte comes or goes: the last
// one of a question becomes a cancel, upon which a terminal drops the sequence.
//
// The questions are those that xterm answers (invisible-island.net/xterm,
// "XTerm Control Sequences"): ENQ, DA1 to DA3, DSR, DECRQM, XTVERSION, window
// reports, kitty's keyboard query, DECRQSS, XTGETTCAP, and OSC with "?".
//
// The states are those of the DEC parser (vt100.net/emu/dec_ansi_parser), as
// far as questions need them. The zero value stands in the ground state.
type Mask struct {
	state maskState
	kept  []byte // of the sequence, without what introduces it; at most maxKept
	long  bool   // there was more
}

type maskState byte

const (
	maskGround  maskState = iota
	maskEscape            // after ESC
	maskBetween           // after ESC and an intermediate: one more byte ends it
	maskCSI               // after ESC [
	maskOSC               // within ESC ]
	maskDCS               // within ESC P
	maskString            // within a string of another kind
	maskST                // after the ESC that ended a question: what follows is its backslash
)

const (
	maxKept = 4096 // a longer sequence is no question
	cancel  = 0x18
	enq     = 0x05
	esc     = 0x1b
)

// Apply changes p, which continues what it was given before. foreign says of a
// question, by the index in p of its last byte, whether somebody else answers
// it.
func (m *Mask) Apply(p []byte, foreign func(i int) bool) {
	for i := 0; i < len(p); i++ {
		if m.state == maskGround {
			n := bytes.IndexByte(p[i:], esc)
			if n < 0 {
				n = len(p) - i
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
		if m.next(p[i]) && foreign(i) {
			switch p[i] {
			case enq:
				p[i] = 0
				continue
			case esc:
				m.state = maskST
			}
			p[i] = cancel
		} else if m.state == maskST {
			m.state = maskGround
			if p[i] == '\\' {
				p[i] = 0
			} else {
				i-- // no ST after all
			}
		}
	}
}

// Pass takes note of p, which continues what it was given before, and changes
// nothing. Only what begins with the last escape can go on behind p.
func (m *Mask) Pass(p []byte) {
	if i := bytes.LastIndexByte(p, esc); i >= 0 {
		m.state = maskGround
		p = p[i:]
	}
	if m.state != maskGround || len(p) > 0 && p[0] == esc {
		m.Apply(p, func(int) bool { return false })
	}
}

// next takes one byte and reports whether it is the last one of a question; of
// one that ST ends, that is the ESC.
func (m *Mask) next(b byte) (question bool) {
	if m.state == maskST {
		return false
	}
	switch {
	case b == cancel || b == 0x1a:
		m.state = maskGround
		return false
	case b == esc:
		question = m.ends()
		m.enter(maskEscape)
		return question
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
			return !m.long && isQuestion(m.kept, b)
		case b >= 0x20 && b < 0x40:
			m.keep(b)
		case b == enq:
			return true
		}
	case maskOSC, maskDCS, maskString:
		if b == 0x07 && m.state == maskOSC {
			question = m.ends()
			m.state = maskGround
			return question
		}
		m.keep(b)
	}
	return false
}

func (m *Mask) enter(s maskState) { m.state, m.kept, m.long = s, m.kept[:0], false }

func (m *Mask) keep(b byte) {
	if len(m.kept) == maxKept {
		m.long = true
		return
	}
	m.kept = append(m.kept, b)
}

func (m *Mask) escape(b byte) (question bool) {
	switch b {
	case '[':
		m.enter(maskCSI)
	case ']':
		m.enter(maskOSC)
	case 'P':
		m.enter(maskDCS)
	case 'X', '^', '_':
		m.enter(maskString)
	case 'Z': // DECID
		m.state = maskGround
		return true
	default:
		switch {
		case b >= 0x20 && b < 0x30:
			m.state = maskBetween
		case b >= 0x30:
			m.state = maskGround
		}
	}
	return false
}

// ends reports whether the string that ends here is a question.
func (m *Mask) ends() bool {
	switch {
	case m.long:
		return false
	case m.state == maskOSC:
		return bytes.HasSuffix(m.kept, []byte(";?")) || bytes.Contains(m.kept, []byte(";?;"))
	case m.state == maskDCS:
		return bytes.HasPrefix(m.kept, []byte("$q")) || bytes.HasPrefix(m.kept, []byte("+q"))
	}
	return false
}

// isQuestion reports whether a CSI sequence is one, by what stands between
// ESC [ and its final byte.
func isQuestion(params []byte, final byte) bool {
	switch final {
	case 'c': // DA1, DA2 (>), DA3 (=)
		return len(params) == 0 || params[0] != '?'
	case 'n': // DSR; with > it sets key modifiers
		return len(params) == 0 || params[0] != '>'
	case 'p': // DECRQM
		return bytes.HasSuffix(params, []byte("$"))
	case 'q': // XTVERSION
		return len(params) > 0 && params[0] == '>'
	case 'u': // kitty keyboard: what are the flags?
		return bytes.Equal(params, []byte("?"))
	case 't': // reports of window and cell sizes, positions and titles
		ps, _, _ := bytes.Cut(params, []byte(";"))
		switch string(ps) {
		case "11", "13", "14", "15", "16", "18", "19", "20", "21":
			return true
		}
	case 'x': // DECREQTPARM
		return len(params) <= 1
	}
	return false
}
