package session

import (
	"bytes"
	"slices"
)

// A program that asks for focus events (mode 1004) learns whether any of its
// viewers has the focus. The viewers' own reports are taken out of what they
// type, and the change of the whole is put in.

// focus is what the program was told last; owned by loop.
type focus struct {
	told  byte   // 'I' or 'O', 0 while it was told nothing
	asked uint64 // how many times it had asked then
}

const reportFocus = len("\x1b[I")

// acceptFrom is accept for what a viewer has typed. Reports of its terminal that
// the program must not get as they are get others in their place.
func (s *Session) acceptFrom(a *Attachment, offset uint64, p []byte) (int, error) {
	name := a.spec.Writer
	if bytes.IndexByte(p, esc) < 0 {
		return s.accept(name, offset, p)
	}
	wantsFocus, asked := s.wantsFocus()
	if wantsFocus && asked != s.focus.asked { // it knows nothing, or nothing any more
		s.focus = focus{asked: asked}
	}
	n := 0
	for n < len(p) {
		rest := p[n:]
		at, length := a.nextReport(rest, wantsFocus)
		k, err := s.accept(name, offset+uint64(n), rest[:at])
		a.passed(rest[:k])
		n += k
		if err != nil || k < at || at == len(rest) {
			return n, err
		}
		report := rest[at : at+length]
		isFocus := len(report) == reportFocus
		var told []byte
		if isFocus {
			a.focused = report[2] == 'I'
			told = s.focusNews()
		} else {
			told = withoutMargins(report)
		}
		if k, err = s.replace(name, offset+uint64(n), length, told); k == 0 {
			return n, err // no room: it comes again
		}
		if isFocus {
			s.focusTold(told)
		}
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

// nextReport returns where in p the first report begins that is not for the
// program as it is, and its length: one of focus, or DA1 or DA2 of a terminal that has
// more than the core keeps. It returns the length of p if there is none. Pasted
// text is no report.
func (a *Attachment) nextReport(p []byte, focus bool) (at, length int) {
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
		case pasting:
		case focus && (bytes.HasPrefix(rest, focusIn) || bytes.HasPrefix(rest, focusOut)):
			return i, reportFocus
		case bytes.HasPrefix(rest, da1Begins), bytes.HasPrefix(rest, da2Begins):
			if n := csiReportLen(rest); n > 0 && rest[n-1] == 'c' && !bytes.Equal(withoutMargins(rest[:n]), rest[:n]) {
				return i, n
			}
		}
	}
	return len(p), 0
}

// withoutMargins returns the answer to DA1 or DA2 of a terminal without what the
// core does not keep: left and right margins (21 in DA1) and rectangles (28). A
// program that used them would have the viewer show another screen than the
// session's. tmux also goes by DA2: a VT420 (41), as xterm calls itself, or a later
// one has both. It becomes a VT320, which has neither.
//
// The session does not answer DA1 itself if a viewer answers: many programs ask
// it last, and know from its answer that no other answer comes. An answer in two
// pieces stays as it is.
func withoutMargins(report []byte) []byte {
	if bytes.HasPrefix(report, da2Begins) {
		kind, rest, ok := bytes.Cut(report[len(da2Begins):], []byte(";"))
		switch string(kind) {
		case "41", "61", "64", "65": // VT420, VT510, VT520, VT525
			if ok {
				return append(append(bytes.Clone(da2Begins), "24;"...), rest...)
			}
		}
		return report
	}
	params := bytes.Split(report[len(da1Begins):len(report)-1], []byte(";"))
	kept := slices.DeleteFunc(params, func(p []byte) bool { return string(p) == "21" || string(p) == "28" })
	out := append(bytes.Clone(da1Begins), bytes.Join(kept, []byte(";"))...)
	return append(out, 'c')
}

var (
	da1Begins = []byte("\x1b[?")
	da2Begins = []byte("\x1b[>")
)

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

// focusNews returns the report that tells the program whether any viewer has the
// focus, nothing if it was told so.
func (s *Session) focusNews() []byte {
	now := byte('O')
	for a := range s.attachments {
		if a.focused {
			now = 'I'
		}
	}
	if now == s.focus.told {
		return nil
	}
	return []byte{esc, '[', now}
}

func (s *Session) focusTold(report []byte) {
	if len(report) > 0 {
		s.focus.told = report[2]
		s.note()
	}
}

// wantsFocus reports whether the program wants to be told, and how often it has
// asked for that.
func (s *Session) wantsFocus() (on bool, asked uint64) {
	s.core(func() { on, asked = s.screen.Focus() })
	return on, asked
}

// unfocus is called when a viewer has gone.
func (s *Session) unfocus(a *Attachment) {
	if !a.focused {
		return
	}
	a.focused = false
	if on, asked := s.wantsFocus(); !on || asked != s.focus.asked || s.open() != nil {
		return
	}
	if report := s.focusNews(); len(report) <= s.input.journal.Room() {
		s.focusTold(report)
		_, _ = s.accept("", 0, report) // a terminal that takes no input is about to end
	}
}
