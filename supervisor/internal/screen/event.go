package screen

import (
	"strings"
	"unicode/utf8"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vt"
)

// An Event is something that the program has told its terminal.
type Event struct {
	Kind         protocol.EventKind
	Notification *protocol.Notification // of EventNotification
}

// maxNotifications is how many are kept until they are asked for; the newest
// count.
const maxNotifications = 8

// events collects what happens until somebody asks: of bells, titles and
// directories one each, however many there were.
type events struct {
	title, cwd    string
	bell          bool
	titled, moved bool
	notifications []protocol.Notification

	erased erased
}

// erased is when the whole of the normal screen was erased last.
type erased struct {
	At   uint64 `json:"at,omitempty"`   // the offset of what did it
	Line uint64 `json:"line,omitempty"` // the number of the first line there was
	Ever bool   `json:"ever,omitempty"`
}

// add notes an event, which came in what was printed from an offset on.
func (e *events) add(v vt.Event, offset uint64) {
	switch v.Kind {
	case vt.Bell:
		e.bell = true
	case vt.TitleChanged:
		title := clean(v.Text, protocol.MaxTitle)
		e.titled = e.titled || title != e.title
		e.title = title
	case vt.WorkDirChanged:
		e.cwd, e.moved = clean(v.Text, protocol.MaxCwdBytes), true
	case vt.Notification:
		if len(e.notifications) == maxNotifications {
			e.notifications = e.notifications[1:]
		}
		e.notifications = append(e.notifications, notification(v))
	case vt.Erased:
		e.erased = erased{At: offset, Line: v.Line, Ever: true}
	}
}

func notification(v vt.Event) protocol.Notification {
	return protocol.Notification{Title: clean(v.Title, protocol.MaxTitle), Body: clean(v.Text, protocol.MaxTitle)}
}

func (e *events) take() []Event {
	if !e.bell && !e.titled && !e.moved && len(e.notifications) == 0 {
		return nil
	}
	var out []Event
	if e.titled {
		out = append(out, Event{Kind: protocol.EventTitle})
	}
	if e.moved {
		out = append(out, Event{Kind: protocol.EventCwd})
	}
	for _, n := range e.notifications {
		out = append(out, Event{protocol.EventNotification, &n})
	}
	if e.bell {
		out = append(out, Event{Kind: protocol.EventBell})
	}
	e.bell, e.titled, e.moved, e.notifications = false, false, false, nil
	return out
}

// Heard is what the program has told since it was taken last, all of it but where
// that is more than is kept.
type Heard struct {
	Bells         int
	Notifications []protocol.Notification // the last protocol.MaxAway
	Marks         []Mark                  // in order
	Ended         uint64                  // commands that have, in marks that were left out before these
}

// A Mark is what a shell has told of its prompt and commands.
type Mark struct {
	Kind MarkKind
	At   uint64 // the offset of what it came in
	Line string // of Line and Started: the command, where that is told
	Code int    // of Ended; -1 where it was not told
}

// MarkKind says what a Mark is.
type MarkKind int

// The kinds of marks.
const (
	MarkPrompt  MarkKind = iota // it waits for a command
	MarkLine                    // the command that starts next
	MarkStarted                 // it runs a command
	MarkEnded                   // the command has ended
)

// maxMarks is how many marks are kept until they are taken. Of more that come at
// once the older half is left out.
const maxMarks = 256

// add notes an event, which came in what was printed from an offset on.
func (h *Heard) add(v vt.Event, offset uint64) {
	switch v.Kind {
	case vt.Bell:
		h.Bells++
	case vt.Notification:
		h.notify(notification(v))
	case vt.PromptStarted, vt.PromptEnded:
		h.mark(Mark{Kind: MarkPrompt, At: offset})
	case vt.CommandLine:
		h.mark(Mark{Kind: MarkLine, At: offset, Line: oneLine(v.Text)})
	case vt.CommandStarted:
		h.mark(Mark{Kind: MarkStarted, At: offset, Line: oneLine(v.Text)})
	case vt.CommandEnded:
		h.mark(Mark{Kind: MarkEnded, At: offset, Code: v.Code})
	}
}

func (h *Heard) notify(n protocol.Notification) {
	if len(h.Notifications) == protocol.MaxAway {
		h.Notifications = h.Notifications[1:]
	}
	h.Notifications = append(h.Notifications, n)
}

func (h *Heard) mark(m Mark) {
	if len(h.Marks) == maxMarks {
		for _, m := range h.Marks[:maxMarks/2] {
			if m.Kind == MarkEnded {
				h.Ended++
			}
		}
		h.Marks = append(h.Marks[:0], h.Marks[maxMarks/2:]...)
	}
	h.Marks = append(h.Marks, m)
}

// oneLine returns a command without what is no character of it; what ends its
// lines is a space.
func oneLine(s string) string {
	if s == "" {
		return ""
	}
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, s)
	return clean(strings.TrimSpace(s), protocol.MaxTitle)
}

// Heard returns, once, all that was told since; ok is false for nothing.
func (s *Screen) Heard() (h Heard, ok bool) {
	h, s.heard = s.heard, Heard{}
	return h, h.Bells > 0 || h.Notifications != nil || h.Marks != nil
}

// clean returns at most n bytes of s, whole characters, none of them a control
// character.
func clean(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if isControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	return cut(s, n)
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }

// cut returns at most n bytes of the valid UTF-8 in s, whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
