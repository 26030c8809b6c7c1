package escseq

import "bytes"

// An Input is the first unit of the bytes that a terminal sends: text, a key, or a report. Terminals begin
// sequences with ESC, so C1 controls are text here.
type Input struct {
	Kind Kind
	Len  int // number of its bytes

	// Complete tells that the unit is text or a whole sequence. If it is not set and Final is 0,
	// more input may complete the sequence; otherwise the bytes are no sequence that a terminal
	// sends, although they begin with ESC.
	Complete bool
	Final    byte // the last byte of an Escape or CSI

	// Body has the parameters and intermediates of a CSI, or the content of a string. For an Escape
	// it is "O" if the sequence is SS3 and Final, and empty if it is ESC and Final.
	Body []byte
	// Mouse has button, column and row, each plus 32, if the unit is a report of the mouse in its
	// oldest form.
	Mouse []byte
}

// NextInput returns the unit at the beginning of p, which must not be empty. Body and Mouse are
// parts of p.
func NextInput(p []byte) Input {
	if p[0] != ESC {
		if n := bytes.IndexByte(p, ESC); n > 0 {
			p = p[:n]
		}
		return Input{Kind: Text, Len: len(p), Complete: true}
	}
	var tokens Tokenizer
	tok := tokens.Next(p, 0)
	u := Input{Kind: tok.Kind, Len: tok.End, Complete: tok.Complete, Final: tok.Final}
	if !u.Complete {
		return u
	}
	switch u.Kind {
	case Escape:
		u.finishEscape(p)
	case CSI:
		u.finishCSI(p)
	default:
		u.finishString(p)
	}
	return u
}

func (u *Input) finishEscape(p []byte) {
	u.Complete = u.Len == 2
	if u.Final != 'O' || !u.Complete {
		return
	}
	switch {
	case len(p) == 2: // the key follows, unless the user has pressed Alt and O
		u.Complete, u.Final = false, 0
	case p[2] > ' ' && p[2] < 0x7f:
		u.Len, u.Body, u.Final = 3, p[1:2], p[2]
	}
}

func (u *Input) finishCSI(p []byte) {
	u.Body = p[2 : u.Len-1]
	u.Complete = !bytes.ContainsFunc(u.Body, func(r rune) bool { return r < 0x20 || r > 0x3f })
	if u.Final != 'M' || len(u.Body) > 0 {
		return
	}
	mouse := p[u.Len:min(u.Len+3, len(p))]
	switch {
	case bytes.IndexByte(mouse, ESC) >= 0: // it is DL, which no terminal sends
	case len(mouse) < 3:
		u.Complete, u.Final = false, 0
	default:
		u.Mouse = mouse
		u.Len += 3
	}
}

func (u *Input) finishString(p []byte) {
	u.Body = p[2:u.Len]
	switch u.Final {
	case BEL:
		u.Body = p[2 : u.Len-1]
	case ST:
		u.Body = p[2 : u.Len-2]
	case ESC:
		switch after := p[u.Len:]; {
		case len(after) == 1:
			u.Complete, u.Final = false, 0
		case after[1] == '\\':
			u.Len += 2
		default:
			u.Complete = false
		}
	}
}
