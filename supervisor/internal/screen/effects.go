package screen

import (
	"bytes"

	"holdfast/shared/escseq"
)

// Effects collects those messages of a program to its terminal that do not change the screen:
// the bell, OSC 52 (the clipboard), and OSC 9, 99 and 777 (notifications, progress). It is for
// a viewer with a view of its own, which does not receive the output. Questions are not
// collected. Neither are images, because an image has a place on the screen, and a screen of
// another size does not have that place.
//
// The zero value is ready for output that begins outside of a sequence.
type Effects struct {
	tokens escseq.Tokenizer
	bell   bool
	found  []byte // complete sequences
}

const (
	// maxEffect bounds one sequence. The longest is a text for the clipboard in base 64.
	maxEffect = 256 << 10
	// maxEffects bounds the sequences that are collected until take is called. Sequences that
	// have no room are dropped.
	maxEffects = 512 << 10
)

// Skip parses p as Write does, and collects nothing.
func (e *Effects) Skip(p []byte) {
	e.Write(p)
	e.bell, e.found = false, nil
}

// Write collects the effects in p, which must continue the bytes of the last call.
func (e *Effects) Write(p []byte) {
	e.tokens.Room = maxEffect
	hasBell := bytes.IndexByte(p, escseq.BEL) >= 0
	for i := 0; i < len(p); {
		tok := e.tokens.Next(p, i)
		i = tok.End
		switch {
		case tok.Kind <= escseq.CSI:
			e.bell = e.bell || hasBell && bytes.IndexByte(p[tok.Start:tok.End], escseq.BEL) >= 0
		case tok.Kind == escseq.OSC && tok.Complete:
			e.osc()
		}
	}
}

// osc collects the last OSC if it is an effect.
func (e *Effects) osc() {
	text := e.tokens.Body()
	number, _, _ := bytes.Cut(text, []byte(";"))
	switch string(number) {
	case "9", "52", "99", "777":
		if !e.tokens.IsTooLong() && len(e.found)+len(text) <= maxEffects && !isOSCQuestion(text) {
			e.found = append(append(append(e.found, "\x1b]"...), text...), "\x1b\\"...)
		}
	}
}

// take returns the collected sequences, and removes them. Many bells are returned as one.
func (e *Effects) take() []byte {
	found := e.found
	if e.bell {
		found = append(found, escseq.BEL)
	}
	e.bell, e.found = false, nil
	return found
}
