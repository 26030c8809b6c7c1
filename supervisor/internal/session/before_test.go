//go:build linux || darwin

package session

import (
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/pty"
)

// A life that fails right after a reopen is replaced by the life before, which has its exit record again. The opener
// does that, or the supervisor if the opener has died. A life that did not fail early stays.
func TestReopenFails(t *testing.T) {
	const early = 200 * time.Millisecond
	for _, tt := range []struct {
		name   string
		lives  time.Duration
		opener func(tb *Table, s *Session) // the opener's action after the failure, or nil
		back   bool
	}{
		{"the opener removes it", 0, func(tb *Table, s *Session) { _ = tb.ForgetFailed(s.ID(), s.Instance()) }, true},
		{"the opener has died", 0, nil, true},
		{"a client forgets it", 0, func(tb *Table, s *Session) { _ = tb.Forget(s.ID(), s.Instance()) }, false},
		{"the life did not fail early", time.Second, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb, by := fakeTable(t, Config{})
				first := create(t, tb, bash(""))
				by(first).exit(pty.Status{Code: 3})
				<-first.Exited()
				s, err := tb.Reopen(first.ID(), "", protocol.RespawnSpec{}, "", early)
				if err != nil {
					t.Fatal(err)
				}
				if list := tb.List(""); len(list) != 1 || list[0].Instance != s.Instance() {
					t.Errorf("after the reopen the table lists %+v", list)
				}
				time.Sleep(tt.lives)
				by(s).exit(pty.Status{Code: 4})
				<-s.Exited()
				if tt.opener != nil {
					tt.opener(tb, s)
				}
				time.Sleep(openerTime + time.Second)
				got, err := tb.Get(first.ID())
				switch {
				case tt.back:
					if err != nil || got.Instance() != first.Instance() || got.Exit().ExitCode != 3 || info(t, got).State != protocol.StateExited {
						t.Fatalf("got %v, want the life before, with its record", err)
					}
					_, _, err := got.Attach(t.Context(), fromStart(got))
					wantCode(t, "attach to the life before", err, "")
				case tt.opener != nil:
					wantCode(t, "get", err, protocol.CodeSessionNotFound)
				case err != nil || got != s:
					t.Errorf("got %v, want the life that lived", err)
				}
				time.Sleep(2 * asideTime)
				tb.registry.mu.Lock()
				n := len(tb.registry.aside)
				tb.registry.mu.Unlock()
				if n != 0 {
					t.Errorf("%d lives were put aside and never released", n)
				}
				if !tt.back && !isClosed(first.gone) {
					t.Error("the life before was never released")
				}
				time.Sleep(20 * time.Minute)
				if list := tb.List(""); len(list) != 0 {
					t.Errorf("after the time for exited sessions, %+v is still listed", list)
				}
			})
		})
	}
}
