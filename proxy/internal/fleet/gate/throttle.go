package gate

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// Limits of the messages of one host. They suffice for a host with 65,536 sessions. Without them, a host that publishes
// as fast as it can would fill the queues of this gate and of the others, so that the records of other hosts are lost there,
// and these hosts count as unreachable.
const (
	hostRate    = 16 << 20 // bytes a second
	hostBurst   = 32 << 20 // bytes at once
	messageCost = 1 << 10  // bytes that a message counts for besides its own, because many short ones cost the most
)

// A budget counts what a host sends to the bus, over all its connections one after the other.
type budget struct {
	mu      sync.Mutex
	spent   float64 // bytes that count against hostBurst
	spentAt time.Time
}

// spend returns how long the host must wait after it has sent a number of bytes.
func (b *budget) spend(bytes int, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-now.Sub(b.spentAt).Seconds()*hostRate) + float64(bytes)
	b.spentAt = now
	return time.Duration(max(0, b.spent-hostBurst) / hostRate * float64(time.Second))
}

// budgetOf returns the budget of the host with a key.
func (g *Gate) budgetOf(key string) *budget {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.budgets[key]
	if b == nil {
		b = &budget{}
		g.budgets[key] = b
	}
	return b
}

// A throttle reads what a host sends to the bus, and waits before it returns more than the limits permit. So the host waits,
// too, and no message is lost.
type throttle struct {
	io.Reader
	budget *budget
}

// Read implements io.Reader.
func (t throttle) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	time.Sleep(t.budget.spend(n+messageCost*bytes.Count(p[:n], []byte("\n"))/2, time.Now())) // a message on the bus is two lines
	return n, err
}
