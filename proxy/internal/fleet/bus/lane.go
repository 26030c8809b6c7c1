package bus

import (
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// errFull tells that a message was not published, because too many wait already.
var errFull = errors.New("bus: the other end does not receive, and too many messages wait for it")

// A lane publishes messages in a goroutine of its own. A nats.Conn makes its callers wait while it connects,
// and while the other end does not receive. The callers of a lane must not wait.
type lane struct {
	conn *nats.Conn

	mu       sync.Mutex
	added    *sync.Cond
	waiting  []outgoing
	bytes    int // of waiting
	isClosed bool
}

// An outgoing is a message of a lane.
type outgoing struct {
	subject string
	data    []byte
	sent    chan<- struct{} // is closed instead of publishing, if it is not nil
}

// newLane returns a lane that ends with close.
func newLane(conn *nats.Conn) *lane {
	l := &lane{conn: conn}
	l.added = sync.NewCond(&l.mu)
	go l.run()
	return l
}

func (l *lane) add(m outgoing) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := len(m.subject) + len(m.data)
	if l.isClosed {
		return errNotConnected
	}
	if l.bytes+size > maxPending {
		return errFull
	}
	l.waiting = append(l.waiting, m)
	l.bytes += size
	l.added.Signal()
	return nil
}

func (l *lane) run() {
	for {
		l.mu.Lock()
		for len(l.waiting) == 0 && !l.isClosed {
			l.added.Wait()
		}
		next := l.waiting
		l.waiting, l.bytes = nil, 0
		l.mu.Unlock()
		if next == nil {
			return
		}
		for _, m := range next {
			if m.sent != nil {
				close(m.sent)
			} else {
				_ = l.conn.Publish(m.subject, m.data) // if the connection loses it, the receiver notices that by the stamps
			}
		}
	}
}

// flush returns when the other end has received all messages, or after limit. FlushTimeout alone has no limit, because it
// waits for a lock that a nats.Conn holds while it connects, which takes as long as Dial does.
func (l *lane) flush(limit time.Duration) error {
	end := time.Now().Add(limit)
	sent := make(chan struct{})
	if err := l.add(outgoing{sent: sent}); err != nil {
		return err
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-sent:
	case <-late.C:
		return errFull
	}
	flushed := make(chan error, 1)
	go func() { flushed <- l.conn.FlushTimeout(max(time.Until(end), time.Millisecond)) }()
	select {
	case err := <-flushed:
		return err
	case <-late.C:
		return errNotConnected
	}
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isClosed = true
	l.added.Signal()
}
