package apiserver

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// An Outbox writes to a client until it is stopped. After Stop it keeps the bytes that the client
// does not accept at once, for the process that continues the connection. Calls of Write must not
// overlap.
type Outbox struct {
	nc         net.Conn
	writeStart atomic.Int64 // start of the current write in Unix nanoseconds, or 0

	mu        sync.Mutex
	isStopped bool
	kept      []byte
}

// NewOutbox returns an Outbox that writes to nc.
func NewOutbox(nc net.Conn) *Outbox { return &Outbox{nc: nc} }

// Write writes the pieces in order. If the Outbox is stopped and has kept bytes, Write only keeps
// the pieces.
func (o *Outbox) Write(pieces ...[]byte) error {
	o.mu.Lock()
	keeps := len(o.kept) > 0
	if keeps {
		o.appendKept(pieces)
	}
	o.mu.Unlock()
	if keeps {
		return nil
	}
	o.writeStart.Store(time.Now().UnixNano())
	left, err := o.write(pieces)
	o.writeStart.Store(0)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isStopped && errors.Is(err, os.ErrDeadlineExceeded) {
		o.appendKept(left)
		return nil
	}
	return err
}

// write writes the pieces and returns the unwritten ones. It changes the slice.
func (o *Outbox) write(pieces [][]byte) (left [][]byte, err error) {
	if len(pieces) == 1 { // the usual case needs no net.Buffers
		n, err := o.nc.Write(pieces[0])
		pieces[0] = pieces[0][n:]
		return pieces, err
	}
	buffers := net.Buffers(pieces)
	_, err = buffers.WriteTo(o.nc)
	return buffers, err
}

// appendKept keeps the pieces. The caller holds mu.
func (o *Outbox) appendKept(pieces [][]byte) {
	for _, p := range pieces {
		o.kept = append(o.kept, p...)
	}
}

// Stop makes writes keep the bytes that the client does not accept at once. It also interrupts a
// write in progress.
func (o *Outbox) Stop() {
	o.mu.Lock()
	o.isStopped = true
	o.mu.Unlock()
	_ = o.nc.SetWriteDeadline(longAgo)
}

// Stuck reports whether bytes were kept.
func (o *Outbox) Stuck() bool { return len(o.Unwritten()) > 0 }

// Unwritten returns the bytes that were kept.
func (o *Outbox) Unwritten() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kept
}

// Waiting returns how long the current write has taken, or 0 if there is none.
func (o *Outbox) Waiting() time.Duration {
	since := o.writeStart.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(0, since))
}
