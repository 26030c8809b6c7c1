// Package echo recognises the echo of input on a session's screen, so that a program that waits for the
// answer to its input does not take the echo for it.
package echo

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// wait is how long a program may take to echo input. If a program echoes nothing, for example when it
// asks for a password, MarkBehind takes that much longer.
const wait = time.Second

// Of returns the echo that the screen will show of data, which is sent before Enter. It returns "" if
// the echo cannot be recognised: text with a line break may take effect before its end, so its echo and
// its effect cannot be distinguished.
func Of(data []byte) string {
	if bytes.ContainsAny(data, "\r\n") || !utf8.Valid(data) {
		return ""
	}
	text := strings.TrimRight(string(data), " ") // the screen drops blanks at the end of a line
	if i := strings.LastIndexFunc(text, unicode.IsControl); i >= 0 {
		text = text[i+1:]
	}
	for len(regexp.QuoteMeta(text)) > protocol.MaxPattern {
		text = text[len(text)/2:]
		text = strings.TrimLeftFunc(text, func(r rune) bool { return r == utf8.RuneError })
	}
	return text
}

// MarkBehind waits until the screen shows an echo, and returns a mark after it, so that a line that does
// not change any more is ignored. If the session has ended, MarkBehind returns the mark before the input.
// If the echo does not appear within a second, the mark is after the output so far.
func MarkBehind(ctx context.Context, c *client.Client, id protocol.SessionID, echo string, before *protocol.MarkInfo) (*protocol.MarkInfo, error) {
	spec := protocol.AwaitSpec{SessionID: id, Text: regexp.QuoteMeta(echo), Since: before.Mark}
	shown, err := c.Await(ctx, spec, wait)
	switch {
	case protocol.CodeOf(err) == protocol.CodeTimeout:
	case err != nil:
		return nil, err
	case shown.Exit != nil:
		return before, nil
	}
	return c.Mark(ctx, id)
}
