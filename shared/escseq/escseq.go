// Package escseq splits the bytes that a program prints, or that a terminal sends, into text and
// escape sequences.
//
// Invariant: a sequence ends where the terminal core ends it (package vt, which has a parser of
// its own because of its speed), no matter how the bytes are cut into pieces. Package vt has the
// test.
//
// Not here: the meaning of a sequence.
package escseq

import (
	"bytes"
	"unicode/utf8"
)

// Kind is the kind of a token.
type Kind byte

// The kinds of tokens.
const (
	Text   Kind = iota // characters and controls outside of sequences
	Escape             // ESC, intermediates and a final byte; or a C1 control that opens no other kind
	CSI
	OSC
	DCS
	SOS
	PM
	APC
)

// Bytes with which tokens begin and end.
const (
	BEL    = 0x07
	CAN    = 0x18
	SUB    = 0x1a
	ESC    = 0x1b
	C1Lead = 0xc2 // first byte of U+0080 to U+00BF, the first half of which are C1 controls
	ST     = 0x9c // second byte of U+009C
	// Character is the Final of a sequence that a character above U+009F has cancelled.
	Character = 0xff
)

// A Token is a piece of text, or the part of a sequence that one piece of the input has.
//
// A C1 control has two bytes in UTF-8: 0xc2, and a byte of 0x80 to 0x9f. A token that a C1 control
// begins starts with the second one, because the first one may have been in an earlier piece.
type Token struct {
	Kind       Kind
	Start, End int // the bytes are p[Start:End]; a part may be empty
	// Complete tells that the sequence has ended with its final byte or its terminator. If it is
	// not set, either p ends within the sequence, or the sequence was cancelled.
	Complete bool
	// Final is the byte that ended the sequence, and 0 if p ends within it. A C1 control that is a
	// sequence of its own has the final byte of its form with ESC. If Final is ESC, the ESC is not
	// part of the token: it begins the next one, which is ST if the program has ended a string
	// correctly.
	Final byte
}

// A Tokenizer splits input. The zero value is outside of a sequence and collects no bodies.
type Tokenizer struct {
	// Room is the greatest length of a body in bytes.
	Room int

	state   state
	opener  Kind // kind of the current string
	char    [utf8.UTFMax]byte
	charLen int // number of bytes of an unfinished character
	body    []byte
	tooLong bool
}

// state is a state of the parser of DEC's terminals (vt100.net/emu/dec_ansi_parser).
type state byte

const (
	ground state = iota
	escape
	escapeIntermediate
	csiEntry
	csiParam
	csiIntermediate
	csiIgnore
	dcsEntry
	dcsParam
	dcsIntermediate
	dcsIgnore
	dcsPassthrough
	oscString
	otherString // SOS, PM, APC
)

// maxIdleBody is the largest buffer that a Tokenizer keeps for the next body.
const maxIdleBody = 4 << 10

// Kind returns the kind of the sequence within which the input has ended so far, or Text.
func (t *Tokenizer) Kind() Kind {
	switch s := t.state; {
	case s == ground:
		return Text
	case s <= escapeIntermediate:
		return Escape
	case s <= csiIgnore:
		return CSI
	case s <= dcsPassthrough:
		return DCS
	case s == oscString:
		return OSC
	}
	return t.opener
}

// IsBetween reports whether the input so far ends outside of a sequence and of the first byte of
// a C1 control.
func (t *Tokenizer) IsBetween() bool { return t.state == ground && t.charLen == 0 }

// Body returns the collected body of the sequence of the last token: for Escape the intermediates,
// for CSI the parameters and intermediates, and for a string the bytes between its introducer and
// its terminator, without controls that terminals ignore. It is valid until Next is called.
func (t *Tokenizer) Body() []byte { return t.body }

// IsTooLong reports whether the body of the last token is longer than Room. Body then has its
// first bytes.
func (t *Tokenizer) IsTooLong() bool { return t.tooLong }

