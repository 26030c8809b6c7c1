// Package frame puts typed, length-prefixed messages on a byte stream.
//
//	[u32 length, big-endian][u8 kind][payload]
//
// length counts kind and payload, so that a WebSocket's binary message is a
// frame without its first four bytes. It is 1 to Max.
//
// Invariant: a Reader holds no more memory than twice the bytes that have
// arrived, or 4 KiB, whatever length a peer announces.
//
// Not here: what the payloads mean (packages protocol/link and protocol/api).
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"holdfast/protocol"
)

// Kind says what a payload is. Numbers are never reused; a reader skips kinds
// it does not know.
type Kind uint8

// The kinds of version 1.
const (
	Control  Kind = 0 // a JSON message
	Output   Kind = 1 // [u32 attachment][u64 output offset][bytes printed]
	Input    Kind = 2 // [u32 attachment][u64 input offset][bytes typed]
	Snapshot Kind = 3 // [u32 attachment][u64 output offset it stands for][bytes]
	View     Kind = 4 // the same, of bytes that bring a viewer's own view up to that offset
)

// Sizes, in bytes.
const (
	Max         = 1 << 20  // the largest length: kind and payload
	MaxHello    = 64 << 10 // the largest length before hello was accepted
	HeaderLen   = 5        // length and kind
	DataHeadLen = 12       // attachment and offset, before the bytes of data kinds
	// MaxData is how much a sender puts into one data frame, so that frames of
	// several attachments take turns on one connection.
	MaxData = 32 << 10
)

// AppendHeader appends the header of a frame with a payload of n bytes.
func AppendHeader(dst []byte, kind Kind, n int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(n+1))
	return append(dst, byte(kind))
}

// Append appends a whole frame.
func Append(dst []byte, kind Kind, payload []byte) []byte {
	return append(AppendHeader(dst, kind, len(payload)), payload...)
}

// AppendData appends a whole frame of a data kind.
func AppendData(dst []byte, kind Kind, attachment uint32, offset uint64, data []byte) []byte {
	dst = AppendHeader(dst, kind, DataHeadLen+len(data))
	dst = binary.BigEndian.AppendUint32(dst, attachment)
	dst = binary.BigEndian.AppendUint64(dst, offset)
	return append(dst, data...)
}

// PutDataHeader writes header and data head for n bytes of data into the
// first HeaderLen+DataHeadLen bytes of b, for a sender that has its data in
// place behind them.
func PutDataHeader(b []byte, kind Kind, attachment uint32, offset uint64, n int) {
	binary.BigEndian.PutUint32(b, uint32(1+DataHeadLen+n))
	b[4] = byte(kind)
	binary.BigEndian.PutUint32(b[5:], attachment)
	binary.BigEndian.PutUint64(b[9:], offset)
}

// ParseData splits the payload of a data kind. data aliases payload.
func ParseData(payload []byte) (attachment uint32, offset uint64, data []byte, err error) {
	if len(payload) < DataHeadLen {
		return 0, 0, nil, protocol.Errorf(protocol.CodeBadFrame, fmt.Sprintf("data frame of %d bytes", len(payload)))
	}
	return binary.BigEndian.Uint32(payload), binary.BigEndian.Uint64(payload[4:]), payload[DataHeadLen:], nil
}

// A Reader's buffer starts small, grows with what arrives, and is given back
// after a frame larger than any that a sender of ours makes of data.
const (
	initialBuffer = 4 << 10
	keepBuffer    = 2 * MaxData
)

// A Reader reads frames from a byte stream. It may be used again after a
// timeout: what has arrived of a frame is kept.
type Reader struct {
	r     io.Reader
	max   int
	buf   []byte // buf[start:end] has arrived and was not returned
	start int
	end   int
}

// NewReader returns a Reader that refuses lengths above limit.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: r, max: limit, buf: make([]byte, initialBuffer)}
}

// Begin gives a fresh Reader what came before the bytes that it will read.
func (r *Reader) Begin(rest []byte) {
	r.buf = make([]byte, max(initialBuffer, len(rest)))
	r.end = copy(r.buf, rest)
}

// SetMax changes the limit, from the next frame on.
func (r *Reader) SetMax(limit int) { r.max = limit }

// Buffered returns the bytes that have arrived behind the last frame returned.
func (r *Reader) Buffered() []byte { return r.buf[r.start:r.end] }

// Next returns the next frame. The payload is valid until the next call.
//
// Errors: io.EOF between frames, io.ErrUnexpectedEOF within one,
// bad_frame for a length of 0 and frame_too_large for one above the limit
// (both leave the stream without a frame boundary: close it), or the stream's
// own error, after which Next may be called again.
func (r *Reader) Next() (Kind, []byte, error) {
	f, err := r.NextRaw()
	if err != nil {
		return 0, nil, err
	}
	return Kind(f[4]), f[HeaderLen:], nil
}

// NextRaw is Next for a caller that passes frames on: it returns the whole
// frame, header and all.
func (r *Reader) NextRaw() ([]byte, error) {
	if err := r.fill(HeaderLen - 1); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(r.buf[r.start:])
	switch {
	case n == 0:
		return nil, protocol.Errorf(protocol.CodeBadFrame, "frame of length 0")
	case uint64(n) > uint64(r.max):
		return nil, protocol.Errorf(protocol.CodeFrameTooLarge, fmt.Sprintf("frame of %d bytes, at most %d are allowed", n, r.max))
	}
	total := 4 + int(n)
	if err := r.fill(total); err != nil {
		return nil, err
	}
	f := r.buf[r.start : r.start+total]
	r.start += total
	return f, nil
}

// fill reads until n bytes have arrived.
func (r *Reader) fill(n int) error {
	if r.start == r.end && len(r.buf) > keepBuffer {
		r.buf, r.start, r.end = make([]byte, initialBuffer), 0, 0
	}
	for r.end-r.start < n {
		if r.start > 0 && (r.start == r.end || r.start+n > len(r.buf)) {
			r.end = copy(r.buf, r.buf[r.start:r.end])
			r.start = 0
		}
		if r.end == len(r.buf) {
			// Double, so that memory follows what arrived and not what was
			// announced.
			grown := make([]byte, 2*len(r.buf))
			copy(grown, r.buf[:r.end])
			r.buf = grown
		}
		k, err := r.r.Read(r.buf[r.end:])
		r.end += k
		if err != nil && r.end-r.start < n {
			if errors.Is(err, io.EOF) && r.end > r.start {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}
