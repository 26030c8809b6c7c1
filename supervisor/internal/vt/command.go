package vt

import (
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// promptMark executes OSC 133 (FinalTerm). A begins a prompt, B ends it, C begins the output
// of a command, D ends it. kitty and fish send the command line as a parameter of C.
func (t *Term) promptMark(arg string) {
	kind, rest, _ := strings.Cut(arg, ";")
	switch kind {
	case "A":
		t.event(Event{Kind: PromptStarted})
	case "B":
		t.event(Event{Kind: PromptEnded})
	case "C":
		t.commandEvent(Event{Kind: CommandStarted, Text: commandLine(rest)})
	case "D":
		code, _, _ := strings.Cut(rest, ";")
		n, err := strconv.ParseInt(code, 10, 32)
		if err != nil {
			n = -1
		}
		t.commandEvent(Event{Kind: CommandEnded, Code: int(n)})
	}
}

// To find the cursor's place takes time in proportion to the rows, and to the text of the cursor's line. Therefore each
// byte of output allows byteWork for it. What is allowed adds up to at most maxPlaceWork.
const (
	placeWork    = 6 // cost of a byte of the cursor's line
	maxPlaceWork = 1 << 20
)

// commandEvent publishes an event of the OSC that has just been parsed, with its place in the
// output and the cursor's place in the lines. If the output consists of such OSCs almost alone, some have the cursor's
// place at an earlier one.
func (t *Term) commandEvent(e Event) {
	const introducer = 2 // ESC and ], or U+009D
	e.Begin, e.End = t.at-len(t.str)-introducer, t.at+t.terminator
	if t.placeRoom > 0 {
		before := t.work
		t.placeLine, t.placeByte = t.CursorPlace()
		t.placeRoom -= t.work - before
	}
	e.Line, e.Byte = t.placeLine, t.placeByte
	t.event(e)
}

// commandLine returns the command line in the parameters of an OSC 133 C, or "" if they have
// none. The value of cmdline is quoted for a shell; that of cmdline_url is escaped as in a
// URL.
func commandLine(params string) string {
	for p := range strings.SplitSeq(params, ";") {
		if v, ok := strings.CutPrefix(p, "cmdline_url="); ok {
			if line, err := url.PathUnescape(v); err == nil && utf8.ValidString(line) {
				return clip([]byte(line))
			}
		}
	}
	// A quoted command line may contain semicolons, so it must be the last parameter.
	for from := params; from != ""; {
		if v, ok := strings.CutPrefix(from, "cmdline="); ok {
			return clip([]byte(unquote(v)))
		}
		_, from, _ = strings.Cut(from, ";")
	}
	return ""
}

// unquote removes a shell's quotes from s, as printf %q of bash and zsh adds them.
func unquote(s string) string {
	out := make([]byte, 0, min(len(s), maxTitle))
	const none = 0
	quote, dollar := byte(none), false // dollar is set within $'...'
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote == none && c == '$' && i+1 < len(s) && s[i+1] == '\'':
			quote, dollar = '\'', true
			i++
		case quote == none && (c == '\'' || c == '"'):
			quote, dollar = c, false
		case quote != none && c == quote:
			quote = none
		case c == '\\' && i+1 < len(s) && dollar && quote != none:
			b, n := unescapeByte(s[i+1:])
			out = append(out, b)
			i += n
		case c == '\\' && i+1 < len(s) && quote != '\'':
			i++
			out = append(out, s[i])
		default:
			out = append(out, c)
		}
	}
	return string(out)
}

// unescapeByte returns the byte that an escape in $'...' stands for, and the number of bytes
// that the escape has behind its backslash.
func unescapeByte(s string) (b byte, n int) {
	if i := strings.IndexByte("abefnrtv", s[0]); i >= 0 {
		return "\a\b\x1b\f\n\r\t\v"[i], 1
	}
	if s[0] == 'E' {
		return 0x1b, 1
	}
	base, from, most := 8, 0, 3
	if s[0] == 'x' {
		base, from, most = 16, 1, 2
	}
	for n = from; n < len(s) && n < from+most; n++ {
		if _, err := strconv.ParseUint(s[n:n+1], base, 8); err != nil {
			break
		}
	}
	if v, err := strconv.ParseUint(s[from:n], base, 9); err == nil {
		return byte(v), n
	}
	return s[0], 1
}

// unescapeCommand reverses the escapes of VS Code's shell integration: two backslashes are one
// backslash, and \x with two hexadecimal digits is a byte.
func unescapeCommand(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			if s[i+1] == '\\' {
				out = append(out, '\\')
				i++
				continue
			}
			if s[i+1] == 'x' && i+3 < len(s) {
				if v, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
					out = append(out, byte(v))
					i += 3
					continue
				}
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}
