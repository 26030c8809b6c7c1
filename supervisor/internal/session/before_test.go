//go:build linux || darwin

package session

import (
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/pty"
)

// A life that failed right after a reopen gives way to the one before, with its exit record:
// by its opener, or by the supervisor if that has died. One that lived is not touched.
func TestReopenFails(t *testing.T) {
	const early = 200 * time.Millisecond
	for _, tt := range []struct {
		name   string
		lives  time.Duration
		opener func(tb *Table, s *Session) // what the opener does at the end; nil is nothing
		back   bool
	}{
		{"its opener removes it", 0, func(tb *Table, s *Session) { _ = tb.ForgetFailed(s.ID(), s.Instance()) }, true},
		{"its opener has died", 0, nil, true},
		{"it is forgotten", 0, func(tb *Table, s *Session) { _ = tb.Forget(s.ID(), s.Instance()) }, false},
		{"it lived", time.Second, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb, by := fakeTable(t, Config{})
				first := create(t, tb, bash(""))
				by(first).exit(pty.Status{Code: 3})
				<-first.Exited()
				s, err := tb.ReopenFor(first.ID(), "", protocol.RespawnSpec{}, "", early)
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
					_, _, err := got.Attach(fromStart(got))
					wantCode(t, "attach to what is there again", err, "")
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
					t.Errorf("%d lives are aside for good", n)
				}
				if !tt.back && !isClosed(first.gone) {
					t.Error("the life before is held for good")
				}
				time.Sleep(20 * time.Minute)
				if list := tb.List(""); len(list) != 0 {
					t.Errorf("after all that was to be remembered, %+v is", list)
				}
			})
		})
	}
}
