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
}

func (e *events) add(v vt.Event) {
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
		e.notifications = append(e.notifications, protocol.Notification{
			Title: clean(v.Title, protocol.MaxTitle), Body: clean(v.Text, protocol.MaxTitle),
		})
	}
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
