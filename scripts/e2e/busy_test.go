package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A unit is a piece of the output that a busy child prints without a pause: a number, and then sequences of
// which a few bytes move or print many cells. The repetitions are the longest part, because they cost the
// terminal core most per byte.
const unitLen = 400

var costly = "\x1b['}\x1b['~\x1b[ @\x1b[ A\x1b#8\x1b[H中\x1b[9999999b" + strings.Repeat("x\x1b[9999999b", 30)

// appendUnits appends units to p, numbered from number on.
func appendUnits(p []byte, number, units int) []byte {
	for i := range units {
		p = fmt.Appendf(p, "%0*d%s", unitLen-len(costly), number+i, costly)
	}
	return p
}

// busyChild is the program of a busy child.
func busyChild([]string) error {
	if err := raw(os.Stdin); err != nil {
		return err
	}
	for n := 0; ; n += perGrant {
		if _, err := os.Stdout.Write(appendUnits(nil, n, perGrant)); err != nil {
			return err
		}
	}
}

// A busySession is a session whose child prints units without a pause, and an attachment that checks each byte of
// the output. A test may replace its proxy and its supervisor.
type busySession struct {
	spawned *client.Spawned
	a       *client.Attachment
	pos     atomic.Uint64
	err     atomic.Pointer[error]
}

func newBusySession(w *world, c *client.Client, id string, size protocol.Size) *busySession {
	w.T.Helper()
	spec := role("busyChild")
	spec.Cols, spec.Rows = size.Cols, size.Rows
	l := &busySession{spawned: w.spawn(c, id, spec)}
	l.a = w.attach(c, id, client.AttachOptions{}).Attachment
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.read(w.T.Context().Done()); err != nil {
			l.err.Store(&err)
		}
	})
	w.T.Cleanup(func() { _ = l.a.Close(); wg.Wait() })
	return l
}

// read checks the output. It returns nil when the test ends, or an error if a byte is wrong for its offset.
func (l *busySession) read(over <-chan struct{}) error {
	for {
		m, err := l.a.Receive(limit)
		select {
		case <-over:
			return nil
		default:
		}
		pos := l.pos.Load()
		switch {
		case err != nil:
			return fmt.Errorf("receive after offset %d: %w", pos, err)
		case m.Kind == client.Resized && m.Size == l.spawned.Session.Size: // sent after a resume
		case m.Kind != client.Output || m.Offset != pos:
			return fmt.Errorf("unexpected message after offset %d: %+v", pos, m)
		case !bytes.Equal(m.Data, unitsAt(pos, len(m.Data))):
			return fmt.Errorf("wrong output at offset %d: %q", pos, m.Data)
		}
		l.pos.Store(pos + uint64(len(m.Data)))
	}
}

// unitsAt returns n bytes of the output from an offset on.
func unitsAt(offset uint64, n int) []byte {
	number, skip := int(offset)/unitLen, int(offset)%unitLen
	return appendUnits(nil, number, (skip+n)/unitLen+1)[skip : skip+n]
}

// works waits until the child has printed more units. It fails the test if a byte was lost or duplicated, or
// if the session has another child.
func (l *busySession) works(w *world, c *client.Client, units int) {
	w.T.Helper()
	end := l.pos.Load() + uint64(units*unitLen)
	testkit.Eventually(w.T, limit, func() bool { return l.err.Load() != nil || l.pos.Load() >= end }, "a busy session continues to print")
	if err := l.err.Load(); err != nil {
		w.T.Fatalf("%s: %v", l.spawned.SessionID, *err)
	}
	info, err := c.SessionInfo(w.ctx(), l.spawned.SessionID)
	if err != nil || info.PID != l.spawned.PID || info.Instance != l.spawned.Session.Instance || info.Degraded {
		w.T.Fatalf("%s had pid %d of instance %s; now it is %+v, %v", l.spawned.SessionID, l.spawned.PID, l.spawned.Session.Instance, info, err)
	}
}

// A scribe types into an echoing session, each text when the echo of the one before has come. It fails if
// anything but the echo comes.
type scribe struct {
	v     *view
	over  atomic.Bool
	wg    sync.WaitGroup
	mu    sync.Mutex
	trips []span
	err   error
}

