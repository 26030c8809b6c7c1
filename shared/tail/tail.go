// Package tail keeps the end of a stream, such as the messages of a program that may fail.
package tail

import "sync"

// A Tail keeps the last Max bytes that were written to it. Its methods may be called concurrently.
type Tail struct {
	Max int // in bytes

	mu  sync.Mutex
	buf []byte
}

// Write implements io.Writer. It never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(0, len(p)-t.Max):]...)
	t.buf = append(t.buf[:0], t.buf[max(0, len(t.buf)-t.Max):]...)
	return len(p), nil
}

// String returns the bytes that are kept. The first of them may be within a character.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
