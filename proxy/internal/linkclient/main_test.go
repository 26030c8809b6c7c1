package linkclient

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/testkit/fakelink"
)

// patience is how long a test waits for what must come; soonish is far below
// every time-out of ours, for what must not wait for one.
const (
	patience = 30 * time.Second
	soonish  = 5 * time.Second
)

// A supervisor is a fake one, with the clients of this package that connect to it.
type supervisor struct {
	*fakelink.Supervisor
	t testing.TB
}

// newSupervisor returns one that does not listen yet.
func newSupervisor(t testing.TB) *supervisor {
	t.Helper()
	return &supervisor{fakelink.New(t), t}
}

// dials counts what a client does to reach its supervisor.
type dials struct {
	mu            sync.Mutex
	tries, starts int
}

func (d *dials) get() (tries, starts int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tries, d.starts
}

// client returns a client that starts the supervisor by start, where given.
func (s *supervisor) client(start func(try int) error) (*Client, *dials) {
	d := &dials{}
	cfg := Config{
		Dial: func(ctx context.Context) (net.Conn, error) {
			d.mu.Lock()
			d.tries++
			d.mu.Unlock()
			return s.Dial(ctx)
		},
		Hello: func() wire.Hello { return wire.Hello{Protocol: protocol.Supported(), PID: 8, Instance: "proxy"} },
		Log:   zerolog.Nop(),
	}
	if start != nil {
		cfg.Start = func(context.Context) error {
			d.mu.Lock()
			d.starts++
			n := d.starts
			d.mu.Unlock()
			return start(n)
		}
	}
	c := New(cfg)
	s.t.Cleanup(func() { c.Close() })
	return c, d
}

// running returns a supervisor that listens, and a client of it that must not
// start another.
func running(t testing.TB) (*supervisor, *Client) {
	t.Helper()
	s := newSupervisor(t)
	s.Listen()
	c, d := s.client(func(int) error { return errors.New("started") })
	t.Cleanup(func() {
		if _, starts := d.get(); starts > 0 {
			t.Error("a supervisor was started, and one was running")
		}
	})
	return s, c
}

// wantCode checks an error by its code, "" for none.
func wantCode(t testing.TB, what string, err error, want protocol.Code) {
	t.Helper()
	if got := protocol.CodeOf(err); got != want {
		t.Errorf("%s: got %v, want code %q", what, err, want)
	}
}
