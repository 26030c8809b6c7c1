// Package plain makes texts of other users and programs safe for a terminal and for a shell.
//
// Peers choose the title of a session, the name of a client, the refusal of a policy and the
// text of an error. If such a text is printed unchanged, its escape sequences control the
// terminal, and characters that are invisible or change the direction of writing can make a
// line look like another one.
//
// Invariant: a text that Text returns or a Writer writes is UTF-8. It contains no invisible
// character and no control character except line feed and tab.
//
// Not here: the output of a session, which viewers receive unchanged.
package plain

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// standIn replaces an unsafe character.
const standIn = '?'

// Text returns s for one line of a terminal. It replaces control characters (line feeds and
// tabs, too), invisible characters and characters that change the direction of writing by "?",
// and bytes that are not UTF-8 by U+FFFD.
func Text(s string) string {
	return clean(s, "")
}

// clean replaces the unsafe characters of s, unless they are in except.
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

// isUnsafe reports whether a character controls the terminal, is invisible, or changes the
// appearance of the characters around it.
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

// joins reports whether a zero-width joiner after r joins two pictures to one, as in emoji.
func joins(r rune) bool {
	return r == emojiPresentation || unicode.In(r, unicode.So, unicode.Sk)
}

// Cut returns the first bytes of s, at most n, without bytes that are not UTF-8 and without a part of a character.
func Cut(s string, n int) string {
	return strings.ToValidUTF8(s[:min(len(s), n)], "")
}

// Count returns a number with its noun, which is in the singular.
func Count[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ShellWord returns s as one word of a POSIX shell's command line. It quotes s if s is empty or
// contains a character that may have a meaning for the shell.
func ShellWord(s string) string {
	if s != "" && !strings.ContainsFunc(s, hasMeaning) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// hasMeaning reports whether r may have a meaning for a shell if it is not quoted.
func hasMeaning(r rune) bool {
	return r >= utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-./:=@%+,", r)
}

// A Writer writes text to another writer and replaces the same characters as Text by "?", except
// line feeds and tabs. A character may be split between several Writes. If a character is still
// incomplete after the last Write, it is dropped. Write is safe for concurrent use.
type Writer struct {
	w io.Writer

	mu   sync.Mutex
	part []byte // the first bytes of an incomplete character, at most 3
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Stdout and Stderr write to the standard output and the standard error of the process. A command
// writes all text for people to them, because titles, names, reasons and errors come from other
// programs and must not control the terminal.
var (
	Stdout = NewWriter(standard)
	Stderr = NewWriter(os.Stderr)
)

// StdoutError returns the first error of a write to the standard output by way of Stdout, Raw or JSON, or
// nil. A command that ignores the errors of its writes must not end as if the user had its output.
func StdoutError() error {
	standard.mu.Lock()
	defer standard.mu.Unlock()
	return standard.failed
}

// IsStdout reports whether w is the standard output without escaping: Raw(Stdout).
func IsStdout(w io.Writer) bool { return w == io.Writer(standard) }

var standard = &output{file: os.Stdout}

// An output writes to a file, and remembers the first error.
type output struct {
	file *os.File

	mu     sync.Mutex
	failed error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.failed = cmp.Or(o.failed, err)
	}
	return n, err
}

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

// incomplete returns the number of bytes at the end of b that belong to an incomplete character.
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

// Raw returns the writer behind w if w is a Writer, and w otherwise. Text that is written to it
// controls the terminal. It is meant for the output of a session and for the program's own
// escape sequences.
func Raw(w io.Writer) io.Writer {
	if p, ok := w.(*Writer); ok {
		return p.w
	}
	return w
}

// JSON returns a writer of JSON to w. It escapes the characters that Text would replace, so that
// no information is lost. Each Write must contain complete characters, as those of a json.Encoder
// do.
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

// isEscaped reports whether JSON must escape r: if r is unsafe and not below 0x20. An encoder
// has escaped the characters below 0x20 in values, and between values they are white space.
func isEscaped(r rune) bool { return r >= 0x20 && isUnsafe(r) }
