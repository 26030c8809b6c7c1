package vt

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// notice is a notification that several OSC 99 build together.
type notice struct{ id, title, body string }

// osc99 executes OSC 99, a notification of kitty's protocol
// (sw.kovidgoyal.net/kitty/desktop-notifications). Its argument has metadata, which are keys
// and values with colons between them, and a title or a body. The parts of one notification
// have the same id, and all parts but the last one have d=0. If a notification has a title and
// no body, its title is published as the body, so that it equals a notification of OSC 9.
func (t *Term) osc99(arg string) {
	meta, text, ok := strings.Cut(arg, ";")
	if !ok {
		return
	}
	id, kind, done, encoded := "", "title", true, false
	for pair := range strings.SplitSeq(meta, ":") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "i":
			id = clip([]byte(value))
		case "p":
			kind = value
		case "d":
			done = value != "0"
		case "e":
			encoded = value == "1"
		}
	}
	if kind == "?" || kind == "alive" || kind == "close" {
		return
	}
	if encoded {
		plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
		if err != nil {
			return
		}
		text = string(plain)
	}
	n := &t.notice
	if n.id != id {
		*n = notice{id: id}
	}
	switch kind {
	case "title":
		n.title = clip([]byte(n.title + text))
	case "body":
		n.body = clip([]byte(n.body + text))
	}
	if !done {
		return
	}
	e := Event{Kind: Notification, Title: n.title, Text: n.body}
	if e.Text == "" {
		e.Title, e.Text = "", e.Title
	}
	*n = notice{}
	if e.Text != "" {
		t.event(e)
	}
}

// maxSized is the largest text of one OSC 66 in bytes, as in kitty.
const maxSized = 4096

// osc66 executes OSC 66, text of another size by kitty's protocol
// (sw.kovidgoyal.net/kitty/text-sizing-protocol). In its metadata, s is the factor of
// enlargement, and w is the number of columns before it is enlarged; if w is 0, the text
// decides. The core has no enlarged text: it prints the text in the cursor's row in the usual
// size, followed by spaces up to the column in which kitty leaves the cursor.
func (t *Term) osc66(arg []byte) {
	meta, text, ok := bytes.Cut(arg, []byte(";"))
	if !ok || len(text) > maxSized || !utf8.Valid(text) {
		return
	}
	text = bytes.ReplaceAll(text, []byte{0x7f}, nil)
	scale, width := 1, 0
	for pair := range strings.SplitSeq(string(meta), ":") {
		key, value, _ := strings.Cut(pair, "=")
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > 7 { // larger values are not defined
			continue
		}
		switch key {
		case "s":
			scale = max(n, 1)
		case "w":
			width = n
		}
	}
	t.printing = false
	t.join = 0
	defer func() { t.printing = false }()
	has, _ := t.columns(text, len(text))
	b := t.b
	total := scale * cmp.Or(width, has)
	if total == has || total > t.cols {
		t.printAll(text)
		return
	}
	if b.x+total > t.cols {
		if t.modes.Wraparound {
			t.wrap(0)
		} else {
			b.x = t.cols - total
		}
	}
	_, fits := t.columns(text, total)
	has, _ = t.columns(text[:fits], fits)
	t.printAll(text[:fits])
	t.printAll(bytes.Repeat([]byte{' '}, total-has))
}

// columns returns the number of columns that a text takes, and the number of its bytes that
// fit into at most most columns.
func (t *Term) columns(text []byte, most int) (columns, bytes int) {
	var state joinState
	for i := 0; i < len(text); {
		ch, size := utf8.DecodeRune(text[i:])
		before := state
		state = joinWidth(ch, before, t.modes.Graphemes)
		columns += state.width()
		if state.joins() {
			columns -= before.width()
		}
		if i += size; columns <= most {
			bytes = i
		}
	}
	return columns, bytes
}
