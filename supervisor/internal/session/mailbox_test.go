//go:build linux || darwin

package session

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
)

// Requests that wait together share a turn, a request that may take long begins one, and the end of
// the session ends it.
func TestMailbox(t *testing.T) {
	for _, tt := range []struct {
		name  string
		alone int           // the request that may take long, or -1
		last  int           // the request that ends the session, or -1
		costs time.Duration // time of each request
		want  []int         // requests that were run before each settling
		left  int           // requests that are not run
	}{
		{"quick", -1, -1, 0, []int{5}, 0},
		{"slow", -1, -1, pieceTime, []int{1, 2, 3, 4, 5}, 0},
		{"half as slow", -1, -1, pieceTime / 2, []int{2, 4, 5}, 0},
		{"slow to save", -1, -1, pieceTime, []int{1, 4, 5}, 0},
		{"with a halt", 2, -1, 0, []int{2, 5}, 0},
		{"until the end", -1, 2, 0, []int{3}, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMailbox(&identity{id: "s"})
			const n = 5
			runs, answers, over := 0, 0, false
			failed := make(chan error, n)
			for i := range n {
				q := newAsk(func() { runs++; over = over || i == tt.last; time.Sleep(tt.costs) })
				q.isAlone = i == tt.alone
				go func() {
					select {
					case m.asks <- q:
						<-q.done
						failed <- nil
					case <-m.gone:
						failed <- notFound(m.of.id)
					}
				}()
				synctest.Wait() // they wait in this order
			}
			var settled []int
			for !over && runs < n {
				m.serve(<-m.asks, func() {
					settled = append(settled, runs)
					if tt.name == "slow to save" {
						time.Sleep(3 * pieceTime)
					}
				}, func() bool { return over })
			}
			close(m.gone)
			for range n {
				if err := <-failed; err == nil {
					answers++
				}
			}
			if !slices.Equal(settled, tt.want) || n-answers != tt.left {
				t.Errorf("%s: settled after %v, %d were not answered; want %v and %d", tt.name, settled, n-answers, tt.want, tt.left)
			}
		})
	}
}

// A request fails if loop does not begin with it in time, or has ended, and then it is not run.
func TestMailboxFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMailbox(&identity{id: "s"})
		run := func() { t.Error("the request was run") }
		wantCode(t, "busy", m.ask(time.Second, run), protocol.CodeBusy)
		close(m.gone)
		wantCode(t, "gone", m.ask(time.Second, run), protocol.CodeSessionNotFound)
		wantCode(t, "gone", m.request(func() error { run(); return nil }), protocol.CodeSessionNotFound)
		wantCode(t, "gone", m.try(func() error { run(); return nil }), protocol.CodeSessionNotFound)
		if m.do(run) || !m.isGone() {
			t.Error("a request was run although loop has ended")
		}
	})
}
