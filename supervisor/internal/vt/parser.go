package vt

import (
	"unicode/utf8"

	"holdfast/supervisor/internal/picture"
)

// parserState is a state of the parser of DEC's terminals (vt100.net/emu/dec_ansi_parser). The
// transitions are those of xterm.js: its parser reads characters instead of bytes, and
// interprets U+0080 to U+009F as C1 controls.
type parserState uint8

const (
	ground parserState = iota
	escape
	escapeIntermediate
	csiEntry
	csiParam
	csiIntermediate
	csiIgnore
	otherString // APC, PM, SOS
	oscString
	dcsEntry
	dcsParam
	dcsIntermediate
	dcsIgnore
	dcsPassthrough
)

// parser is the position within a sequence.
type parser struct {
	state   parserState
	opener  byte   // byte that opened an otherString: '_', '^' or 'X'
	collect uint32 // prefix and intermediates, the last one in the lowest byte
	str     []byte // payload of an OSC, DCS or APC
	tooLong bool   // the string is longer than maxString, and will be ignored

	par params

	utf8    [4]byte // bytes of an unfinished character
	partial int     // number of these bytes

	at         int // within a sequence: bytes of this piece before the character that is parsed
	terminator int // length of the terminator of the OSC that is executed
}

// params are the parameters of a CSI or DCS, and their sub-parameters behind colons.
type params struct {
	n      int
	v      [maxParams]int32
	sub    [maxParams]int32 // -1 is a sub-parameter that was left out
	nsub   int
	subEnd [maxParams]uint8 // end of each parameter's sub-parameters in sub, if there are any
	inSub  bool
	full   bool // further parameters are dropped
	subOff bool // further sub-parameters are dropped
}

func (p *params) reset() {
	p.n, p.nsub = 1, 0
	p.v[0], p.subEnd[0] = 0, 0
	p.inSub, p.full, p.subOff = false, false, false
}

func (p *params) next() {
	p.inSub = false
	if p.n == maxParams {
		p.full = true
		return
	}
	p.v[p.n], p.subEnd[p.n] = 0, uint8(p.nsub)
	p.n++
}

func (p *params) nextSub() {
	p.inSub = true
	if p.full || p.nsub == maxParams {
		p.subOff = true
		return
	}
	p.sub[p.nsub] = -1
	p.nsub++
	p.subEnd[p.n-1] = uint8(p.nsub)
}

func (p *params) digit(b byte) {
	d := int32(b - '0')
	if !p.inSub {
		if !p.full {
			p.v[p.n-1] = addDigit(p.v[p.n-1], d)
		}
		return
	}
	if p.full || p.subOff || p.nsub == 0 {
		return
	}
	s := &p.sub[p.nsub-1]
	if *s < 0 {
		*s = d
	} else {
		*s = addDigit(*s, d)
	}
}

func addDigit(v, d int32) int32 { return int32(min(int64(v)*10+int64(d), maxParam)) }

// subs returns the sub-parameters of parameter i.
func (p *params) subs(i int) []int32 {
	if p.nsub == 0 {
		return nil
	}
	from := uint8(0)
	if i > 0 {
		from = p.subEnd[i-1]
	}
	return p.sub[from:p.subEnd[i]]
}

// at returns parameter i, or def if it is 0 or was left out.
func (p *params) at(i, def int) int {
	if i < p.n && p.v[i] != 0 {
		return int(p.v[i])
	}
	return def
}

// sequence parses the escape sequence at the beginning of p as far as p has it, and returns
// the number of bytes that it has used.
func (t *Term) sequence(p []byte) int {
	if len(p) > 2 {
		switch b := p[1]; {
		case b == '[':
			if n := t.wholeCSI(p); n > 0 {
				return n
			}
		case b >= '0' && b < 'P': // all of these sequences end here
			t.printing = false
			t.finishEscape(rune(b), 0)
			return 2
		case b == '#' && len(p) >= 6 && string(p[2:6]) == "8\x1b#8":
			return 3 // DECALN twice has the effect of DECALN once
		}
	}
	t.begin()
	t.state, t.printing = escape, false
	return 1
}

// begin clears the parameters and intermediates of the last sequence.
func (t *Term) begin() {
	t.par.reset()
	t.collect = 0
}

// wholeCSI executes the CSI sequence at the beginning of p if p has all of it, without a
// control or sub-parameters in it. It returns the length of the sequence, or 0 if it has
// executed none.
func (t *Term) wholeCSI(p []byte) int {
	i := 2
	if p[2] == '0' && len(p) > 3 {
		i = 3
	}
	if p[i] == 'm' { // nearly half of all CSI sequences
		t.pen.reset()
		t.penChanged()
		t.join, t.printing = 0, false
		return i + 1
	}
	q := &t.par
	q.reset()
	collect := uint32(0)
	i = 2
	if b := p[2]; b >= '<' && b <= '?' {
		collect = uint32(b)
		i++
	}
	n, v := 0, int64(0)
	for ; i < len(p); i++ {
		b := p[i]
		if b-'0' <= 9 {
			if v = v*10 + int64(b-'0'); v > maxParam {
				v = maxParam
			}
			continue
		}
		if n < maxParams { // further parameters are dropped
			q.v[n] = int32(v)
			n++
		}
		switch {
		case b == ';':
			v = 0
		case b >= 0x40 && b <= 0x7e:
			q.n = n
			if b == 'm' && collect == 0 {
				t.sgr()
			} else {
				t.collect = collect
				t.csi(collect<<8 | uint32(b))
			}
			t.join, t.printing = 0, false
			return i + 1
		default:
			// Sub-parameters, intermediates, controls, and invalid bytes are left to step.
			return 0
		}
	}
	return 0
}

