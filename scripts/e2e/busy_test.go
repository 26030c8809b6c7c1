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

// A unit is the output that a busy child prints without a pause: a number, and then sequences
// of which a few bytes move or print many cells. The repetitions are the most, because they are
// the costliest for their length.
const unitLen = 400

var costly = "\x1b['}\x1b['~\x1b[ @\x1b[ A\x1b#8\x1b[H中\x1b[9999999b" + strings.Repeat("x\x1b[9999999b", 30)

// appendUnits appends the units from a number on to p.
func appendUnits(p []byte, number, units int) []byte {
	for i := range units {
		p = fmt.Appendf(p, "%0*d%s", unitLen-len(costly), number+i, costly)
	}
	return p
}

// labourer is the child.
func labourer([]string) error {
	if err := raw(os.Stdin); err != nil {
		return err
	}
	for n := 0; ; n += perGrant {
		if _, err := os.Stdout.Write(appendUnits(nil, n, perGrant)); err != nil {
			return err
		}
	}
}

// A labour is a session whose child prints units without a pause, and an attachment
// that checks each byte of it. Its proxy and its supervisor may be replaced.
type labour struct {
	spawned *client.Spawned
	a       *client.Attachment
	pos     atomic.Uint64
	err     atomic.Pointer[error]
}

func newLabour(w *world, c *client.Client, id string, size protocol.Size) *labour {
	w.T.Helper()
	spec := role("labourer")
	spec.Cols, spec.Rows = size.Cols, size.Rows
	l := &labour{spawned: w.spawn(c, id, spec)}
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

// read returns when the attachment is closed, or why a byte is not the one that belongs at
// its offset.
func (l *labour) read(over <-chan struct{}) error {
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
			return fmt.Errorf("nothing comes after offset %d: %w", pos, err)
		case m.Kind == client.Resized && m.Size == l.spawned.Session.Size: // after a resume
		case m.Kind != client.Output || m.Offset != pos:
			return fmt.Errorf("after offset %d comes %+v", pos, m)
		case !bytes.Equal(m.Data, unitsAt(pos, len(m.Data))):
			return fmt.Errorf("at offset %d comes %q", pos, m.Data)
		}
		l.pos.Store(pos + uint64(len(m.Data)))
	}
}

// unitsAt is n bytes of the output from an offset on.
func unitsAt(offset uint64, n int) []byte {
	number, skip := int(offset)/unitLen, int(offset)%unitLen
	return appendUnits(nil, number, (skip+n)/unitLen+1)[skip : skip+n]
}

// works waits until the child has printed more units, and fails the test if one of its bytes
// was lost or came twice, or if the child is another one.
func (l *labour) works(w *world, c *client.Client, units int) {
	w.T.Helper()
	end := l.pos.Load() + uint64(units*unitLen)
	testkit.Eventually(w.T, limit, func() bool { return l.err.Load() != nil || l.pos.Load() >= end }, "a busy session prints on")
	if err := l.err.Load(); err != nil {
		w.T.Fatalf("%s: %v", l.spawned.SessionID, *err)
	}
	info, err := c.SessionInfo(w.ctx(), l.spawned.SessionID)
	if err != nil || info.PID != l.spawned.PID || info.Instance != l.spawned.Session.Instance || info.Degraded {
		w.T.Fatalf("%s was pid %d of %s, and is %+v; %v", l.spawned.SessionID, l.spawned.PID, l.spawned.Session.Instance, info, err)
	}
}

// A scribe types into an echoing session without a pause, each text when the one before was
// read, and fails the test if anything but that comes.
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
			time.Sleep(5 * time.Millisecond) // as fast as keys that repeat, and faster
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
			return fmt.Errorf("%q is typed, and nothing comes: %w", text, err)
		}
		if seen = append(seen, m.Data...); !bytes.HasPrefix(text, seen) || m.Kind != client.Output && m.Kind != client.Resized {
			return fmt.Errorf("%q is typed, %q and %+v come", text, seen, m)
		}
	}
	return nil
}

func (s *scribe) stop() { s.over.Store(true); s.wg.Wait() }

// longest returns the longest round trip that was under way within a span, once one has been
// made after it.
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
	}, "what is typed is echoed")
	return most
}

// What a replacement may take beside sessions of the largest size that print what is
// costliest, and for how long a user of another session may wait for an echo meanwhile.
const (
	besideBusy      = 10 * time.Second
	stallBesideBusy = 2 * time.Second
)

// Beside sessions that print what costs most to show, without a pause, the proxy is handed
// over, the supervisor becomes another one, one command replaces both, and the supervisor is
// killed: no session ends, no byte is lost or comes twice in either direction, and a user of
// an ordinary session goes on typing.
// demand: S9, S10
func TestReplaceBesideBusy(t *testing.T) {
	count, rounds, size := 2, 1, protocol.Size{Cols: protocol.MaxCols / 4, Rows: protocol.MaxRows / 4}
	if os.Getenv("HOLDFAST_LONG") != "" {
		count, rounds, size = 8, 4, protocol.Size{Cols: protocol.MaxCols, Rows: protocol.MaxRows} // after five deaths in a minute the keeper starts no supervisor
	}
	w := newWorld(t, bigRing) // a viewer that is late beside the other tests misses nothing
	c := w.dial(client.Options{})
	s := newScribe(w.echo(c, "ordinary"))
	var busy []*labour
	for i := range count {
		busy = append(busy, newLabour(w, c, fmt.Sprint("busy-", i), size))
	}
	const units = 12 // more than is read of a terminal at once
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
			t.Logf("%s took %v; all busy sessions print on after %v; the longest echo in another session took %v", r.name, replaced.took(), all.took(), stall)
			if replaced.took() > besideBusy || stall > stallBesideBusy {
				t.Errorf("%s took %v, and stalled another session for %v; want at most %v and %v", r.name, replaced.took(), stall, besideBusy, stallBesideBusy)
			}
		}
	}
	s.stop()
	for _, l := range busy {
		kept, from, err := c.Output(w.ctx(), l.spawned.SessionID)
		if err != nil || !bytes.Equal(kept, unitsAt(from, len(kept))) {
			t.Errorf("%s: from offset %d on the supervisor has other bytes than were printed; %v", l.spawned.SessionID, from, err)
		}
		if err := c.Terminate(w.ctx(), l.spawned.SessionID, client.End{}); err != nil {
			t.Error(err)
		}
	}
}
