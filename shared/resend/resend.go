// Package resend holds input until the session has accepted it, so that it can be sent again over another connection.
//
// Invariant: each byte keeps its offset while the session knows the writer, so that the session can skip bytes that come
// twice.
//
// Not here: connections, and the times of a repetition (packages client and linkclient).
package resend

// A Buffer holds the input of one writer that is not accepted yet. The zero value begins at offset 0. It is not safe for
// use by several goroutines at a time.
//
//	offsets:  Base ... sent ... Base+Len
//	          bytes before Base are accepted, bytes before sent were sent
type Buffer struct {
	data []byte
	base uint64
	sent uint64
}

// Base returns the offset before which all input was accepted.
func (b *Buffer) Base() uint64 { return b.base }

// Len returns the number of bytes that are not accepted.
func (b *Buffer) Len() int { return len(b.data) }

// Bytes returns the bytes that are not accepted. They are valid until the next call of a method.
func (b *Buffer) Bytes() []byte { return b.data }

// Add appends input.
func (b *Buffer) Add(p []byte) { b.data = append(b.data, p...) }

// Next returns the next bytes to send and their offset. There are at most limit bytes, and at most window bytes are then sent
// and not accepted. The bytes are valid until the next call of a method.
func (b *Buffer) Next(limit, window int) (p []byte, offset uint64) {
	from := int(b.sent - b.base)
	n := min(len(b.data)-from, window-from, limit)
	if n <= 0 {
		return nil, b.sent
	}
	offset = b.sent
	b.sent += uint64(n)
	return b.data[from : from+n], offset
}

// Accept drops the input before offset, because the session has accepted it. It reports whether there was any.
func (b *Buffer) Accept(offset uint64) bool {
	if offset <= b.base {
		return false
	}
	n := min(offset-b.base, uint64(len(b.data)))
	if b.data = b.data[n:]; len(b.data) == 0 {
		b.data = nil
	}
	b.base = offset
	b.sent = max(b.sent, offset)
	return true
}

// Resume lets Next return the input from the offset that the session expects. If that is before Base, the session has
// forgotten the writer: the accepted input was typed already, and the remaining input continues under the new offsets.
func (b *Buffer) Resume(offset uint64) {
	if offset < b.base {
		b.base = offset
	}
	b.Accept(offset)
	b.sent = b.base
}

// Renumber gives the first byte the offset that the session expects from a new writer, and lets Next return all bytes.
func (b *Buffer) Renumber(offset uint64) { b.base, b.sent = offset, offset }

// Repeat lets Next return all bytes again.
func (b *Buffer) Repeat() { b.sent = b.base }
