package vt

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// notice is a notification that comes in several OSC 99.
type notice struct{ id, title, body string }

// osc99 is a notification of kitty's protocol
// (sw.kovidgoyal.net/kitty/desktop-notifications): metadata, keys and values with
// colons between them, and a title or a body. Parts of one notification have the
// same id, and all but the last one say d=0. A notification that has only a title
// is told as one that has only a body, as of OSC 9.
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

// maxSized is how many bytes of text one OSC 66 may have, as in kitty.
const maxSized = 4096

// osc66 is text of another size, by kitty's protocol
// (sw.kovidgoyal.net/kitty/text-sizing-protocol): metadata, of which s is by how
// much it is enlarged, and w how many columns it takes before that, 0 if as many as
// it has; and the text. The core has no such text: it prints it as it is in the
// row of the cursor, and then spaces up to the column where kitty leaves the cursor.
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
		if err != nil || n < 0 || n > 7 { // all that there are
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

// columns returns how many columns a text takes, and how many of its bytes fit in
// at most so many.
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