// Next returns the token at p[from], which must exist. p must continue the bytes of the last call:
// callers pass the same piece of the input with the End of the last token, until that is len(p).
func (t *Tokenizer) Next(p []byte, from int) Token {
	i := from
	if t.state == ground {
		if cap(t.body) > maxIdleBody {
			t.body = nil
		}
		if p[from] != ESC || t.charLen > 0 {
			if end := t.text(p, from); end > from {
				return Token{Kind: Text, Start: from, End: end, Complete: true}
			}
		}
		if tok := t.short(p, from); tok.Complete {
			return tok
		}
		if i++; !t.open(p[from]) {
			return Token{Kind: Escape, Start: from, End: i, Complete: true, Final: p[from] - 0x40}
		}
	}
	for ; i < len(p); i++ {
		if i += t.run(p[i:]); i == len(p) {
			break
		}
		out := t.step(p[i])
		if out == proceeds {
			continue
		}
		tok := Token{Kind: t.Kind(), Start: from, End: i + 1, Final: p[i]}
		t.state = ground
		switch out {
		case completes:
			tok.Complete = true
		case completesBefore:
			tok.Complete, tok.End = true, i
		case isCancelledBefore:
			tok.End = i
		case isCancelledByCharacter:
			tok.Final = Character
		}
		return tok
	}
	return Token{Kind: t.Kind(), Start: from, End: len(p)}
}

// short returns the sequence at p[from] if p has all of it, and it is of one of the usual forms:
// ESC and a final byte, or a CSI sequence without controls in it.
func (t *Tokenizer) short(p []byte, from int) (tok Token) {
	if from+1 >= len(p) || p[from] != ESC {
		return tok
	}
	b := p[from+1]
	if b != '[' {
		if b < 0x30 || b == 0x7f || b >= 'P' && b != '\\' {
			return tok
		}
		t.body, t.tooLong = t.body[:0], false
		return Token{Kind: Escape, Start: from, End: from + 2, Complete: true, Final: b}
	}
	i := from + 2
	for i < len(p) && p[i]-0x20 < 0x20 {
		i++
	}
	if i == len(p) || p[i]-0x40 >= 0x3f {
		return tok
	}
	t.body, t.tooLong = t.body[:0], false
	t.collect(p[from+2 : i])
	return Token{Kind: CSI, Start: from, End: i + 1, Complete: true, Final: p[i]}
}

// text returns the end of the text at p[from].
func (t *Tokenizer) text(p []byte, from int) int {
	if t.charLen > 0 { // the last byte was C1Lead
		t.charLen = 0
		if isC1(p[from]) {
			return from
		}
	}
	end := len(p)
	if n := bytes.IndexByte(p[from:], ESC); n >= 0 {
		end = from + n
	}
	for at := from; ; {
		n := bytes.IndexByte(p[at:end], C1Lead)
		if n < 0 {
			return end
		}
		at += n + 1
		if at == len(p) || isC1(p[at]) { // the C1 control, if it is one, belongs to the next token
			t.charLen = copy(t.char[:], p[at-1:at])
			return at
		}
	}
}

// isC1 reports whether b is the second byte of a C1 control.
func isC1(b byte) bool { return b >= 0x80 && b < 0xa0 }

// open begins the sequence of ESC, or of the C1 control with the second byte b. It reports whether
// more bytes belong to the sequence.
func (t *Tokenizer) open(b byte) bool {
	t.body, t.tooLong = t.body[:0], false
	if b == ESC {
		t.state = escape
		return true
	}
	return t.introduce(b - 0x40)
}

// introduce enters the state of the sequence that begins with ESC and b. It returns false if b
// introduces none.
func (t *Tokenizer) introduce(b byte) bool {
	switch b {
	case '[':
		t.state = csiEntry
	case ']':
		t.state = oscString
	case 'P':
		t.state = dcsEntry
	case 'X':
		t.state, t.opener = otherString, SOS
	case '^':
		t.state, t.opener = otherString, PM
	case '_':
		t.state, t.opener = otherString, APC
	default:
		return false
	}
	return true
}

// run collects the bytes at the beginning of p that leave the state as it is, and returns their
// number. It need not find all of them.
func (t *Tokenizer) run(p []byte) (n int) {
	first, last := byte(' '), byte('~')
	switch {
	case t.charLen > 0:
		return 0
	case t.state == csiParam:
		first, last = '0', ';'
	case t.state < dcsPassthrough:
		return 0
	}
	for n < len(p) && p[n] >= first && p[n] <= last {
		n++
	}
	t.collect(p[:n])
	return n
}

// collect appends bytes to the body as far as there is room.
func (t *Tokenizer) collect(p []byte) {
	if room := t.Room - len(t.body); len(p) > room {
		t.tooLong = true
		p = p[:max(0, room)]
	}
	t.body = append(t.body, p...)
}

// An outcome is the effect of a byte on the sequence.
type outcome byte