func newScribe(v *view) *scribe {
	s := &scribe{v: v}
	s.wg.Go(func() {
		for n := 0; !s.over.Load(); n++ {
			trip := span{begin: time.Now()}
			err := s.trip(fmt.Appendf(nil, "<%d>", n))
			trip.end = time.Now()
			s.mu.Lock()
			s.trips, s.err = append(s.trips, trip), err
			s.mu.Unlock()
			if err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond) // 5 ms is faster than the key repeat of a keyboard
		}
	})
	v.t.Cleanup(s.stop)
	return s
}

func (s *scribe) trip(text []byte) error {
	if _, err := s.v.Write(text); err != nil {
		return err
	}
	for seen := []byte(nil); len(seen) < len(text); {
		m, err := s.v.Receive(limit)
		if err != nil {
			return fmt.Errorf("waiting for the echo of %q: %w", text, err)
		}
		if seen = append(seen, m.Data...); !bytes.HasPrefix(text, seen) || m.Kind != client.Output && m.Kind != client.Resized {
			return fmt.Errorf("the echo of %q is %q, %+v", text, seen, m)
		}
	}
	return nil
}

func (s *scribe) stop() { s.over.Store(true); s.wg.Wait() }

// longest returns the longest round trip that overlaps a span. It first waits for a round trip that began
// after the span.
func (s *scribe) longest(t testing.TB, within span) time.Duration {
	t.Helper()
	var most time.Duration
	testkit.Eventually(t, limit, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err != nil {
			t.Fatal(s.err)
		}
		most = 0
		for _, trip := range s.trips {
			if trip.begin.Before(within.end) && trip.end.After(within.begin) {
				most = max(most, trip.took())
			}
		}
		return len(s.trips) > 0 && s.trips[len(s.trips)-1].begin.After(within.end)
	}, "a text is echoed after the span")
	return most
}

// besideBusy limits the time that a replacement takes beside sessions of the largest size that print the
// costliest output. stallBesideBusy limits how long a user of another session waits for an echo meanwhile.
const (
	besideBusy      = 10 * time.Second
	stallBesideBusy = 2 * time.Second
)

// Beside sessions that print the costliest output without a pause, the proxy is handed over, the supervisor
// is upgraded, one command replaces both, and the supervisor is killed. No session may end, no byte may be
// lost or duplicated in either direction, and a user of an ordinary session must be able to type all the
// time.
// demand: S9, S10
func TestReplaceBesideBusy(t *testing.T) {
	count, rounds, size := 2, 1, protocol.Size{Cols: protocol.MaxCols / 4, Rows: protocol.MaxRows / 4}
	if isLong {
		count, rounds, size = 8, 4, protocol.Size{Cols: protocol.MaxCols, Rows: protocol.MaxRows} // after five deaths in a minute the keeper starts no supervisor
	}
	w := newWorld(t, bigRing) // so that a viewer that is delayed by other tests misses nothing
	c := w.dial(client.Options{})
	s := newScribe(w.echo(c, "ordinary"))
	var busy []*busySession
	for i := range count {
		busy = append(busy, newBusySession(w, c, fmt.Sprint("busy-", i), size))
	}
	const units = 12 // more than one read of a terminal returns
	for _, l := range busy {
		l.works(w, c, units)
	}
	for range rounds {
		for _, r := range []struct {
			name string
			do   func()
		}{
			{"handoff", w.handOff},
			{"supervisor --upgrade", func() { w.Must("supervisor", "--upgrade") }},
			{"proxy upgrade", func() { w.Must("proxy", "upgrade") }},
			{"kill -9", func() { w.KillSupervisor() }},
		} {
			end := beginSpan()
			r.do()
			replaced := end()
			for _, l := range busy {
				l.works(w, c, units)
			}
			all := end()
			stall := s.longest(t, all)
			t.Logf("%s took %v; all busy sessions printed again after %v; the longest echo in another session took %v", r.name, replaced.took(), all.took(), stall)
			if replaced.took() > besideBusy || stall > stallBesideBusy {
				t.Errorf("%s took %v, and stalled another session for %v; want at most %v and %v", r.name, replaced.took(), stall, besideBusy, stallBesideBusy)
			}
		}
	}
	s.stop()
	for _, l := range busy {
		kept, from, err := c.Output(w.ctx(), l.spawned.SessionID)
		if err != nil || !bytes.Equal(kept, unitsAt(from, len(kept))) {
			t.Errorf("%s: the supervisor's output from offset %d on differs from the printed bytes; %v", l.spawned.SessionID, from, err)
		}
		if err := c.Terminate(w.ctx(), l.spawned.SessionID, client.End{}); err != nil {
			t.Error(err)
		}
	}
}
