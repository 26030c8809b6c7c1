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

// pasteAtOnce is the largest number of bytes in one paste.
const pasteAtOnce = 256 << 10

// Paste pastes text into a session, exactly once. Line ends are sent as Enter, and the text is
// bracketed if the program has enabled bracketed paste. Paste returns when the session has
// accepted all of it. A text longer than 256 KiB is sent as several pastes, each of which ends at
// a line end unless a line is longer than that.
//
// The errors are those of Type.
func (c *Client) Paste(ctx context.Context, id protocol.SessionID, text []byte) error {
	writer := protocol.NewToken(8)
	var warned error
	for offset := 0; offset < len(text); {
		part := nextPaste(text[offset:])
		err := c.typeWhole(ctx, &api.Input{SessionID: id, Data: part, Writer: writer, Offset: uint64(offset), Paste: true})
		if err != nil && protocol.CodeOf(err) != protocol.CodeLineTooLong {
			return err
		}
		warned = cmp.Or(warned, err)
		offset += len(part)
	}
	return warned
}

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

// Keys presses keys in a session, exactly once. Keys have names: Enter, C-c, F1 (see SPEC.md).
// The modes of the session's terminal determine their bytes.
//
// The errors are those of Paste, and invalid_argument if a name is unknown.
func (c *Client) Keys(ctx context.Context, id protocol.SessionID, keys ...string) error {
	writer := protocol.NewToken(8)
	for offset := 0; offset < len(keys); {
		part := keys[offset:min(len(keys), offset+protocol.MaxKeys)]
		if err := c.typeWhole(ctx, &api.Input{SessionID: id, Data: []byte{}, Writer: writer, Offset: uint64(offset), Keys: part}); err != nil {
			return err
		}
		offset += len(part)
	}
	return nil
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
