// Package frame reads and writes frames: messages with a length and a kind on a byte stream.
//
//	[u32 length, big-endian][u8 kind][payload]
//
// The length counts kind and payload and must be 1 to Max. A binary message of a WebSocket is
// therefore a frame without its first four bytes.
//
// Invariant: a Reader never holds more memory than 4 KiB or twice the bytes that have arrived,
// whatever length a peer announces.
//
// Not here: the meaning of the payloads (packages protocol/link and protocol/api).
package frame

import (
	"encoding/binary"
	"io"

	"holdfast/protocol"
)

// Kind is the kind of a payload. A number must never be reused. A reader must skip unknown kinds.
type Kind uint8

// The kinds of version 1.
const (
	Control  Kind = 0 // a JSON message
	Output   Kind = 1 // [u32 attachment][u64 output offset][output]
	Input    Kind = 2 // [u32 attachment][u64 input offset][input]
	Snapshot Kind = 3 // [u32 attachment][u64 output offset that it represents][bytes for the terminal]
	View     Kind = 4 // as Snapshot, but bytes that update the viewer's own view
)

// Sizes, in bytes.
const (
	Max         = 1 << 20  // largest length of a frame: kind and payload
	MaxHello    = 64 << 10 // largest length before hello was accepted
	HeaderLen   = 5        // length and kind
	DataHeadLen = 12       // attachment and offset, at the beginning of a data payload
	// MaxData is the largest number of data bytes that a sender should put into one frame, so
	// that frames of several attachments alternate on a connection.
	MaxData = 32 << 10
)

// AppendHeader appends the header of a frame with a payload of n bytes.
func AppendHeader(dst []byte, kind Kind, n int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(n+1))
	return append(dst, byte(kind))
}

// Append appends a complete frame to dst.
func Append(dst []byte, kind Kind, payload []byte) []byte {
	return append(AppendHeader(dst, kind, len(payload)), payload...)
}

// AppendData appends a complete frame of a data kind to dst.
func AppendData(dst []byte, kind Kind, attachment uint32, offset uint64, data []byte) []byte {
	dst = AppendHeader(dst, kind, DataHeadLen+len(data))
	dst = binary.BigEndian.AppendUint32(dst, attachment)
	dst = binary.BigEndian.AppendUint64(dst, offset)
	return append(dst, data...)
}

// PutDataHeader writes the header and the data head for n bytes of data to the first
// HeaderLen+DataHeadLen bytes of b. A sender that has its data in b already, after these bytes,
// should use it.
func PutDataHeader(b []byte, kind Kind, attachment uint32, offset uint64, n int) {
	binary.BigEndian.PutUint32(b, uint32(1+DataHeadLen+n))
	b[4] = byte(kind)
	binary.BigEndian.PutUint32(b[5:], attachment)
	binary.BigEndian.PutUint64(b[9:], offset)
}

// ParseData splits the payload of a data kind. The returned data is a part of payload.
func ParseData(payload []byte) (attachment uint32, offset uint64, data []byte, err error) {
	if len(payload) < DataHeadLen {
		return 0, 0, nil, protocol.Errorf(protocol.CodeBadFrame, "a data frame must have at least %d bytes of payload, but it has %d", DataHeadLen, len(payload))
	}
	return binary.BigEndian.Uint32(payload), binary.BigEndian.Uint64(payload[4:]), payload[DataHeadLen:], nil
}

// A Reader reads frames from a byte stream. After a timeout it may be used again, because it keeps
// the bytes of an incomplete frame.
type Reader struct {
	r   io.Reader
	max int
	buf Buffer // the bytes that have arrived and were not returned yet
}

// NewReader returns a Reader that refuses a frame if its length is above limit.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: r, max: limit, buf: NewBuffer(nil)}
}

// Begin gives a new Reader bytes that were read from the stream before.
func (r *Reader) Begin(remainder []byte) { r.buf = NewBuffer(remainder) }

// SetMax changes the limit for the next frames.
func (r *Reader) SetMax(limit int) { r.max = limit }

// Buffered returns the bytes that have arrived after the last returned frame.
func (r *Reader) Buffered() []byte { return r.buf.Bytes() }

// Next returns the kind and the payload of the next frame. The payload is valid until the next call.
//
// The error is io.EOF if the stream ends between two frames, and io.ErrUnexpectedEOF if it ends
// within a frame. It is bad_frame for a length of 0 and frame_too_large for a length above the
// limit; the stream must then be closed, because the boundary of the next frame is unknown. After
// any other error of the stream, such as a timeout, Next may be called again.
func (r *Reader) Next() (Kind, []byte, error) {
	f, err := r.NextRaw()
	if err != nil {
		return 0, nil, err
	}
	return Kind(f[4]), f[HeaderLen:], nil
}

// NextRaw returns the next complete frame, header included, for a caller that forwards it. The
// errors are those of Next.
func (r *Reader) NextRaw() ([]byte, error) {
	if err := r.buf.Fill(r.r, HeaderLen-1); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(r.buf.Bytes())
	switch {
	case n == 0:
		return nil, protocol.Errorf(protocol.CodeBadFrame, "the length of a frame must not be 0")
	case uint64(n) > uint64(r.max):
		return nil, protocol.Errorf(protocol.CodeFrameTooLarge, "a frame has %d bytes, and at most %d are allowed", n, r.max)
	}
	total := 4 + int(n)
	if err := r.buf.Fill(r.r, total); err != nil {
		return nil, err
	}
	f := r.buf.Bytes()[:total]
	r.buf.Consume(total)
	return f, nil
}
