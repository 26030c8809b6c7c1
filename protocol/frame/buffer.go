package frame

import (
	"errors"
	"io"
)

// Sizes of a Buffer. It starts small and grows with the bytes that arrive. If it is empty and larger
// than twice the data frames of Holdfast's senders, it becomes small again.
const (
	initialBuffer = 4 << 10
	keepBuffer    = 2 * MaxData
)

// A Buffer holds the bytes of a stream that have arrived and that its user has not consumed.
//
// Invariant: a Buffer never holds more memory than 4 KiB or twice the bytes that have arrived.
type Buffer struct {
	buf   []byte // buf[start:end] contains the bytes
	start int
	end   int
}

// NewBuffer returns a Buffer that contains a copy of bytes that were read from the stream before.
func NewBuffer(arrived []byte) Buffer {
	b := Buffer{buf: make([]byte, max(initialBuffer, len(arrived)))}
	b.end = copy(b.buf, arrived)
	return b
}

// Bytes returns the bytes. They are valid until the next Fill.
func (b *Buffer) Bytes() []byte { return b.buf[b.start:b.end] }

// Consume removes the first n bytes.
func (b *Buffer) Consume(n int) { b.start += n }

// Fill reads from r until the Buffer contains n bytes, and possibly more. If r ends before, the error
// is io.ErrUnexpectedEOF if the Buffer contains bytes, and io.EOF otherwise. After any other error of
// r, such as a timeout, Fill may be called again.
func (b *Buffer) Fill(r io.Reader, n int) error {
	if b.start == b.end && len(b.buf) > keepBuffer {
		b.buf, b.start, b.end = make([]byte, initialBuffer), 0, 0
	}
	for b.end-b.start < n {
		if b.start > 0 && (b.start == b.end || b.start+n > len(b.buf)) {
			b.end = copy(b.buf, b.buf[b.start:b.end])
			b.start = 0
		}
		if b.end == len(b.buf) {
			// The size doubles at most, so that the memory depends on the bytes that
			// have arrived and not on the length that a peer announces.
			grown := make([]byte, 2*len(b.buf))
			copy(grown, b.buf[:b.end])
			b.buf = grown
		}
		k, err := r.Read(b.buf[b.end:])
		b.end += k
		if err != nil && b.end-b.start < n {
			if errors.Is(err, io.EOF) && b.end > b.start {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}
