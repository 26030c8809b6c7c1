package e2e

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// The claim, with 100 sessions of 10,000 lines each: in 99 of 100 cases an upgrade of the supervisor stalls a
// client for at most 100 ms, and its sudden death for at most 300 ms. If each session has a client that
// types, all clients reconnect at the same time.
const (
	replacedSessions = 100
	replacedLines    = 10_000
)

// BenchmarkReplaceStall has clients, each with its own session, that type and wait for the echo. A client's
// stall is its longest round trip that overlaps the time from the start of the replacement until another
// supervisor answers. "quiet" is the same measurement without a replacement.
func BenchmarkReplaceStall(b *testing.B) {
	for _, tt := range []struct {
		name    string
		clients int
		replace func(*world) (took time.Duration)
	}{
		{"upgrade", 1, (*world).upgradeSupervisor}, {"upgrade", replacedSessions, (*world).upgradeSupervisor},
		{"death", 1, (*world).killSupervisor}, {"death", replacedSessions, (*world).killSupervisor},
	} {
		b.Run(fmt.Sprintf("%s/%d", tt.name, tt.clients), func(b *testing.B) {
			w := newWorld(b, "HOLDFAST_CRASH_LIMIT=1000000", "HOLDFAST_CRASH_PAUSE=1ms")
			d := w.doors()
			p := probes{every: max(time.Duration(tt.clients), 10) * time.Millisecond}
			for i := range replacedSessions {
				id := fmt.Sprint("echo-", i)
				d.spawnSlowly(id, shell("seq 1 "+strconv.Itoa(replacedLines)+"; "+echoScript))
				if i >= tt.clients {
					continue
				}
				a, err := d.c.Attach(b.Context(), protocol.SessionID(id), client.AttachOptions{History: new(int)})
				testkit.Must(b, err)
				b.Cleanup(func() { _ = a.Close() })
				p.conns = append(p.conns, clientsTerminal{a})
			}
			p.start(b)
			var stalls, quiet []span
			took := 200 * time.Millisecond
			var all time.Duration
			n := 0
			for b.Loop() {
				end := beginSpan()
				time.Sleep(2 * took) // the duration of the quiet span
				quiet = append(quiet, end())
				end = beginSpan()
				took = tt.replace(w)
				time.Sleep(200 * time.Millisecond) // so that each client completes a round trip
				stalls = append(stalls, end())
				all += took
				n++
				time.Sleep(4 * time.Second) // the time in which the new supervisor makes the screens; nobody upgrades twice within seconds
			}
			p.stop()
			p.report(b, stalls, quiet)
			b.ReportMetric(millis(all/time.Duration(n)), "replaced-ms")
		})
	}
}

// upgradeSupervisor upgrades the supervisor to the same program.
func (w *world) upgradeSupervisor() time.Duration {
	w.T.Helper()
	begun := time.Now()
	w.Must("supervisor", "--upgrade")
	return time.Since(begun)
}

// killSupervisor kills the supervisor, and returns when another one serves.
func (w *world) killSupervisor() time.Duration {
	w.T.Helper()
	held := w.Only("supervisor")
	begun := time.Now()
	w.Kill(held)
	testkit.Eventually(w.T, limit, func() bool {
		all := w.Running("supervisor")
		return len(all) == 1 && all[0] != held && w.Holder("supervisor.sock") == all[0].PID
	}, "another supervisor serves")
	return time.Since(begun)
}

// clientsTerminal is a terminal of the client library, without a time limit.
type clientsTerminal struct{ *client.Attachment }

func (clientsTerminal) SetDeadline(time.Time) error { return nil }

func (t clientsTerminal) printed() ([]byte, error) {
	p := make([]byte, 4096)
	n, err := t.Read(p)
	return p[:n], err
}
