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

// patience is the time after which a test fails if an expected event does not come. soonish is far below every
// time-out of the package, for calls that must not wait for one.
const (
	patience = 30 * time.Second
	soonish  = 5 * time.Second
)

// A supervisor is a fake, with the clients of this package that connect to it.
type supervisor struct {
	*fakelink.Supervisor
	t testing.TB
}

// newSupervisor returns a supervisor that does not listen yet.
func newSupervisor(t testing.TB) *supervisor {
	t.Helper()
	return &supervisor{fakelink.New(t), t}
}

// dials counts the attempts of a client to reach its supervisor.
type dials struct {
	mu            sync.Mutex
	tries, starts int
}

func (d *dials) get() (tries, starts int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tries, d.starts
}

// client returns a client that starts the supervisor by start, unless that is nil.
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

// running returns a supervisor that listens, and a client that must not start another one.
func running(t testing.TB) (*supervisor, *Client) {
	t.Helper()
	s := newSupervisor(t)
	s.Listen()
	c, d := s.client(func(int) error { return errors.New("started") })
	t.Cleanup(func() {
		if _, starts := d.get(); starts > 0 {
			t.Error("a supervisor was started although one was running")
		}
	})
	return s, c
}

// wantCode checks that an error has a code, or that there is no error if the code is empty.
func wantCode(t testing.TB, what string, err error, want protocol.Code) {
	t.Helper()
	if got := protocol.CodeOf(err); got != want {
		t.Errorf("%s: got %v, want code %q", what, err, want)
	}
}