// step parses bytes at the beginning of p one state transition at a time, and returns how many
// it has used. It is called within a sequence or a character, and for characters that the
// faster paths do not handle.
func (t *Term) step(p []byte) int {
	if t.partial > 0 {
		return t.finishRune(p)
	}
	switch t.state {
	case oscString, dcsPassthrough, otherString:
		if n := asciiRun(p); n > 0 {
			t.appendString(p[:n])
			return n
		}
	}
	b := p[0]
	if b < utf8.RuneSelf {
		t.feed(rune(b))
		return 1
	}
	return t.startRune(p)
}

// startRune parses the character at the beginning of p. If p ends within the character,
// startRune keeps the bytes. Invalid UTF-8 is dropped as in xterm.js: a wrong byte ends the
// character before it, and may begin another one.
func (t *Term) startRune(p []byte) int {
	want := runeLen(p[0])
	if want == 0 {
		return 1
	}
	for i := 1; i < want; i++ {
		if i == len(p) {
			t.partial = copy(t.utf8[:], p)
			return len(p)
		}
		if p[i]&0xc0 != 0x80 {
			return i
		}
	}
	return t.wholeRune(p[:want])
}

// finishRune continues an unfinished character with the bytes of p.
func (t *Term) finishRune(p []byte) int {
	want := runeLen(t.utf8[0])
	for i, b := range p {
		if b&0xc0 != 0x80 {
			t.partial = 0
			return i
		}
		t.utf8[t.partial] = b
		t.partial++
		if t.partial == want {
			t.partial = 0
			// In xterm.js, the second byte of an overlong form of two bytes is parsed once more, and
			// then dropped as well.
			t.wholeRune(t.utf8[:want])
			return i + 1
		}
	}
	return len(p)
}

func runeLen(b byte) int {
	switch {
	case b&0xe0 == 0xc0:
		return 2
	case b&0xf0 == 0xe0:
		return 3
	case b&0xf8 == 0xf0:
		return 4
	}
	return 0
}

// wholeRune feeds a character of the right length. It drops the character if it is overlong, a
// surrogate, too large, or a byte order mark.
func (t *Term) wholeRune(p []byte) int {
	if ch, n := utf8.DecodeRune(p); n == len(p) && ch != 0xfeff {
		t.feed(ch)
	}
	return len(p)
}

// feed advances the parser by one character.
func (t *Term) feed(ch rune) {
	if t.state == ground && (ch >= 0x20 && ch < 0x7f || ch >= 0xa0) {
		t.printRune(ch)
		t.printed()
		return
	}
	t.printing = false
	switch {
	case ch == 0x1b:
		t.terminator = 2 // a backslash follows, unless the program has left it out
		t.leaveString(true)
		t.begin()
		t.state = escape
		return
	case ch == 0x18 || ch == 0x1a:
		t.leaveString(false)
		t.state = ground
		t.execute(ch)
		return
	case ch >= 0x80 && ch < 0xa0:
		t.c1(ch)
		return
	}
	switch t.state {
	case ground:
		if ch != 0x7f {
			t.execute(ch)
		}
	case escape, escapeIntermediate:
		t.feedEscape(ch)
	case csiEntry, csiParam, csiIntermediate, csiIgnore:
		t.feedCSI(ch)
	case oscString:
		switch {
		case ch == 0x07:
			t.terminator = 1
			t.leaveString(true)
			t.state = ground
		case ch >= 0x20:
			t.putRune(ch)
		}
	case otherString:
		switch {
		case ch >= 0xa0:
			t.state = ground
		case ch >= 0x20:
			t.putRune(ch)
		}
	case dcsPassthrough:
		if ch != 0x7f {
			t.putRune(ch)
		}
	default:
		t.feedDCS(ch)
	}
}

// c1 executes a C1 control, which ends the sequence in which it stands. A string is executed
// only if it ends with its terminator (ST).
func (t *Term) c1(ch rune) {
	was := t.state
	t.state = ground
	switch ch {
	case 0x90:
		t.leaveState(was, false)
		t.begin()
		t.state = dcsEntry
	case 0x98, 0x9e, 0x9f:
		t.leaveState(was, false)
		t.openOther(byte(ch) - 0x40)
	case 0x9b:
		t.leaveState(was, false)
		t.begin()
		t.state = csiEntry
	case 0x9c:
		t.terminator = 2 // U+009C
		t.leaveState(was, true)
	case 0x9d:
		t.leaveState(was, false)
		t.openOSC()
	default:
		t.leaveState(was, false)
		t.execute(ch)
	}
}

