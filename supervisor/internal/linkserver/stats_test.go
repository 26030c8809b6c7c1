//go:build linux || darwin

package linkserver

import (
	"runtime"
	"testing"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/session"
)

// The statistics count what the test has caused.
func TestStats(t *testing.T) {
	begun := time.Now()
	r := newRig(t, session.Config{RingBytes: 64 << 10}, "")
	c := r.link(t)
	stats := func() *wire.StatsReport { return call[*wire.StatsReport](t, c, wire.Stats{}) }
	none := stats()
	if none.StartedAt.Before(begun.Add(-time.Second)) || none.Links != 1 || none.Running != 0 || none.Spawns != 0 || none.BytesPrinted != 0 {
		t.Errorf("before the first session: %+v", none)
	}
	if none.Goroutines == 0 || none.HeapBytes == 0 || none.Files == 0 || none.MaxFiles < none.Files {
		t.Errorf("the process: %+v", none)
	}
	if runtime.GOOS == "linux" && (none.RSSBytes < none.HeapBytes/2 || none.MaxPTYs == 0) {
		t.Errorf("the system: %+v", none)
	}

	s := r.session(t, `stty -echo -onlcr; echo READY; read; seq 100000; echo DONE; exec sleep 1000`)
	slow := attach(t, c, 1, protocol.AttachSpec{SessionID: s.ID()})
	fast := attach(t, c, 2, protocol.AttachSpec{SessionID: s.ID()})
	fast.typeAt(t, 0, "xyz\n")
	fast.until(t, "DONE")
	if _, err := r.table.Create("", "", protocol.SpawnSpec{Argv: []string{"/no/such/program"}}, protocol.Limits{}, ""); err == nil {
		t.Error("a program that does not exist was started")
	}
	var missed uint64
	for slow.left > 0 || slow.pos < fast.pos {
		m, err := slow.next(t)
		testkit.Must(t, err)
		if m, ok := m.(*wire.Resync); ok {
			missed += m.BytesMissed
		}
	}
	now := stats()
	if now.Running != 1 || now.Attachments != 2 || now.Spawns != 1 || now.SpawnsFailed != 1 || now.BytesTyped != 4 {
		t.Errorf("with one session: %+v", now)
	}
	if _, _, end, _ := s.Read(0, 1); now.BytesPrinted != end {
		t.Errorf("%d bytes printed, want %d", now.BytesPrinted, end)
	}
	// The fast viewer may have missed bytes, too.
	if missed == 0 || now.BytesMissed < missed || now.Resyncs == 0 {
		t.Errorf("%d snapshots for %d missed bytes, want at least %d", now.Resyncs, now.BytesMissed, missed)
	}

	end := func(s *session.Session, e session.End) {
		t.Helper()
		testkit.Must(t, s.Terminate(e))
		testkit.Within(t, patience, "the session ends", s.Exited())
	}
	end(s, session.End{})
	end(r.session(t, `trap "" HUP; echo READY; while :; do sleep 1000; done`), session.End{Grace: new(time.Millisecond)})
	testkit.Within(t, patience, "the session ends", r.session(t, "echo READY").Exited())
	if n := stats().Attachments; n != 2 {
		t.Errorf("%d attachments while two viewers have not read the end, want 2", n)
	}
	for _, v := range []*view{slow, fast} {
		if _, ok := v.end(t).(*wire.Exited); !ok {
			t.Error("a viewer received no exit")
		}
		v.st.Close()
	}
	testkit.Eventually(t, patience, func() bool { return stats().Attachments == 0 }, "the viewers have detached")
	now = stats()
	if now.Exited != 3 || now.Running != 0 || now.Draining != 0 || now.Spawns != 3 || now.ExitsNatural != 1 || now.ExitsSoft != 1 || now.ExitsHard != 1 {
		t.Errorf("after the sessions have ended: %+v", now)
	}
}
