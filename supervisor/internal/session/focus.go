package session

import "bytes"

// A program that asks for focus events (mode 1004) learns whether any of its
// viewers has the focus. The viewers' own reports are taken out of what they
// type, and the change of the whole is put in.

// focus is what the program was told last; owned by loop.
type focus struct {
	told  byte   // 'I' or 'O', 0 while it was told nothing
	asked uint64 // how many times it had asked then
}

const reportFocus = len("\x1b[I")

// acceptFrom is accept for what a viewer has typed.
func (s *Session) acceptFrom(a *Attachment, p []byte) (int, error) {
	if on, asked := s.screen.Focus(); !on || bytes.IndexByte(p, esc) < 0 {
		return s.accept(p)
	} else if asked != s.focus.asked { // it knows nothing, or nothing any more
		s.focus = focus{asked: asked}
	}
	n := 0
	for n < len(p) {
		rest := p[n:]
		at := a.nextFocus(rest)
		k, err := s.accept(rest[:at])
		a.passed(rest[:k])
		n += k
		if err != nil || k < at || at == len(rest) {
			return n, err
		}
		a.focused = rest[at+2] == 'I'
		if !s.tellFocus() {
			return n, nil // no room: it comes again
		}
		n += reportFocus
	}
	return n, nil
}

// nextFocus returns where in p the first report of focus begins that is not
// pasted text, or the length of p.
func (a *Attachment) nextFocus(p []byte) int {
	pasting := a.pasting
	for i := 0; i < len(p); i++ {
		k := bytes.IndexByte(p[i:], esc)
		if k < 0 {
			break
		}
		i += k
		rest := p[i:]
		switch {
		case bytes.HasPrefix(rest, pasteBegins):
			pasting = true
		case bytes.HasPrefix(rest, pasteEnds):
			pasting = false
		case !pasting && (bytes.HasPrefix(rest, focusIn) || bytes.HasPrefix(rest, focusOut)):
			return i
		}
	}
	return len(p)
}

// passed notes whether what a has typed so far ends within a paste.
func (a *Attachment) passed(p []byte) {
	begins, ends := bytes.LastIndex(p, pasteBegins), bytes.LastIndex(p, pasteEnds)
	if begins != ends { // else both are -1
		a.pasting = begins > ends
	}
}

var (
	pasteBegins = []byte("\x1b[200~")
	pasteEnds   = []byte("\x1b[201~")
	focusIn     = []byte("\x1b[I")
	focusOut    = []byte("\x1b[O")
)

// tellFocus tells the program whether any viewer has the focus, if it was told
// otherwise. It reports false where there was no room for that.
func (s *Session) tellFocus() bool {
	now := byte('O')
	for a := range s.attachments {
		if a.focused {
			now = 'I'
		}
	}
	if now == s.focus.told {
		return true
	}
	if s.input.max-s.input.queued < reportFocus {
		return false
	}
	s.focus.told = now
	_, err := s.accept([]byte{esc, '[', now})
	return err == nil
}

// unfocus is called when a viewer has gone.
func (s *Session) unfocus(a *Attachment) {
	if !a.focused {
		return
	}
	a.focused = false
	if on, asked := s.screen.Focus(); on && asked == s.focus.asked && s.open() == nil {
		s.tellFocus()
	}
}
