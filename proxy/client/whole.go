package client

import (
	"bytes"
	"cmp"
	"context"
	"time"
	"unicode/utf8"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// Type sends input to a session without an attachment, exactly once, and returns when the session
// has accepted all of it. If the terminal will cut a line of the input, the error is
// line_too_long; in that case, too, all of the input was accepted.
func (c *Client) Type(ctx context.Context, id protocol.SessionID, data []byte) error {
	return c.Sequence(id).Type(ctx, data, false)
}

// Paste pastes text into a session, exactly once. Line ends are sent as Enter, and the text is
// bracketed if the program has enabled bracketed paste. Paste returns when the session has
// accepted all of it. A text longer than 256 KiB is sent as several pastes, each of which ends at
// a line end unless a line is longer than that.
//
// The errors are those of Type.
func (c *Client) Paste(ctx context.Context, id protocol.SessionID, text []byte) error {
	return c.Sequence(id).Paste(ctx, text, false)
}

// Keys presses keys in a session, exactly once. Keys have names: Enter, C-c, F1 (see SPEC.md).
// The modes of the session's terminal determine their bytes.
//
// The errors are those of Paste, and invalid_argument if a name is unknown.
func (c *Client) Keys(ctx context.Context, id protocol.SessionID, keys ...string) error {
	return c.Sequence(id).Keys(ctx, false, keys...)
}

// A Sequence sends pieces of input to a session that belong together, such as a text and then Enter: no input that others send
// by Type, Paste, Keys or a Sequence comes between them. Each piece but the last is sent with more, and must follow the
// one before it within 2 s. What the viewers of the session type meanwhile is not held back.
// A Sequence must be used by one goroutine at a time.
type Sequence struct {
	c      *Client
	id     protocol.SessionID
	writer string
	offset uint64 // of the next byte or key
}

// Sequence returns a sequence that has sent nothing yet.
func (c *Client) Sequence(id protocol.SessionID) *Sequence {
	return &Sequence{c: c, id: id, writer: protocol.NewToken(8)}
}

// Type sends data, as Client.Type does. more tells that another piece follows.
func (q *Sequence) Type(ctx context.Context, data []byte, more bool) error {
	const atOnce = 256 << 10
	var warned error
	start, end := q.offset, q.offset+uint64(len(data))
	for since := time.Now(); q.offset < end; {
		part := data[q.offset-start : min(end, q.offset+atOnce)-start]
		to, err := q.c.typePart(ctx, q.input(part, more || q.offset+atOnce < end))
		if protocol.CodeOf(err) == protocol.CodeLineTooLong {
			warned, err = cmp.Or(warned, err), nil
		}
		if err == nil {
			q.offset, since = to, time.Now()
			continue
		}
		if q.c.isClosed() {
			return err
		}
		accepted, fatal := acceptedBy(err, q.offset)
		if fatal != nil {
			return fatal
		}
		if accepted != q.offset {
			q.offset, since = max(accepted, start), time.Now()
		}
		if err := q.c.awaitRoom(ctx, q.id, err, since); err != nil {
			return err
		}
	}
	return warned
}

// input returns a request with the next piece of input.
func (q *Sequence) input(data []byte, more bool) *api.Input {
	m := &api.Input{SessionID: q.id, Data: data, Writer: q.writer, Offset: q.offset}
	if more {
		m.HoldMS = protocol.MaxHoldMS
	}
	return m
}

// Paste pastes text, as Client.Paste does. more tells that another piece follows.
func (q *Sequence) Paste(ctx context.Context, text []byte, more bool) error {
	var warned error
	for len(text) > 0 {
		part := nextPaste(text)
		text = text[len(part):]
		m := q.input(part, more || len(text) > 0)
		m.Paste = true
		err := q.c.typeWhole(ctx, m)
		if err != nil && protocol.CodeOf(err) != protocol.CodeLineTooLong {
			return err
		}
		warned = cmp.Or(warned, err)
		q.offset += uint64(len(part))
	}
	return warned
}

// Keys presses keys, as Client.Keys does. more tells that another piece follows.
func (q *Sequence) Keys(ctx context.Context, more bool, keys ...string) error {
	for len(keys) > 0 {
		part := keys[:min(len(keys), protocol.MaxKeys)]
		keys = keys[len(part):]
		m := q.input([]byte{}, more || len(keys) > 0)
		m.Keys = part
		if err := q.c.typeWhole(ctx, m); err != nil {
			return err
		}
		q.offset += uint64(len(part))
	}
	return nil
}

// pasteAtOnce is the largest number of bytes in one paste.
const pasteAtOnce = 256 << 10

// nextPaste returns the part of a text that is pasted next.
func nextPaste(text []byte) []byte {
	if len(text) <= pasteAtOnce {
		return text
	}
	part := text[:pasteAtOnce]
	if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
		return part[:i+1]
	}
	n := len(part) - 1 // the last bytes may be half of a line end or of a character, and belong to the next paste
	for n > len(part)-utf8.UTFMax && !utf8.RuneStart(part[n]) {
		n--
	}
	return part[:n]
}

// typeWhole repeats a request until it is accepted; the session accepts such a request as a whole
// or not at all.
func (c *Client) typeWhole(ctx context.Context, m *api.Input) error {
	for since := time.Now(); ; {
		_, err := ask[*api.Accepted](ctx, c, m)
		if err == nil || protocol.CodeOf(err) != protocol.CodeInputFull && !lost(err) || c.isClosed() {
			return err
		}
		if err := c.awaitRoom(ctx, m.SessionID, err, since); err != nil {
			return err
		}
	}
}
