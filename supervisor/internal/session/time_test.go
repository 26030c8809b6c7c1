//go:build linux || darwin

package session

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/session/event"
)

// The info of a session tells how long it is unused, also after the clock of the machine was set.
func TestInfoIfClockIsSet(t *testing.T) {
	var jump atomic.Int64
	now := func() time.Time { return withClock(time.Now(), time.Duration(jump.Load())) }
	tb, _ := fakeTable(t, Config{Now: now})
	s := create(t, tb, bash(""))
	for _, by := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		jump.Store(int64(by))
		if unused := now().Round(0).Sub(info(t, s).LastIOAt); unused < 0 || unused > time.Hour {
			t.Errorf("clock set by %v: the session, which was just started, is unused for %v", by, unused)
		}
	}
}

// Output, input and a resize change the time of the last I/O. No other request does.
// demand: M7
func TestLastIO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Unix(1000, 0)
		tb, by := fakeTable(t, Config{Now: func() time.Time { return now }})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{Writer: "w"})
		if i := info(t, s); i.LastIOAt != now || i.CreatedAt != now {
			t.Errorf("created: got %v, %v; want %v", i.LastIOAt, i.CreatedAt, now)
		}
		for _, tt := range []struct {
			name  string
			do    func() error
			moves bool
		}{
			{"read", func() error { by(s).print([]byte("x")); return nil }, true},
			{"write", func() error { _, err := s.Type("", 0, []byte("x")); return err }, true},
			{"write by a writer", func() error { return v.a.Type(0, []byte("x")) }, true},
			{"resize", func() error { return s.Resize(protocol.Size{Cols: 10, Rows: 10}) }, true},
			{"resize to the same size", func() error { return s.Resize(protocol.Size{Cols: 10, Rows: 10}) }, true},
			{"a doubled write", func() error { return v.a.Type(0, []byte("x")) }, false},
			{"look", func() error { _, err := v.drain(); return err }, false},
			{"ask", func() error { _, err := s.Show(protocol.ScreenSpec{}); return err }, false},
			{"attach and detach", func() error {
				a, _, err := s.Attach(t.Context(), protocol.AttachSpec{})
				if err == nil {
					a.Close()
				}
				return err
			}, false},
		} {
			before := info(t, s).LastIOAt
			synctest.Wait() // no goroutine calls Now while now changes
			now = now.Add(time.Minute)
			if err := tt.do(); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			synctest.Wait()
			want := before
			if tt.moves {
				want = now
			}
			if got := info(t, s).LastIOAt; got != want {
				t.Errorf("%s: got %v, want %v; now is %v", tt.name, got, want, now)
			}
		}
	})
}

// exits ends a session's child and waits until the session has exited.
func exits(by func(*Session) *fakePTY, s *Session) {
	by(s).exit(pty.Status{})
	<-s.Exited()
	synctest.Wait()
}

// An exit record is kept for a while and then forgotten. A new life under the same id is not forgotten with the old
// one.
func TestExitKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{ExitKeep: time.Minute})
		s, err := tb.create("a", bash(""), "")
		testkit.Must(t, err)
		again, err := tb.create("b", bash(""), "")
		testkit.Must(t, err)
		time.Sleep(time.Hour) // only exited sessions are forgotten
		exits(by, s)
		exits(by, again)
		if again, err = tb.reopen("b", "", protocol.RespawnSpec{}, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		exits(by, again)
		time.Sleep(29 * time.Second)
		if i := info(t, s); i.State != protocol.StateExited {
			t.Errorf("got %s after 59 s", i.State)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, err = tb.Get("a")
		wantCode(t, "after 61 s", err, protocol.CodeSessionNotFound)
		if _, err := tb.Get("b"); err != nil {
			t.Errorf("the second life, 31 s after its end: %v", err)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		_, err = tb.Get("b")
		wantCode(t, "the second life, 61 s after its end", err, protocol.CodeSessionNotFound)
		var kinds []string
		for _, e := range eventsOf(t, tb) {
			kinds = append(kinds, fmt.Sprint(e.Session.ID, " ", e.Kind))
		}
		want := "a created,b created,a exited,b exited,b forgotten,b created,b exited,a forgotten,b forgotten"
		if got := strings.Join(kinds, ","); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	})
}

// A session that is started again with its old screen may be forgotten after its id was reserved. The new instance begins
// with an empty screen then.
func TestForgottenDuringReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		show(by(s), "old")
		exits(by, s)
		if above, _ := screenOf(s); above == nil {
			t.Error("an exited session has no screen")
		}
		testkit.Must(t, tb.Forget(s.id, ""))
		if above, _ := screenOf(s); above != nil {
			t.Errorf("a forgotten session has a screen of %d bytes", len(above))
		}
	})
}

func eventsOf(t *testing.T, tb *Table) []event.Event {
	t.Helper()
	events, _, err := tb.Events().Next(t.Context(), 0)
	testkit.Must(t, err)
	return events
}

