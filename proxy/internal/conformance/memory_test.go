package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// latency is how long a dial takes, and a read after its bytes have come. Without it, a client and a proxy that answer
	// each other at once would do so for ever in no time.
	latency = 100 * time.Microsecond
	// pieceMax is the largest number of bytes that one read returns.
	pieceMax = 64 << 10
)

// A memoryNet connects programs within this process, for tests with the clock of testing/synctest.
type memoryNet struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener // by address
}

func newMemoryNet() *memoryNet { return &memoryNet{listeners: make(map[string]*memoryListener)} }

type memoryListener struct {
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// listen is like the function listen.
func (m *memoryNet) listen(transport, dir string) (net.Listener, Command, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &memoryListener{address: dir, conns: make(chan net.Conn), closed: make(chan struct{})}
	c := Command{Do: "connect", Socket: dir}
	if transport == WebSocket {
		l.address = fmt.Sprintf("127.0.0.1:%d", 1+len(m.listeners))
		c = Command{Do: "connect", URL: "ws://" + l.address + apiPath}
	}
	m.listeners[l.address] = l
	return l, c, nil
}

func (m *memoryNet) dial(ctx context.Context, _, address string) (net.Conn, error) {
	time.Sleep(latency)
	m.mu.Lock()
	l := m.listeners[address]
	m.mu.Unlock()
	a, b := newMemoryHalf(), newMemoryHalf()
	select {
	case <-l.closed:
	case <-ctx.Done():
	case l.conns <- &memoryConn{in: a, out: b}:
		return &memoryConn{in: b, out: a}, nil
	}
	return nil, failedIn("dial", errors.New("connection refused"))
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.UnixAddr{Name: l.address, Net: "memory"} }

func failedIn(op string, err error) error { return &net.OpError{Op: op, Net: "memory", Err: err} }

// A memoryConn is one end of a connection.
type memoryConn struct{ in, out *memoryHalf }

func (c *memoryConn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *memoryConn) Write(p []byte) (int, error) { return c.out.write(p) }
func (c *memoryConn) CloseWrite() error           { c.out.change(func() { c.out.isOver = true }); return nil }

func (c *memoryConn) Close() error {
	_ = c.CloseWrite()
	c.in.change(func() { c.in.isClosed = true })
	return nil
}

func (c *memoryConn) LocalAddr() net.Addr              { return &net.UnixAddr{Net: "memory"} }
func (c *memoryConn) RemoteAddr() net.Addr             { return c.LocalAddr() }
func (c *memoryConn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) } // a write never waits
func (c *memoryConn) SetWriteDeadline(time.Time) error { return nil }

func (c *memoryConn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.until = t })
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), c.in.changed.Broadcast)
	}
	return nil
}

// A memoryHalf is one direction of a connection.
type memoryHalf struct {
	mu       sync.Mutex
	changed  *sync.Cond
	bytes    []byte // that were written and not read
	isOver   bool   // the writer has closed it
	isClosed bool   // the reader has closed it
	until    time.Time
}

func newMemoryHalf() *memoryHalf {
	h := &memoryHalf{}
	h.changed = sync.NewCond(&h.mu)
	return h
}

func (h *memoryHalf) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	h.changed.Broadcast()
}

func (h *memoryHalf) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.isClosed:
			return 0, failedIn("read", net.ErrClosed)
		case !h.until.IsZero() && !time.Now().Before(h.until):
			return 0, failedIn("read", os.ErrDeadlineExceeded)
		case len(h.bytes) > 0:
			n := copy(p[:min(len(p), pieceMax)], h.bytes)
			h.bytes = h.bytes[n:]
			h.mu.Unlock() // the writer need not wait
			time.Sleep(latency)
			h.mu.Lock()
			return n, nil
		case h.isOver:
			return 0, io.EOF
		}
		h.changed.Wait()
	}
}

func (h *memoryHalf) write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isOver || h.isClosed {
		return 0, failedIn("write", io.ErrClosedPipe)
	}
	h.bytes = append(h.bytes, p...)
	h.changed.Broadcast()
	return len(p), nil
}
