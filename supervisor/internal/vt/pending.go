package vt

import "strconv"

// Beginnings of strings that terminals ignore: an OSC without a number, an unknown DCS, and an unknown APC.
const (
	unknownOSC = "\x1b]-"
	unknownDCS = "\x1bP~"
	unknownAPC = "\x1b_-"
)

// InSequence reports whether the written bytes end within a sequence or a character.
func (t *Term) InSequence() bool { return t.state != ground || t.partial > 0 }

// pending appends the bytes of the unfinished sequence or character. They bring a new parser
// into the same state.
func (t *Term) pending(dst []byte) []byte {
	switch t.state {
	case ground:
	case escape, escapeIntermediate:
		dst = appendCollected(append(dst, 0x1b), t.collect)
	case csiEntry, csiParam, csiIntermediate:
		dst = t.appendParams(append(dst, "\x1b["...), t.collect)
	case csiIgnore:
		dst = append(dst, "\x1b[0<"...)
	case dcsEntry, dcsParam, dcsIntermediate:
		dst = t.appendParams(append(dst, "\x1bP"...), t.collect)
	case dcsIgnore:
		dst = append(dst, "\x1bP0<"...)
	case oscString:
		if t.tooLong {
			dst = append(dst, unknownOSC...)
			break
		}
		dst = append(append(dst, "\x1b]"...), t.str...)
	case dcsPassthrough:
		if t.tooLong {
			dst = append(dst, unknownDCS...)
			break
		}
		dst = t.appendParams(append(dst, "\x1bP"...), t.collect>>8)
		dst = append(append(dst, byte(t.collect)), t.str...)
	case otherString:
		dst = append(dst, 0x1b, t.opener)
		if t.tooLong {
			dst = append(dst, '-')
		}
		dst = append(dst, t.str...)
	}
	return append(dst, t.utf8[:t.partial]...)
}

// appendCollected appends the prefix and the intermediates, oldest first.
func appendCollected(dst []byte, collect uint32) []byte {
	for shift := 24; shift >= 0; shift -= 8 {
		if b := byte(collect >> shift); b != 0 {
			dst = append(dst, b)
		}
	}
	return dst
}

// appendParams appends prefix, parameters and intermediates.
func (t *Term) appendParams(dst []byte, collect uint32) []byte {
	var between []byte
	for _, b := range appendCollected(nil, collect) {
		if b >= '<' {
			dst = append(dst, b)
		} else {
			between = append(between, b)
		}
	}
	p := &t.par
	for i := range p.n {
		if i > 0 {
			dst = append(dst, ';')
		}
		if sub := p.subs(i); p.v[i] != 0 || len(sub) > 0 || i+1 < p.n {
			dst = strconv.AppendInt(dst, int64(p.v[i]), 10)
			for _, s := range sub {
				dst = append(dst, ':')
				if s >= 0 {
					dst = strconv.AppendInt(dst, int64(s), 10)
				}
			}
		}
	}
	switch {
	case p.full:
		dst = append(dst, ';')
	case p.subOff && p.inSub:
		dst = append(dst, ':')
	case (t.state == csiParam || t.state == dcsParam) && collect == 0 && p.n == 1 && p.v[0] == 0 && len(p.subs(0)) == 0:
		dst = append(dst, '0') // behind a digit, a prefix is no longer valid
	}
	return append(dst, between...)
}
