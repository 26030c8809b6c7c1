package gate

import (
	"bytes"
	"io"
	"time"

	"golang.org/x/time/rate"
)

// Limits of the messages of one host. They suffice for a host with 65,536 sessions. Without them, a host that publishes
// as fast as it can would fill the queues of this gate and of the others, so that the records of other hosts are lost there,
// and these hosts count as unreachable.
const (
	hostRate    = 16 << 20 // bytes a second
	hostBurst   = 32 << 20 // bytes at once
	messageCost = 1 << 10  // bytes that a message counts for besides its own, because many short ones cost the most
)

// budgetOf returns the limiter of the bytes that the host with a key sends to the bus, over all its connections one after the other.
func (g *Gate) budgetOf(key string) *rate.Limiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.budgets[key]
	if b == nil {
		b = rate.NewLimiter(hostRate, hostBurst)
		g.budgets[key] = b
	}
	return b
}

// maxCounted is the largest number of bytes that a throttle reads at once. With the costs of the messages in them, they
// count for less than hostBurst, which is the most that a limiter can reserve.
const maxCounted = 32 << 10

// A throttle reads what a host sends to the bus, and waits before it returns more than the limits permit. So the host waits,
// too, and no message is lost.
type throttle struct {
	io.Reader
	budget *rate.Limiter
}

// Read implements io.Reader.
func (t throttle) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p[:min(len(p), maxCounted)])
	cost := n + messageCost*bytes.Count(p[:n], []byte("\n"))/2 // a message on the bus is two lines
	time.Sleep(t.budget.ReserveN(time.Now(), cost).Delay())
	return n, err
}
