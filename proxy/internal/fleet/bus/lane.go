package bus

import (
	"errors"
	"sync"

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
			_ = l.conn.Publish(m.subject, m.data) // if the connection loses it, the receiver notices that by the stamps
		}
	}
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isClosed = true
	l.added.Signal()
}