func (t *Term) leaveState(was parserState, ok bool) {
	t.state = was
	t.leaveString(ok)
	t.state = ground
}

func (t *Term) feedEscape(ch rune) {
	switch {
	case ch < 0x20:
		t.execute(ch)
	case ch < 0x30:
		t.collect = t.collect<<8 | uint32(ch)
		t.state = escapeIntermediate
	case ch == 0x7f:
	case ch > 0x7f:
		t.state = ground
	case t.state == escapeIntermediate:
		t.finishEscape(ch, t.collect)
	default:
		switch ch {
		case '[':
			t.begin()
			t.state = csiEntry
		case ']':
			t.openOSC()
		case 'P':
			t.begin()
			t.state = dcsEntry
		case 'X', '^', '_':
			t.openOther(byte(ch))
		default:
			t.finishEscape(ch, 0)
		}
	}
}

func (t *Term) finishEscape(ch rune, collect uint32) {
	t.state = ground
	t.esc(collect<<8 | uint32(ch))
	t.join = 0
}

func (t *Term) feedCSI(ch rune) {
	switch {
	case ch < 0x20:
		t.execute(ch)
	case ch == 0x7f:
	case ch > 0x7f:
		if t.state != csiIgnore {
			t.state = ground
		}
	case ch >= 0x40:
		ignore := t.state == csiIgnore
		t.state = ground
		if !ignore {
			t.csi(t.collect<<8 | uint32(ch))
			t.join, t.printing = 0, false // REP prints
		}
	case t.state == csiIgnore:
	case ch < 0x30:
		t.collect = t.collect<<8 | uint32(ch)
		t.state = csiIntermediate
	case t.state == csiIntermediate:
		t.state = csiIgnore
	case ch < 0x3c:
		t.param(byte(ch))
		t.state = csiParam
	case t.state == csiEntry:
		t.collect = t.collect<<8 | uint32(ch)
		t.state = csiParam
	default:
		t.state = csiIgnore
	}
}

func (t *Term) param(b byte) {
	switch b {
	case ';':
		t.par.next()
	case ':':
		t.par.nextSub()
	default:
		t.par.digit(b)
	}
}

func (t *Term) feedDCS(ch rune) {
	switch {
	case ch < 0x20 || ch == 0x7f:
	case ch > 0x7f:
		if t.state != dcsIgnore {
			t.state = ground
		}
	case t.state == dcsIgnore:
	case ch >= 0x40:
		t.collect = t.collect<<8 | uint32(ch)
		t.openString(dcsPassthrough)
	case ch < 0x30:
		t.collect = t.collect<<8 | uint32(ch)
		t.state = dcsIntermediate
	case t.state == dcsIntermediate:
		t.state = dcsIgnore
	case ch < 0x3c:
		t.param(byte(ch))
		t.state = dcsParam
	case t.state == dcsEntry:
		t.collect = t.collect<<8 | uint32(ch)
		t.state = dcsParam
	default:
		t.state = dcsIgnore
	}
}

func (t *Term) openString(s parserState) {
	t.state = s
	t.str, t.tooLong = t.str[:0], false
}

func (t *Term) openOSC() { t.openString(oscString) }

func (t *Term) openOther(opener byte) {
	t.openString(otherString)
	t.opener = opener
}

// appendString appends a part of a string. If the string becomes longer than maxString, it is
// dropped.
func (t *Term) appendString(p []byte) {
	if t.tooLong {
		return
	}
	fits := min(len(p), max(maxString-len(t.str), 0))
	t.str = append(t.str, p[:fits]...) // it has the beginning now, which tells whether it is a picture
	if p = p[fits:]; len(p) == 0 {
		return
	}
	if len(t.str)+len(p) > t.pictureRoom() {
		t.str, t.tooLong = nil, true
		return
	}
	t.str = append(t.str, p...)
}

func (t *Term) putRune(ch rune) {
	var buf [utf8.UTFMax]byte
	t.appendString(utf8.AppendRune(buf[:0], ch))
}

// leaveString ends the current string, if there is one, and executes it if ok is set. ok must
// be set only if the string ended with its terminator.
func (t *Term) leaveString(ok bool) {
	switch t.state {
	case oscString:
		if ok && !t.tooLong {
			t.osc(t.str)
		}
	case dcsPassthrough:
		if ok && !t.tooLong {
			t.dcs(t.collect, t.str)
		}
	case otherString:
		if !ok || t.unfinishedPicture() != picture.Kitty {
			return
		}
		t.graphicsCommand(t.str[1:])
	default:
		return
	}
	t.begin()
	if ok {
		t.join = 0
	}
	if cap(t.str) > maxString/16 {
		t.str = nil
	}
}
