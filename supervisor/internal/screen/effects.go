package screen

import "bytes"

// Effects collects what a program says to its terminal in output that changes
// nothing on the screen, for a viewer that is shown a view of its own and so does
// not get the output: the bell, OSC 52 (the clipboard), and OSC 9, 99 and 777
// (notifications, progress). Questions are not in it. Images are not either: they
// belong to a place, which a screen of another size does not have.
//
// The zero value stands where no sequence is under way.
type Effects struct {
	parser Mask
	bell   bool
	found  []byte // sequences, whole
}

const (
	// maxEffect bounds one sequence: a text for the clipboard, in base 64.
	maxEffect = 256 << 10
	// maxEffects bounds those that are collected until they are taken. What comes
	// when there is no more room is left out.
	maxEffects = 512 << 10
)

// Skip takes note of p as Write does, and collects nothing.
func (e *Effects) Skip(p []byte) {
	e.Write(p)
	e.bell, e.found = false, nil
}

// Write collects what is in p, which continues what was written before.
func (e *Effects) Write(p []byte) {
	m := &e.parser
	m.room = maxEffect
	for i := 0; i < len(p); i++ {
		if m.state == maskGround && !m.lead {
			text := p[i:]
			if n := bytes.IndexByte(text, esc); n >= 0 {
				text = text[:n]
			}
			if n := bytes.IndexByte(text, lead); n >= 0 {
				text = text[:n]
			}
			e.bell = e.bell || bytes.IndexByte(text, bell) >= 0
			if i += len(text); i == len(p) {
				return
			}
		}
		b := p[i]
		switch m.state {
		case maskOSC:
			if b == bell || b == esc || m.lead && b == 0x9c {
				e.osc()
			}
		case maskEscape, maskBetween, maskCSI:
			e.bell = e.bell || b == bell
		}
		m.next(b)
	}
}

// osc takes the OSC that ends.
func (e *Effects) osc() {
	m := &e.parser
	text := m.kept
	if m.lead {
		text = text[:len(text)-1]
	}
	number, _, _ := bytes.Cut(text, []byte(";"))
	switch string(number) {
	case "9", "52", "99", "777":
		if !m.long && len(e.found)+len(text) <= maxEffects && !isOSCQuestion(text) {
			e.found = append(e.found, "\x1b]"...)
			for _, b := range text {
				if b >= 0x20 && b != 0x7f { // controls do not count within an OSC
					e.found = append(e.found, b)
				}
			}
			e.found = append(e.found, "\x1b\\"...)
		}
	}
	if cap(m.kept) > maxKept {
		m.kept = nil
	}
}

// take returns, once, what was collected; of bells one.
func (e *Effects) take() []byte {
	found := e.found
	if e.bell {
		found = append(found, bell)
	}
	e.bell, e.found = false, nil
	return found
}
