package web

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/gobwas/ws"

	"holdfast/protocol/frame"
)

// headroom is the number of bytes before the payload of each returned message; a frame's header
// fits there.
const headroom = frame.HeaderLen

// A violation is an error of the peer, with the status that closes the WebSocket.
type violation struct {
	status ws.StatusCode
	reason string
}

func (v *violation) Error() string { return fmt.Sprintf("%d: %s", v.status, v.reason) }

func newViolation(err error) error { return &violation{ws.StatusProtocolError, err.Error()} }

// A reader reads a client's messages from a byte stream. After a timeout it may be used again,
// because it keeps the bytes that have arrived.
//
// Invariant: a reader holds no more memory than a constant times the bytes that have arrived,
// even if the peer announces a greater length. It holds at most one message of max bytes and one
// frame of max bytes.
type reader struct {
	r   io.Reader
	max int          // largest payload of a message
	buf frame.Buffer // the bytes that have arrived and were not returned yet

	op    ws.OpCode // of the message that has its fragments in parts; 0 if there is none
	parts []byte    // headroom, then the fragments that have arrived

	peek    bytes.Reader // package ws parses a header from it
	scratch [ws.MaxHeaderSize]byte
}

// newReader returns a reader that returns the bytes of remainder first and then reads from r.
func newReader(r io.Reader, limit int, remainder []byte) *reader {
	return &reader{r: r, max: limit, buf: frame.NewBuffer(remainder)}
}

// next returns the next message, or a control frame, which may come between the fragments of a
// message. The returned bytes begin with headroom and are valid until the next call.
//
// Its errors are a *violation, after which the stream cannot be read further; io.EOF at the
// boundary of a message; io.ErrUnexpectedEOF elsewhere; or the stream's own error, after which
// next may be called again.
func (r *reader) next() (ws.OpCode, []byte, error) {
	if r.op == 0 {
		r.parts = nil // the call before has returned these
	}
	for {
		h, m, err := r.frame()
		if err != nil {
			return 0, nil, err
		}
		op := h.OpCode
		if op.IsControl() {
			return op, m, nil
		}
		if r.op != 0 || !h.Fin {
			op, m = r.join(op, m)
		}
		if !h.Fin {
			continue
		}
		r.op = 0
		if op == ws.OpText && !utf8.Valid(m[headroom:]) {
			return 0, nil, &violation{ws.StatusInvalidFramePayloadData, "a text message is not UTF-8"}
		}
		return op, m, nil
	}
}

// join appends a fragment to its message, and returns the message so far.
func (r *reader) join(op ws.OpCode, m []byte) (ws.OpCode, []byte) {
	if r.op == 0 {
		r.op, r.parts = op, append([]byte(nil), m...)
	} else {
		r.parts = append(r.parts, m[headroom:]...)
	}
	return r.op, r.parts
}

// frame returns the next whole frame, unmasked. The frame's own header is at least 6 bytes long,
// so headroom begins within the buffer.
func (r *reader) frame() (ws.Header, []byte, error) {
	h, n, err := r.header()
	if err != nil {
		return h, nil, err
	}
	if err := r.check(h); err != nil {
		return h, nil, err
	}
	total := n + int(h.Length)
	if err := r.fill(total); err != nil {
		return h, nil, err
	}
	m := r.buf.Bytes()[n-headroom : total]
	ws.Cipher(m[headroom:], h.Mask, 0)
	r.buf.Consume(total)
	return h, m, nil
}

// header parses the next frame's header and returns the header's length. It removes no bytes from
// the buffer.
func (r *reader) header() (ws.Header, int, error) {
	for {
		arrived := len(r.buf.Bytes())
		r.peek.Reset(r.buf.Bytes())
		h, err := ws.ReadHeaderBuffer(&r.peek, r.scratch[:])
		switch {
		case err == nil:
			return h, arrived - r.peek.Len(), nil
		case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return h, 0, newViolation(err)
		}
		if err := r.fill(arrived + 1); err != nil {
			return h, 0, err
		}
	}
}

// check returns a violation if a frame's header is invalid or announces too much, before the
// payload is read.
func (r *reader) check(h ws.Header) error {
	state := ws.StateServerSide
	if r.op != 0 {
		state = state.Set(ws.StateFragmented)
	}
	if err := ws.CheckHeader(h, state); err != nil {
		return newViolation(err)
	}
	if room := r.max - max(0, len(r.parts)-headroom); !h.OpCode.IsControl() && h.Length > int64(room) {
		return &violation{ws.StatusMessageTooBig, fmt.Sprintf("a message exceeds %d bytes", r.max)}
	}
	return nil
}

// fill reads until the buffer contains n bytes. The end of the stream is unexpected within a message,
// even between two of its fragments.
func (r *reader) fill(n int) error {
	err := r.buf.Fill(r.r, n)
	if r.op != 0 && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// leftover returns all bytes that have arrived and were not returned; another reader can begin
// with them. Fragments of an incomplete message are encoded as one fragment with a zero mask.
func (r *reader) leftover() []byte {
	var b bytes.Buffer
	if r.op != 0 {
		parts := r.parts[headroom:]
		_ = ws.WriteHeader(&b, ws.Header{OpCode: r.op, Masked: true, Length: int64(len(parts))}) // writing to a bytes.Buffer cannot fail
		b.Write(parts)
	}
	b.Write(r.buf.Bytes())
	return b.Bytes()
}
