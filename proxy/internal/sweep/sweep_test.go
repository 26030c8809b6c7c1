package sweep

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
)

// fake has the sessions of a supervisor.
type fake struct {
	sessions []protocol.SessionInfo
	looks    []time.Time
	ended    map[protocol.SessionID]wire.Terminate
	at       map[protocol.SessionID]time.Time
	err      error // the error of the next List
	answer   error // the reply to Terminate
	unlinked bool
	look     func() // called by each List
}

func (f *fake) Linked() bool { return !f.unlinked }

func (f *fake) List(context.Context, string) ([]protocol.SessionInfo, error) {
	f.looks = append(f.looks, time.Now())
	if f.look != nil {
		f.look()
	}
	if err := f.err; err != nil {
		f.err = nil
		return nil, err
	}
	return f.sessions, nil
}

func (f *fake) Call(_ context.Context, m protocol.Message) (protocol.Message, error) {
	t := m.(wire.Terminate)
	if f.answer != nil {
		return nil, f.answer
	}
	if _, twice := f.ended[t.SessionID]; !twice {
		f.ended[t.SessionID], f.at[t.SessionID] = t, time.Now()
	}
	return wire.OK{}, nil
}

func (f *fake) add(id string, labels map[string]string) *protocol.SessionInfo {
	f.sessions = append(f.sessions, protocol.SessionInfo{
		ID: protocol.SessionID(id), Instance: "life", State: protocol.StateRunning, LastIOAt: time.Now(), Labels: labels,
	})
	return &f.sessions[len(f.sessions)-1]
}

// swept runs a sweeper for a time, and then calls then.
func swept(t *testing.T, timeout time.Duration, long time.Duration, f func(*fake), then func(*fake, time.Time)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &fake{ended: map[protocol.SessionID]wire.Terminate{}, at: map[protocol.SessionID]time.Time{}, sessions: make([]protocol.SessionInfo, 0, 10)}
		begun := time.Now()
		f(s)
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		(&Sweeper{Link: s, Timeout: timeout, Log: zerolog.Nop()}).Run(ctx)
		then(s, begun)
	})
}

// A write after 20 minutes keeps a session of 30 alive at 40; it ends at 50.
// demand: M11
func TestWriteKeepsAlive(t *testing.T) {
	for _, long := range []time.Duration{40 * time.Minute, 51 * time.Minute} {
		swept(t, 30*time.Minute, long, func(f *fake) {
			s := f.add("s", nil)
			written := s.LastIOAt.Add(20 * time.Minute)
			f.look = func() {
				if !time.Now().Before(written) {
					s.LastIOAt = written
				}
			}
		}, func(f *fake, begun time.Time) {
			if got := len(f.ended); got != int(long/(50*time.Minute)) {
				t.Errorf("after %v %d sessions were ended", long, got)
			}
		})
	}
}

// The request that ends an idle session marks it as timed out, names its instance, and demands that the session is
// idle by the supervisor's own clock.
// demand: B7
func TestEnd(t *testing.T) {
	swept(t, time.Minute, 2*time.Minute, func(f *fake) { f.add("s", nil) }, func(f *fake, begun time.Time) {
		want := wire.Terminate{SessionID: "s", Instance: "life", IdleMS: 60_000, Reason: protocol.ReasonIdleTimeout, TimedOut: true, Asker: protocol.Asker{By: "idle sweep"}}
		if got := f.ended["s"]; got != want {
			t.Errorf("the request is %+v", got)
		}
		if after := f.at["s"].Sub(begun); after < time.Minute || after > time.Minute+longest {
			t.Errorf("the session was ended after %v", after)
		}
	})
}

// A frozen session does not count as idle.
func TestFrozen(t *testing.T) {
	swept(t, time.Minute, time.Hour, func(f *fake) { f.add("s", nil).Frozen = true }, func(f *fake, _ time.Time) {
		if len(f.ended) > 0 {
			t.Errorf("ended: %+v", f.ended)
		}
	})
}

// demand: M1, M11
func TestTimeouts(t *testing.T) {
	own := func(d string) map[string]string { return map[string]string{protocol.LabelIdleTimeout: d} }
	for _, tt := range []struct {
		name   string
		of     time.Duration
		labels map[string]string
		ends   bool
	}{
		{"none", 0, nil, false},
		{"negative", -time.Minute, nil, false},
		{"the default", time.Minute, nil, true},
		{"a time-out of the session", 0, own("1m"), true},
		{"a longer time-out of the session", time.Minute, own("2h"), false},
		{"the session has none", time.Minute, own("0"), false},
		{"a negative time-out", time.Minute, own("-1m"), false},
		{"an invalid time-out", time.Minute, own("soon"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			swept(t, tt.of, time.Hour, func(f *fake) { f.add("s", tt.labels) }, func(f *fake, _ time.Time) {
				if _, ended := f.ended["s"]; ended != tt.ends {
					t.Errorf("ended: %v", ended)
				}
			})
		})
	}
}

// The time between two lists is a quarter of the shortest time-out, and at least a second.
// demand: M11
func TestHowOften(t *testing.T) {
	for _, tt := range []struct{ timeout, apart time.Duration }{
		{0, longest}, {time.Hour, longest}, {20 * time.Second, 5 * time.Second}, {time.Second, shortest}, {time.Millisecond, shortest},
	} {
		swept(t, tt.timeout, time.Minute, func(f *fake) {
			f.add("s", nil)
			f.answer = protocol.Errorf(protocol.CodeSessionRunning, "it is in use")
		}, func(f *fake, _ time.Time) {
			for i := 1; i < len(f.looks); i++ {
				if got := f.looks[i].Sub(f.looks[i-1]); got != tt.apart {
					t.Fatalf("with %v two lists are %v apart", tt.timeout, got)
				}
			}
		})
	}
}

// If the supervisor cannot be reached, no session is ended.
func TestNothingIsKnown(t *testing.T) {
	swept(t, time.Minute, 5*time.Minute, func(f *fake) {
		f.err = errors.New("no link")
		s := f.add("s", nil)
		s.State = protocol.StateStarting
		f.add("t", nil).State = protocol.StateExited
	}, func(f *fake, _ time.Time) {
		if len(f.ended) > 0 || len(f.looks) < 10 {
			t.Errorf("%d lists, ended sessions %v", len(f.looks), f.ended)
		}
	})
	swept(t, time.Minute, 5*time.Minute, func(f *fake) { f.unlinked = true; f.add("s", nil) }, func(f *fake, _ time.Time) {
		if len(f.looks) > 0 {
			t.Errorf("%d lists, which would start a supervisor", len(f.looks))
		}
	})
}
