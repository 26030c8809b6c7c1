// Package plain keeps other people's words from acting on a terminal.
//
// A session's title, a client's name, a policy's refusal and a peer's error are
// chosen by others. Printed as they are, escape sequences in them act on the
// terminal, and characters that cannot be seen, or that turn the direction of
// writing, make a line look like another one.
//
// Invariant: what Text returns, and what a Writer passes on, is UTF-8 in which
// no character but a line feed or a tab acts on a terminal or is invisible.
//
// Not here: what a session prints, which goes to viewers as it is.
package plain

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// standIn is printed in place of a character that is not.
const standIn = '?'

// Text returns s for one line of a terminal: with "?" in place of control
// characters, line feeds and tabs among them, and of characters that are
// invisible or turn the direction of writing. Bytes that are no UTF-8 become
// U+FFFD.
func Text(s string) string {
	return clean(s, "")
}

// clean replaces unsafe characters but those of except.
func clean(s, except string) string {
	before := rune(0)
	return strings.Map(func(r rune) rune {
		was := before
		before = r
		if !isUnsafe(r) || strings.ContainsRune(except, r) || r == zeroWidthJoiner && joins(was) {
			return r
		}
		return standIn
	}, s)
}

// isUnsafe reports whether a character acts on a terminal, cannot be seen, or
// changes how those around it look.
func isUnsafe(r rune) bool {
	switch {
	case r < 0x20 || r >= 0x7f && r < 0xa0:
		return true
	case r < 0xa0:
		return false
	}
	return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

const (
	zeroWidthJoiner   = '\u200d'
	emojiPresentation = '\ufe0f'
)

// joins reports whether a zero-width joiner behind r makes one picture of two, as
// it does with emoji.
func joins(r rune) bool {
	return r == emojiPresentation || unicode.In(r, unicode.So, unicode.Sk)
}

// A Writer passes on what is safe, line feeds and tabs included, and "?" for
// each other character that Text would replace. A character may come in several
// writes; one that is not complete at the end is left out. Any goroutine may
// write.
type Writer struct {
	w io.Writer

	mu   sync.Mutex
	part []byte // the begin of a character, at most 3 bytes
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := append(w.part, p...)
	end := len(b) - incomplete(b)
	text := clean(string(b[:end]), "\n\t")
	w.part = append([]byte(nil), b[end:]...)
	if _, err := io.WriteString(w.w, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// incomplete returns how many bytes at the end of b begin a character that is
// not there yet.
func incomplete(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}

// Raw returns the writer that w passes on to if w is a Writer, else w. What is
// written there acts on the terminal: it is for what a session has printed, and
// for our own escape sequences.
func Raw(w io.Writer) io.Writer {
	if p, ok := w.(*Writer); ok {
		return p.w
	}
	return w
}

// JSON returns a writer of JSON to w. It escapes the characters that Text would
// replace, which loses nothing. Each Write has whole characters, as those of a
// json.Encoder do.
func JSON(w io.Writer) io.Writer { return jsonWriter{Raw(w)} }

type jsonWriter struct{ w io.Writer }

func (j jsonWriter) Write(p []byte) (int, error) {
	if !bytes.ContainsFunc(p, isEscaped) {
		return j.w.Write(p)
	}
	var b bytes.Buffer
	for _, r := range string(p) {
		switch {
		case !isEscaped(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	if _, err := b.WriteTo(j.w); err != nil {
		return 0, err
	}
	return len(p), nil
}

// isEscaped is isUnsafe but for the white space between values: JSON's own rules
// escape what is below 0x20 within one.
func isEscaped(r rune) bool { return r >= 0x20 && isUnsafe(r) }
