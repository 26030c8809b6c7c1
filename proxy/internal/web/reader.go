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

// headroom is how many bytes of a message that is returned come before its
// payload: room for a frame's header.
const headroom = frame.HeaderLen

// A reader's buffer starts small, grows with what arrives, and is given back
// after something larger than any piece of data of ours.
const (
	initialBuffer = 4 << 10
	keepBuffer    = 2 * frame.MaxData
)

// A violation is what a peer did wrong, and the status to close with.
type violation struct {
	status ws.StatusCode
	what   string
}

func (v *violation) Error() string { return fmt.Sprintf("%d: %s", v.status, v.what) }

func violated(err error) error { return &violation{ws.StatusProtocolError, err.Error()} }

// A reader reads a client's messages from a byte stream. It may be used again
// after a timeout: what has arrived is kept.
//
// Invariant: it holds no more memory than a constant times the bytes that have
// arrived, whatever length a peer announces, and at most a message of max and
// a frame of max.
type reader struct {
	r     io.Reader
	max   int    // payload of a message
	buf   []byte // buf[start:end] has arrived and was not returned
	start int
	end   int

	op    ws.OpCode // of the message whose fragments are in parts; else 0
	parts []byte    // headroom, then the fragments so far

	peek    bytes.Reader // what ws parses a header from
	scratch [ws.MaxHeaderSize]byte
}

// newReader returns a reader that begins with rest, which came before.
func newReader(r io.Reader, limit int, rest []byte) *reader {
	rd := &reader{r: r, max: limit, buf: make([]byte, max(initialBuffer, len(rest)))}
	rd.end = copy(rd.buf, rest)
	return rd
}

// next returns the next message, or a control frame, which may come between
// the fragments of a message. What it returns begins with headroom and is
// valid until the next call.
//
// Errors: a *violation, after which the stream has no boundary; io.EOF at a
// message's boundary and io.ErrUnexpectedEOF elsewhere; or the stream's own
// error, after which next may be called again.
func (r *reader) next() (ws.OpCode, []byte, error) {
	if r.op == 0 {
		r.parts = nil // it was returned by the call before
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

// join adds a fragment to the message it belongs to, and returns that.
func (r *reader) join(op ws.OpCode, m []byte) (ws.OpCode, []byte) {
	if r.op == 0 {
		r.op, r.parts = op, append([]byte(nil), m...)
	} else {
		r.parts = append(r.parts, m[headroom:]...)
	}
	return r.op, r.parts
}

// frame returns the next frame, whole and unmasked. Its own header, which has
// at least 6 bytes, makes the headroom.
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
	m := r.buf[r.start+n-headroom : r.start+total]
	ws.Cipher(m[headroom:], h.Mask, 0)
	r.start += total
	return h, m, nil
}

// header parses the next frame's header and returns its length; it takes
// nothing from the buffer.
func (r *reader) header() (ws.Header, int, error) {
	for {
		arrived := r.end - r.start
		r.peek.Reset(r.buf[r.start:r.end])
		h, err := ws.ReadHeaderBuffer(&r.peek, r.scratch[:])
		switch {
		case err == nil:
			return h, arrived - r.peek.Len(), nil
		case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return h, 0, violated(err)
		}
		if err := r.fill(arrived + 1); err != nil {
			return h, 0, err
		}
	}
}

// check refuses a frame by its header, before its payload is waited for.
func (r *reader) check(h ws.Header) error {
	state := ws.StateServerSide
	if r.op != 0 {
		state = state.Set(ws.StateFragmented)
	}
	if err := ws.CheckHeader(h, state); err != nil {
		return violated(err)
	}
	if room := r.max - max(0, len(r.parts)-headroom); !h.OpCode.IsControl() && h.Length > int64(room) {
		return &violation{ws.StatusMessageTooBig, fmt.Sprintf("a message exceeds %d bytes", r.max)}
	}
	return nil
}

// fill reads until n bytes have arrived.
func (r *reader) fill(n int) error {
	if r.start == r.end && len(r.buf) > keepBuffer {
		r.buf, r.start, r.end = make([]byte, initialBuffer), 0, 0
	}
	for r.end-r.start < n {
		if r.start > 0 && (r.start == r.end || r.start+n > len(r.buf)) {
			r.end = copy(r.buf, r.buf[r.start:r.end])
			r.start = 0
		}
		if r.end == len(r.buf) {
			grown := make([]byte, 2*len(r.buf))
			copy(grown, r.buf[:r.end])
			r.buf = grown
		}
		k, err := r.r.Read(r.buf[r.end:])
		r.end += k
		if err != nil && r.end-r.start < n {
			if errors.Is(err, io.EOF) && (r.end > r.start || r.op != 0) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// leftover returns bytes that another reader can begin with in this one's
// place: what has arrived and was not returned. Fragments of a message stand
// in it as one, under a mask that changes nothing.
func (r *reader) leftover() []byte {
	var b bytes.Buffer
	if r.op != 0 {
		parts := r.parts[headroom:]
		_ = ws.WriteHeader(&b, ws.Header{OpCode: r.op, Masked: true, Length: int64(len(parts))}) // a Buffer takes all
		b.Write(parts)
	}
	b.Write(r.buf[r.start:r.end])
	return b.Bytes()
}