const (
	proceeds               outcome = iota // the sequence continues
	completes                             // the byte is its last one
	completesBefore                       // it is complete, and the byte begins another one
	isCancelled                           // it has no effect, and the byte is its last one
	isCancelledBefore                     // it has no effect, and the byte begins another one
	isCancelledByCharacter                // as isCancelled
)

// step parses one byte within a sequence.
func (t *Tokenizer) step(b byte) outcome {
	if b >= utf8.RuneSelf || t.charLen > 0 {
		if out, used := t.stepInCharacter(b); used {
			return out
		}
	}
	switch b {
	case ESC:
		if t.isString() {
			return completesBefore
		}
		return isCancelledBefore
	case CAN, SUB:
		return isCancelled
	}
	switch t.state {
	case escape, escapeIntermediate:
		return t.stepInEscape(b)
	case csiEntry, csiParam, csiIntermediate, csiIgnore:
		return t.stepInCSI(b)
	case oscString, otherString:
		if b == BEL && t.state == oscString {
			return completes
		}
		if b < 0x20 || b == 0x7f {
			return proceeds
		}
	case dcsPassthrough:
		if b == 0x7f {
			return proceeds
		}
	default:
		t.enterInDCS(b)
		if b < 0x20 || b == 0x7f {
			return proceeds
		}
	}
	t.collectByte(b)
	return proceeds
}

// isString reports whether the sequence is a string, which ends with a terminator.
func (t *Tokenizer) isString() bool { return t.state >= dcsEntry }

func (t *Tokenizer) collectByte(b byte) {
	if len(t.body) < t.Room {
		t.body = append(t.body, b)
	} else {
		t.tooLong = true
	}
}

// stepInCharacter parses a byte of a character above U+007F. used is false if b is none.
func (t *Tokenizer) stepInCharacter(b byte) (out outcome, used bool) {
	if t.charLen > 0 && b&0xc0 != 0x80 { // the character before is cut
		t.collectString(t.char[:t.charLen])
		t.charLen = 0
		if b < utf8.RuneSelf {
			return proceeds, false
		}
	}
	t.char[t.charLen] = b
	t.charLen++
	char := t.char[:t.charLen]
	if n := charLen(char[0]); n > len(char) {
		return proceeds, true
	}
	t.charLen = 0
	ch, n := utf8.DecodeRune(char)
	switch {
	case n < len(char) || len(char) == 1 || ch == 0xfeff: // xterm.js drops these
	case ch == ST && t.isString():
		return completes, true
	case ch < 0xa0:
		t.charLen = 1 // text will find the C1 control
		return isCancelledBefore, true
	case t.isCutByCharacters():
		return isCancelledByCharacter, true
	}
	t.collectString(char)
	return proceeds, true
}

// charLen returns the number of bytes of the character that begins with b, or 0 if none does.
func charLen(b byte) int {
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

// isCutByCharacters reports whether a character above U+009F cancels the sequence.
func (t *Tokenizer) isCutByCharacters() bool {
	switch t.state {
	case csiIgnore, dcsIgnore, dcsPassthrough, oscString:
		return false
	}
	return true
}

// collectString collects bytes of a string.
func (t *Tokenizer) collectString(p []byte) {
	if t.isString() {
		t.collect(p)
	}
}

func (t *Tokenizer) stepInEscape(b byte) outcome {
	switch {
	case b < 0x20 || b == 0x7f:
	case b < 0x30:
		t.collectByte(b)
		t.state = escapeIntermediate
	case t.state == escapeIntermediate || !t.introduce(b):
		return completes
	}
	return proceeds
}

func (t *Tokenizer) stepInCSI(b byte) outcome {
	switch {
	case b < 0x20 || b == 0x7f:
		return proceeds
	case b >= 0x40:
		return completes
	case t.state == csiIgnore:
	case b < 0x30:
		t.state = csiIntermediate
	case t.state == csiIntermediate:
		t.state = csiIgnore
	case b < 0x3c || t.state == csiEntry:
		t.state = csiParam
	default:
		t.state = csiIgnore
	}
	t.collectByte(b)
	return proceeds
}

// enterInDCS changes the state within the parameters of a DCS.
func (t *Tokenizer) enterInDCS(b byte) {
	switch {
	case b < 0x20 || b == 0x7f || t.state == dcsIgnore:
	case b >= 0x40:
		t.state = dcsPassthrough
	case b < 0x30:
		t.state = dcsIntermediate
	case t.state == dcsIntermediate:
		t.state = dcsIgnore
	case b < 0x3c || t.state == dcsEntry:
		t.state = dcsParam
	default:
		t.state = dcsIgnore
	}
}
