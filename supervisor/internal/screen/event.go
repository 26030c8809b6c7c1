package screen

import (
	"strings"

	"holdfast/protocol"
	"holdfast/shared/plain"
	"holdfast/supervisor/internal/picture"
	"holdfast/supervisor/internal/vt"
)

// An Event is a message of the program to its terminal.
type Event struct {
	Kind         protocol.EventKind
	Notification *protocol.Notification // set for EventNotification
}

// maxNotifications is the number of notifications that are kept until Events is called. If
// there are more, the newest ones are kept.
const maxNotifications = 8

// events collects events until take is called: at most one bell, one change of title and one
// change of directory, however many there were.
type events struct {
	title, cwd    string
	bell          bool
	titled, moved bool
	notifications []protocol.Notification

	erased Erased
}

// Erased tells when the whole normal screen was erased for the last time.
type Erased struct {
	At   uint64 `json:"at,omitempty"`   // output offset of the piece that erased it
	Line uint64 `json:"line,omitempty"` // number of the first line on the erased screen
	Ever bool   `json:"ever,omitempty"`
}

// add records an event in the output that begins at offset.
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
		e.erased = Erased{At: offset, Line: v.Line, Ever: true}
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

// Heard holds the events since it was taken last. If there were too many, the oldest are
// missing.
type Heard struct {
	Bells         int
	Notifications []protocol.Notification // the last protocol.MaxAway
	Marks         []Mark                  // in order
	Ended         uint64                  // number of MarkEnded among the marks that were dropped
	Pictures      picture.Formats         // of the pictures that were printed
}

// A Mark is a report of a shell about its prompt and commands, or tells that the lines on the
// screen were erased.
type Mark struct {
	Kind MarkKind
	At   uint64 // output offset of the piece with the report
	Line string // the command, for MarkLine and MarkStarted, if the shell has reported it
	Code int    // exit code, for MarkEnded; -1 if the shell has not reported it
	Cwd  string // the directory that was reported last, for MarkStarted; "" if it is longer than protocol.MaxTitle

	Begin, End uint64             // offsets of the report, for MarkStarted and MarkEnded
	Place      protocol.LinePlace // of the cursor, for MarkStarted and MarkEnded; of the first erased line, for MarkErased
}

// MarkKind is the kind of a Mark.
type MarkKind int

// The kinds of marks.
const (
	MarkPrompt  MarkKind = iota // the shell waits for a command
	MarkLine                    // the shell reports the command that starts next
	MarkStarted                 // the shell runs a command
	MarkEnded                   // the command has ended
	MarkErased                  // the whole normal screen was erased
	MarkReport                  // a program reports its status; Line has the report
	MarkReset                   // the terminal was reset
)

// maxMarks is the number of marks that are kept until Heard is called. If there are more, the
// older half is dropped.
const maxMarks = 256

// add records an event in the output that begins at offset. cwd is the directory that was
// reported last.
func (h *Heard) add(v vt.Event, offset uint64, cwd string) {
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
		m := Mark{Kind: MarkStarted, At: offset, Line: oneLine(v.Text)}
		if len(cwd) <= protocol.MaxTitle {
			m.Cwd = cwd
		}
		h.mark(commandMark(m, v))
	case vt.CommandEnded:
		h.mark(commandMark(Mark{Kind: MarkEnded, At: offset, Code: v.Code}, v))
	case vt.Erased:
		h.erase(Mark{Kind: MarkErased, At: offset, Place: protocol.LinePlace{Line: v.Line}})
	case vt.ProgramReported:
		h.mark(Mark{Kind: MarkReport, At: offset, Line: v.Text})
	case vt.FullReset:
		h.mark(Mark{Kind: MarkReset, At: offset})
	case vt.PicturePrinted:
		h.Pictures |= picture.Formats(v.Code)
	}
}

// commandMark returns m with the place of the report v. m.At is the offset of the piece that has
// the end of the report.
func commandMark(m Mark, v vt.Event) Mark {
	m.Begin, m.End = uint64(max(0, int64(m.At)+int64(v.Begin))), m.At+uint64(v.End)
	m.Place = protocol.LinePlace{Line: v.Line, Byte: v.Byte}
	return m
}

// erase records a MarkErased. If the last mark is another one, the two become one.
func (h *Heard) erase(m Mark) {
	if n := len(h.Marks); n > 0 && h.Marks[n-1].Kind == MarkErased {
		last := &h.Marks[n-1]
		last.Place.Line = min(last.Place.Line, m.Place.Line)
		return
	}
	h.mark(m)
}

func (h *Heard) notify(n protocol.Notification) {
	if len(h.Notifications) == protocol.MaxAway {
		h.Notifications = h.Notifications[1:]
	}
	h.Notifications = append(h.Notifications, n)
}

func (h *Heard) mark(m Mark) {
	if len(h.Marks) == maxMarks {
		h.dropMarks(maxMarks / 2)
	}
	h.Marks = append(h.Marks, m)
}

// dropMarks drops the first n marks. One MarkErased takes the place of those that were dropped.
func (h *Heard) dropMarks(n int) {
	kept := h.Marks[:0]
	for _, m := range h.Marks[:n] {
		switch {
		case m.Kind == MarkEnded:
			h.Ended++
		case m.Kind == MarkErased && len(kept) == 0:
			kept = append(kept, m)
		case m.Kind == MarkErased:
			kept[0].Place.Line = min(kept[0].Place.Line, m.Place.Line)
		}
	}
	h.Marks = append(kept, h.Marks[n:]...)
}

// oneLine returns a command in one line: line feeds and tabs become spaces, and other controls
// are removed.
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

// Heard returns the events since the last call. ok reports whether there were any.
func (s *Screen) Heard() (h Heard, ok bool) {
	h, s.heard = s.heard, Heard{}
	return h, h.Bells > 0 || h.Notifications != nil || h.Marks != nil || h.Pictures != 0
}

// clean returns at most n bytes of s without control characters. It cuts only between
// characters.
func clean(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if isControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	return plain.Cut(s, n)
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }
