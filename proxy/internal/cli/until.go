package cli

import (
	"io"
	"os"
)

// StdoutUntil returns the standard output for a command that must clean up after a signal. When done is closed, a write that
// waits for a reader fails with os.ErrClosed, and so does each later one. Closing the standard output would not end a write.
func StdoutUntil(done <-chan struct{}) io.WriteCloser { return untilWriter{os.Stdout, done} }

type untilWriter struct {
	out  *os.File
	done <-chan struct{}
}

// Write implements io.Writer.
func (w untilWriter) Write(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	written := make(chan result, 1)
	go func() {
		n, err := w.out.Write(p)
		written <- result{n, err}
	}()
	select {
	case r := <-written:
		return r.n, r.err
	case <-w.done:
		return 0, os.ErrClosed
	}
}

// Close implements io.Closer.
func (w untilWriter) Close() error { return w.out.Close() }
