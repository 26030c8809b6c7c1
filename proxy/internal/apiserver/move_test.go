package apiserver

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"
)

// Each connection is in one batch, none of which is too large; those that do not
// rest at once are last, and with nobody else.
func TestBatches(t *testing.T) {
	const atOnce = 10
	s := New(Config{})
	var conns []*conn
	slow := map[*conn]bool{}
	for i := range 95 {
		a, b := net.Pipe()
		t.Cleanup(func() { a.Close(); b.Close() })
		c := s.newConn(context.Background(), NewStream(b, nil), Origin{})
		for n := range uint32(i % 90) {
			c.attachments[n] = &attachment{}
		}
		if i == 50 {
			for n := range uint32(2 * attachedAtOnce) {
				c.attachments[n] = &attachment{}
			}
		}
		switch {
		case i%20 == 3:
			c.requests[&request{}] = struct{}{}
			slow[c] = true
		case i%20 == 4:
			c.requests[&request{raw: []byte("{}")}] = struct{}{}
		case i%20 == 5:
			c.t.(*streamTransport).since.Store(time.Now().Add(-time.Second).UnixNano())
			slow[c] = true
		}
		conns = append(conns, c)
	}
	var seen []*conn
	late := false
	for i, batch := range batches(conns, atOnce) {
		attached := 0
		for _, c := range batch {
			attached += len(c.attachments)
			if slow[c] != slow[batch[0]] || late && !slow[c] {
				t.Errorf("batch %d has a connection that is not in its place", i)
			}
			late = late || slow[c]
		}
		if len(batch) == 0 || len(batch) > atOnce || attached > attachedAtOnce && len(batch) > 1 {
			t.Errorf("batch %d has %d connections with %d attachments", i, len(batch), attached)
		}
		seen = append(seen, batch...)
	}
	for _, c := range conns {
		if !slices.Contains(seen, c) {
			t.Error("a connection is in none")
		}
	}
	if len(seen) != len(conns) {
		t.Errorf("%d connections, in batches %d", len(conns), len(seen))
	}
}
