package client

import (
	"bytes"
	"cmp"
	"context"
	"unicode/utf8"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// pasteAtOnce is how much of a text is one paste, in bytes.
const pasteAtOnce = 256 << 10

// Paste pastes text into a session, exactly once: line ends are sent as Enter is, and the
// text is framed where the program has asked for that. It returns when all was accepted;
// what is longer than 256 KiB comes as several pastes, each of whole lines where they are
// shorter than that.
//
// Errors: those of Type, and unsupported where the proxy or its supervisor is too old;
// then nothing was typed.
func (c *Client) Paste(ctx context.Context, id protocol.SessionID, text []byte) error {
	if err := c.automation(ctx, id); err != nil {
		return err
	}
	writer := protocol.NewToken(8)
	var warned error
	for offset := 0; offset < len(text); {
		part := pasted(text[offset:])
		err := c.typeWhole(ctx, &api.Input{SessionID: id, Data: part, Writer: writer, Offset: uint64(offset), Paste: true})
		if err != nil && protocol.CodeOf(err) != protocol.CodeLineTooLong {
			return err
		}
		warned = cmp.Or(warned, err)
		offset += len(part)
	}
	return warned
}

// pasted is what of a text is pasted next.
func pasted(text []byte) []byte {
	if len(text) <= pasteAtOnce {
		return text
	}
	part := text[:pasteAtOnce]
	if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
		return part[:i+1]
	}
	n := len(part) - 1 // what may be half of a line end or a character stays for the next
	for n > len(part)-utf8.UTFMax && !utf8.RuneStart(part[n]) {
		n--
	}
	return part[:n]
}

// Keys presses keys in a session, exactly once, by name: Enter, C-c, F1 (see SPEC.md),
// as the modes of its terminal have them.
//
// Errors: those of Paste, and invalid_argument for what is no key.
func (c *Client) Keys(ctx context.Context, id protocol.SessionID, keys ...string) error {
	if err := c.automation(ctx, id); err != nil {
		return err
	}
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

// typeWhole makes a request that is taken whole or not at all, until it is.
func (c *Client) typeWhole(ctx context.Context, m *api.Input) error {
	for {
		_, err := ask[*api.Accepted](ctx, c, m, true)
		if err == nil || protocol.CodeOf(err) != protocol.CodeInputFull && !lost(err) || c.isClosed() {
			return err
		}
		if err := pause(ctx, backoffMax/10); err != nil { // the child does not read as fast as we type
			return err
		}
	}
}

// automation returns unsupported where keys and pastes would be taken for something else.
// A proxy that has no supervisor yet does not say what that knows; it can be asked.
func (c *Client) automation(ctx context.Context, id protocol.SessionID) error {
	conn, err := c.connection(ctx)
	if err != nil || conn.welcome.Capabilities.Has(protocol.CapAutomation) {
		return err
	}
	_, err = c.Mark(ctx, id)
	return err
}
