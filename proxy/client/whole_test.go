package client

import (
	"bytes"
	"cmp"
	"reflect"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// A paste is repeated without changes until the session accepts it.
func TestPasteAsksAgain(t *testing.T) {
	f, c, p := dialed(t)
	done := startErr(t, func() error { return c.Paste(t.Context(), "s", []byte("a\nb")) })
	first := want[*api.Input](p)
	if !first.Paste || string(first.Data) != "a\nb" || first.Writer == "" || first.Offset != 0 || len(first.Keys) > 0 {
		t.Errorf("asked %+v", first)
	}
	_ = p.Close()
	p = f.accept()
	for _, answer := range []request{
		&api.Error{Error: protocol.Error{Code: protocol.CodeInputFull, Offset: new(uint64(0)), Retryable: true}},
		&api.Error{Error: unreachable},
		&api.Accepted{Offset: 3},
	} {
		m := want[*api.Input](p)
		p.answer(m, answer)
		m.RequestID, first.RequestID = "", ""
		if !reflect.DeepEqual(m, first) {
			t.Errorf("the request was %+v, and then %+v", first, m)
		}
	}
	wantErr(t, "pasted", done(), nil)
}

// A long text is divided after line ends, or else between characters.
func TestPasteInParts(t *testing.T) {
	line := strings.Repeat("x", 99) + "\n"
	for _, text := range []string{
		strings.Repeat(line, 2+pasteAtOnce/100), strings.Repeat("世", pasteAtOnce/2), "x" + strings.Repeat("\r", 3*pasteAtOnce), strings.Repeat("x", pasteAtOnce-1) + "\r\n",
	} {
		var got []byte
		for rest := []byte(text); len(rest) > 0; {
			part := nextPaste(rest)
			rest = rest[len(part):]
			got = append(got, part...)
			if len(part) == 0 || len(part) > pasteAtOnce || len(rest) > 0 && (rest[0] == '\n' || rest[0] == "世"[1] || rest[0] == "世"[2]) {
				t.Fatalf("a part of %d bytes, before %.4q", len(part), rest)
			}
		}
		if !bytes.Equal(got, []byte(text)) {
			t.Errorf("%d bytes of %d", len(got), len(text))
		}
	}
}

func TestKeysAreCounted(t *testing.T) {
	_, c, p := dialed(t)
	keys := make([]string, protocol.MaxKeys+2)
	for i := range keys {
		keys[i] = "C-c"
	}
	done := startErr(t, func() error { return c.Keys(t.Context(), "s", keys...) })
	for _, tt := range []struct{ offset, n int }{{0, protocol.MaxKeys}, {protocol.MaxKeys, 2}} {
		m := want[*api.Input](p)
		if int(m.Offset) != tt.offset || len(m.Keys) != tt.n || len(m.Data) > 0 {
			t.Errorf("the request has %d keys at %d, want %+v", len(m.Keys), m.Offset, tt)
		}
		p.answer(m, &api.Accepted{Offset: m.Offset + uint64(len(m.Keys))})
	}
	wantErr(t, "keys", done(), nil)
}

// The pieces of a sequence have one writer, and all but the last hold back the input of others.
func TestSequence(t *testing.T) {
	_, c, p := dialed(t)
	done := startErr(t, func() error {
		q := c.Sequence("s")
		return cmp.Or(q.Type(t.Context(), []byte("ab"), true), q.Paste(t.Context(), []byte("c"), true), q.Keys(t.Context(), false, "Enter"))
	})
	writer := ""
	for i, piece := range []api.Input{
		{Data: []byte("ab"), HoldMS: protocol.MaxHoldMS},
		{Data: []byte("b"), HoldMS: protocol.MaxHoldMS, Offset: 1}, // the remainder
		{Data: []byte("c"), HoldMS: protocol.MaxHoldMS, Offset: 2, Paste: true},
		{Data: []byte{}, Offset: 3, Keys: []string{"Enter"}},
	} {
		m := want[*api.Input](p)
		if i == 0 {
			writer = m.Writer
		}
		piece.Request, piece.SessionID, piece.Writer = m.Request, "s", writer
		equal(t, "input", *m, piece)
		p.answer(m, &api.Accepted{Offset: uint64(i + 1)})
	}
	wantErr(t, "sequence", done(), nil)
}
