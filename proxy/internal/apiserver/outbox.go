package apiserver

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// An Outbox writes to a client, and can be stopped in the middle: from then on
// what the client does not take at once is kept, for whoever goes on with the
// connection. Calls of Write do not overlap.
type Outbox struct {
	nc    net.Conn
	since atomic.Int64 // when the write under way began, in Unix nanoseconds; 0 for none

	mu      sync.Mutex
	stopped bool
	rest    []byte
}

// NewOutbox returns an Outbox for a connection.
func NewOutbox(nc net.Conn) *Outbox { return &Outbox{nc: nc} }

// Write writes the pieces, one behind the other.
func (o *Outbox) Write(pieces ...[]byte) error {
	o.mu.Lock()
	keeps := len(o.rest) > 0
	if keeps {
		o.keep(pieces)
	}
	o.mu.Unlock()
	if keeps {
		return nil
	}
	o.since.Store(time.Now().UnixNano())
	left, err := o.write(pieces)
	o.since.Store(0)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped && errors.Is(err, os.ErrDeadlineExceeded) {
		o.keep(left)
		return nil
	}
	return err
}

// write returns what was not written, in pieces itself.
func (o *Outbox) write(pieces [][]byte) (left [][]byte, err error) {
	if len(pieces) == 1 { // as most are: nothing to gather
		n, err := o.nc.Write(pieces[0])
		pieces[0] = pieces[0][n:]
		return pieces, err
	}
	buffers := net.Buffers(pieces)
	_, err = buffers.WriteTo(o.nc)
	return buffers, err
}

func (o *Outbox) keep(pieces [][]byte) {
	for _, p := range pieces {
		o.rest = append(o.rest, p...)
	}
}

// Stop makes writes keep what the client does not take at once, the one under
// way too.
func (o *Outbox) Stop() {
	o.mu.Lock()
	o.stopped = true
	o.mu.Unlock()
	_ = o.nc.SetWriteDeadline(longAgo)
}

// Stuck reports whether something was kept.
func (o *Outbox) Stuck() bool { return len(o.Unwritten()) > 0 }

// Unwritten is what was kept.
func (o *Outbox) Unwritten() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rest
}

// Waiting is how long the write under way has taken.
func (o *Outbox) Waiting() time.Duration {
	since := o.since.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(0, since))
}