// At most the newest exit records up to a limit are kept, even if many sessions end at the same time.
func TestExitRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keep = 3
		tb, by := fakeTable(t, Config{ExitRecords: keep})
		var ids []protocol.SessionID
		for i := range 10 {
			s, err := tb.create(protocol.SessionID(fmt.Sprint(i)), bash(""), "")
			testkit.Must(t, err)
			time.Sleep(time.Second)
			exits(by, s)
			ids = append(ids, s.ID())
			if n := len(tb.List("")); n != min(keep, i+1) {
				t.Errorf("got %d records after %d ends", n, i+1)
			}
		}
		if got := listed(tb); !slices.Equal(got, ids[len(ids)-keep:]) {
			t.Errorf("got %v, want the last of %v", got, ids)
		}
		var all []*Session
		for range 50 {
			all = append(all, create(t, tb, bash("")))
		}
		for _, s := range all {
			by(s).exit(pty.Status{})
		}
		for _, s := range all {
			<-s.Exited()
		}
		synctest.Wait()
		if got := listed(tb); len(got) != keep || tb.Live() != 0 {
			t.Errorf("got %v, %d live; want %d records", got, tb.Live(), keep)
		}
	})
}

func listed(tb *Table) (ids []protocol.SessionID) {
	for _, i := range tb.List("") {
		ids = append(ids, i.ID)
	}
	return ids
}

// The grace is that of the request, or the table's, or 250 ms. The grace is over when the child ends.
// demand: M13
func TestGrace(t *testing.T) {
	zero, long := time.Duration(0), 10*time.Second
	for _, tt := range []struct {
		name  string
		table time.Duration
		grace *time.Duration
		deaf  bool
		want  time.Duration
		how   protocol.Outcome
	}{
		{"default", 0, nil, true, 250 * time.Millisecond, protocol.OutcomeHard},
		{"the table's", time.Minute, nil, true, time.Minute, protocol.OutcomeHard},
		// demand: R3
		{"asked for", time.Minute, &long, true, long, protocol.OutcomeHard},
		{"none", time.Minute, &zero, true, 0, protocol.OutcomeHard},
		{"the child ends at once", time.Minute, &long, false, 0, protocol.OutcomeSoft},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb, by := fakeTable(t, Config{Grace: tt.table})
				s := create(t, tb, bash(""))
				by(s).deaf = tt.deaf
				begun := time.Now()
				if err := s.Terminate(End{Grace: tt.grace}); err != nil || time.Since(begun) != 0 {
					t.Errorf("Terminate: %v after %v, want it to return at once", err, time.Since(begun))
				}
				<-s.Exited()
				if took := time.Since(begun); took != tt.want || s.Exit().Outcome != tt.how {
					t.Errorf("got %s after %v, want %s after %v", s.Exit().Outcome, took, tt.how, tt.want)
				}
			})
		})
	}
}

// If a child has ended and its terminal stays open, the session reads on until the terminal is silent, but for at
// most drainMax.
// demand: M13
func TestDrain(t *testing.T) {
	for _, tt := range []struct {
		name     string
		every    time.Duration // time between two outputs of a grandchild; 0 if it is silent
		min, max time.Duration
	}{
		{"silent", 0, drainQuiet, 2 * drainQuiet},
		{"a few words", drainQuiet / 2, drainMax, drainMax + drainQuiet},
		{"pauses", 3 * drainQuiet, drainQuiet, 3 * drainQuiet},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb, by := fakeTable(t, Config{})
				s := create(t, tb, bash(""))
				p := by(s)
				p.held = true
				begun := time.Now()
				p.print([]byte("last words"))
				p.exit(pty.Status{})
				for tt.every > 0 && !isClosed(s.Exited()) {
					select {
					case <-time.After(tt.every):
						p.print([]byte("."))
					case <-s.Exited():
					}
				}
				<-s.Exited()
				if took := time.Since(begun); took < tt.min || took > tt.max {
					t.Errorf("the end took %v, want %v to %v", took, tt.min, tt.max)
				}
				if data, _, _, err := s.Read(0, 10); string(data) != "last words" {
					t.Errorf("got %q, %v; want the last words", data, err)
				}
			})
		})
	}
}

// Output that is in the terminal when the child ends is read, even if the session is late.
func TestLateReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan struct{})
		var p *latePTY
		tb := NewTable(Config{Start: func(spec pty.Spec) (PTY, error) {
			p = &latePTY{newFake(spec), late}
			return p, nil
		}})
		defer shutdown(t, tb)
		s := create(t, tb, bash(""))
		p.held = true
		p.print([]byte("last words"))
		p.exit(pty.Status{})
		time.Sleep(time.Second) // the deadline after the end has long passed
		close(late)
		<-s.Exited()
		if data, _, _, err := s.Read(0, 10); string(data) != "last words" {
			t.Errorf("got %q, %v; want the last words", data, err)
		}
	})
}

// latePTY is a terminal whose reader is not scheduled for a while.
type latePTY struct {
	*fakePTY
	late chan struct{}
}

func (p *latePTY) ReadEach(to pty.Memory, each func(int)) (int, error) {
	<-p.late
	return p.fakePTY.ReadEach(to, each)
}
