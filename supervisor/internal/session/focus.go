package session

import (
	"bytes"
	"slices"

	"holdfast/shared/escseq"
	"holdfast/supervisor/internal/screen"
)

// A program that asks for focus events (mode 1004) must learn whether any of its viewers has
// the focus. Therefore the focus reports of the viewers are removed from their input, and a
// report is inserted when the combined focus changes.

var (
	focusIn  = []byte("\x1b[I")
	focusOut = []byte("\x1b[O")
)

// focus is the last focus report that the program received. loop owns it.
type focus struct {
	Sent         byte   `json:"focus,omitempty"`       // 'I' or 'O'; 0 if no report was sent
	RequestCount uint64 `json:"focus_asked,omitempty"` // how often the program had asked for focus events when the report was sent
}

// queueViewerInput queues input of a viewer as input.queue does. It replaces focus reports by
// the session's own, and removes margins from DA1 and DA2 responses.
func (s *Session) queueViewerInput(a *Attachment, offset uint64, p []byte) (int, error) {
	name := a.spec.Writer
	if bytes.IndexByte(p, escseq.ESC) < 0 {
		return s.input.queue(name, offset, p)
	}
	if bytes.Contains(p, focusIn) || bytes.Contains(p, focusOut) { // the screen may not have seen the request for them
		s.feed()
	}
	wantsFocus, asked := s.display.wantsFocus()
	if wantsFocus {
		s.saved.focus.noteRequests(asked)
	}
	n := 0
	for n < len(p) {
		remainder := p[n:]
		at, report, inPaste := a.nextReport(remainder, wantsFocus)
		k, err := s.input.queue(name, offset+uint64(n), remainder[:at])
		if k < at { // there was no room for all of it
			_, _, inPaste = a.nextReport(remainder[:k], wantsFocus)
		}
		if a.inPaste != inPaste {
			a.inPaste = inPaste
			s.noteChange()
		}
		n += k
		if err != nil || k < at || at == len(remainder) {
			return n, err
		}
		var replacement []byte
		if isFocus(&report) {
			a.focused = report.Final == 'I'
			replacement = s.saved.focus.report(s.viewers.haveFocus())
		} else {
			replacement = withoutMargins(remainder[at : at+report.Len])
		}
		if k, err = s.input.replace(name, offset+uint64(n), report.Len, replacement); k == 0 {
			return n, err // no room; the writer sends the report again
		}
		if isFocus(&report) {
			s.noteFocusSent(replacement)
		}
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

// nextReport finds the first report in p that must not reach the program unchanged: a focus
// report, or a DA1 or DA2 response of a terminal that can do more than the terminal core. It
// returns the report, its offset, which is len(p) if p has none, and whether text that is pasted
// goes on there. Pasted text is never a report.
func (a *Attachment) nextReport(p []byte, focus bool) (at int, report escseq.Input, inPaste bool) {
	inPaste = a.inPaste
	for at < len(p) {
		u := escseq.NextInput(p[at:])
		switch begins, ends := pasteFrame(&u); {
		case begins || ends:
			inPaste = begins
		case inPaste:
		case focus && isFocus(&u):
			return at, u, inPaste
		case isDeviceAttributes(&u):
			if whole := p[at : at+u.Len]; !bytes.Equal(withoutMargins(whole), whole) {
				return at, u, inPaste
			}
		}
		at += u.Len
	}
	return at, escseq.Input{}, inPaste
}

// withoutMargins returns a DA1 or DA2 response without the features that the terminal core
// lacks: left and right margins (21 in DA1) and rectangles (28). If a program used these, a
// viewer would show another screen than the session's. tmux also derives them from DA2: a VT420
// (41), as xterm calls itself, or a later terminal has both, and mintty (77) has margins. Such
// a response becomes that of a VT320 (24), which has neither.
//
// If a viewer responds, the session must not answer DA1 itself, because many programs send DA1
// as the last query and conclude from its response that no other response is coming. A response
// in two pieces stays as it is.
func withoutMargins(report []byte) []byte {
	if bytes.HasPrefix(report, da2Begins) {
		kind, remainder, ok := bytes.Cut(report[len(da2Begins):], []byte(";"))
		switch string(kind) {
		case "41", "61", "64", "65", "77": // VT420, VT510, VT520, VT525, mintty
			if ok {
				return append(append(bytes.Clone(da2Begins), "24;"...), remainder...)
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

// report returns the report that tells the program whether any viewer has the focus, or nil if
// the program knows it.
func (f *focus) report(have bool) []byte {
	now := byte('O')
	if have {
		now = 'I'
	}
	if now == f.Sent {
		return nil
	}
	return []byte{escseq.ESC, '[', now}
}

// noteRequests forgets the last report if the program has asked for focus events since, because
// it does not know the focus then.
func (f *focus) noteRequests(count uint64) {
	if count != f.RequestCount {
		*f = focus{RequestCount: count}
	}
}

func (s *Session) noteFocusSent(report []byte) {
	if len(report) > 0 {
		s.saved.focus.Sent = report[2]
		s.noteChange()
	}
}

// wantsFocus reports whether the program wants focus events, and how often it has asked for
// them.
func (d *display) wantsFocus() (on bool, asked uint64) {
	d.useRestored(func(sc *screen.Screen) { on, asked = sc.Focus() })
	return on, asked
}

// inheritFocus moves the focus of the client's earlier attachment to a. The terminal of the client
// still has the focus, and does not report it again, so the program must not receive a report.
func (a *Attachment) inheritFocus(from *Attachment) {
	a.focused = a.focused || from.focused
	from.focused = false
}

// reportFocus tells the program the focus if it has changed because a viewer has left or returned.
func (s *Session) reportFocus() {
	s.feed() // the program may have withdrawn its request for reports
	if on, asked := s.display.wantsFocus(); !on || asked != s.saved.focus.RequestCount || s.checkOpen() != nil {
		return
	}
	if report := s.saved.focus.report(s.viewers.haveFocus()); len(report) <= s.input.journal.Room() {
		s.noteFocusSent(report)
		_, _ = s.input.queue("", 0, report) // if the terminal takes no input, it is about to end
	}
}
