//go:build linux || darwin

package session

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

func awayOf(t testing.TB, s *Session) protocol.AwayInfo {
	t.Helper()
	w, err := s.Away()
	testkit.Must(t, err)
	return w
}

// Events are counted from the moment when the last viewer that can write has left. The summary is kept while a viewer
// is attached again.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		f := by(s)
		some := "\a\x1b]9;built\a" + promptMark + startMark + endMark(3)
		show(f, some)
		if w := awayOf(t, s); w.Left != nil || w.Printed != uint64(len(some)) || w.Bells != 1 || w.Ended != 1 || len(w.Notifications) != 1 {
			t.Errorf("before the first viewer: %+v", w)
		}
		first := look(t, s, protocol.AttachSpec{Client: "one", Cols: 90, Rows: 30})
		here := time.Now()
		time.Sleep(time.Second)
		second := look(t, s, protocol.AttachSpec{Client: "two"})
		only := look(t, s, protocol.AttachSpec{Client: "three", Mode: protocol.ModeReadOnly})
		show(f, "\a\a"+promptMark+"one\r\ntwo\r\nthr")
		if w := awayOf(t, s); w.Left != nil || !w.BackAt.Equal(here) || w.Printed != uint64(len(some)) || w.Bells != 1 {
			t.Errorf("while a viewer is attached: %+v", w)
		}
		want := []protocol.ViewerInfo{
			{Client: "one", Mode: protocol.ModeShared, Since: here, Window: sz(90, 30)},
			{Client: "two", Mode: protocol.ModeShared, Since: here.Add(time.Second)},
			{Client: "three", Mode: protocol.ModeReadOnly, Since: here.Add(time.Second)},
		}
		if i := info(t, s); !reflect.DeepEqual(i.Viewers, want) || i.Left != nil {
			t.Errorf("the viewers are %+v, left %+v", i.Viewers, i.Left)
		}
		first.a.Detach()
		if i := info(t, s); i.Left != nil {
			t.Errorf("one viewer is still attached, and Left is %+v", i.Left)
		}
		second.a.Detach()
		gone, end := time.Now(), info(t, s).OutputOffset
		left := protocol.Left{At: gone, Offset: end, Line: 2}
		if i := info(t, s); i.Left == nil || *i.Left != left || i.Attachments != 1 {
			t.Errorf("left %+v, want %+v", i.Left, left)
		}
		time.Sleep(time.Minute)
		show(f, some)
		w := awayOf(t, s)
		if *w.Left != left || !w.BackAt.IsZero() || w.Printed != uint64(len(some)) || w.Bells != 1 || w.Ended != 1 ||
			!slices.Equal(w.Notifications, []protocol.Notification{{Body: "built"}}) || len(w.Commands) != 1 || *w.Commands[0].ExitCode != 3 || w.Commands[0].Count != 2 {
			t.Errorf("meanwhile: %+v", w)
		}
		only.a.Detach()
		third := look(t, s, protocol.AttachSpec{})
		show(f, some)
		now := awayOf(t, s)
		w.BackAt = time.Now()
		if !reflect.DeepEqual(now, w) {
			t.Errorf("a viewer has attached again: %+v, want %+v", now, w)
		}

		// A viewer whose connection is lost is expected to resume. It counts as away only if it does not resume in
		// time.
		third.a.Close()
		lostAt := info(t, s).OutputOffset
		show(f, "\a")
		if i := info(t, s); i.Left != nil || !reflect.DeepEqual(awayOf(t, s), now) {
			t.Errorf("after a lost connection: left %+v, %+v", i.Left, awayOf(t, s))
		}
		third, err := attach(s, protocol.AttachSpec{Writer: third.a.Writer()}, nil)
		testkit.Must(t, err)
		if i := info(t, s); !i.Viewers[0].Since.Equal(w.BackAt) || !reflect.DeepEqual(awayOf(t, s), now) {
			t.Errorf("after the viewer resumed: %+v, %+v", i.Viewers, awayOf(t, s))
		}
		third.a.Close()
		at := time.Now()
		time.Sleep(reconnectTime + time.Second)
		synctest.Wait()
		if w := awayOf(t, s); w.Left == nil || !w.Left.At.Equal(at) || w.Left.Offset != lostAt+1 || w.Printed != 0 {
			t.Errorf("after the viewer did not resume: %+v", w)
		}
	})
}

// An attachment that is stolen from a viewer does not begin an absence.
func TestStealIsNotLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, _ := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		first := look(t, s, protocol.AttachSpec{Mode: protocol.ModeExclusive})
		before := awayOf(t, s)
		time.Sleep(time.Second)
		look(t, s, protocol.AttachSpec{Mode: protocol.ModeExclusive, Steal: true})
		if w := awayOf(t, s); !reflect.DeepEqual(w, before) {
			t.Errorf("after the steal: %+v, before: %+v", w, before)
		}
		for e := range slices.Values(since(t, tb, 0, protocol.EventDetached)) {
			if e.Session.Left != nil {
				t.Errorf("the event has an absence: %+v", e.Session.Left)
			}
		}
		first.a.Close()
	})
}

// The summary of an absence has a bounded size.
func TestAwayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		for i := range 100 {
			show(by(s), fmt.Sprintf("\x1b]9;%d %s\a", i, strings.Repeat("n", 3000))+"\x1b]133;C;cmdline_url="+strings.Repeat("é", 700)+"\a"+endMark(0)+promptMark)
			time.Sleep(time.Second)
		}
		w := awayOf(t, s)
		if len(w.Commands) != protocol.MaxAway || w.Ended != 100 || len(w.Commands[0].Line) != awayLine {
			t.Errorf("%d commands of %d, of %d bytes", len(w.Commands), w.Ended, len(w.Commands[0].Line))
		}
		if n := len(w.Notifications); n != awayText/protocol.MaxTitle || !strings.HasPrefix(w.Notifications[n-1].Body, "99 ") {
			t.Errorf("%d notifications, the last is %.10q", n, w.Notifications[max(0, n-1)].Body)
		}
		show(by(s), strings.Repeat("\x1b]9;x\a", 100))
		if w := awayOf(t, s); len(w.Notifications) != protocol.MaxAway {
			t.Errorf("%d notifications", len(w.Notifications))
		}
	})
}

// The environment is that of the last viewer that sent one. A viewer that resumes does not change it, because it has
// sent its environment before.
func TestEnvironment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, _ := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		is := func(when string, want ...string) {
			t.Helper()
			if got, err := s.Environment(); err != nil || got == nil || !slices.Equal(got, want) {
				t.Errorf("%s: %q, %v; want %q", when, got, err, want)
			}
		}
		is("at first")
		first := look(t, s, protocol.AttachSpec{Writer: "a", Env: []string{"A=1"}})
		is("sent", "A=1")
		look(t, s, protocol.AttachSpec{Env: []string{"A=2"}})
		is("sent by another viewer", "A=2")
		look(t, s, protocol.AttachSpec{})
		look(t, s, protocol.AttachSpec{Mode: protocol.ModeReadOnly, Env: []string{"A=3"}})
		is("sent by a read-only viewer", "A=2")
		first.a.Close()
		look(t, s, protocol.AttachSpec{Writer: "a", Env: []string{"A=1"}})
		is("sent again", "A=2")
	})
}

// The events before a writer attaches belong to the absence, also if the screen has not seen them yet.
func TestAwayBehindScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		s.do(func() { // loop answers the request to attach next
			show(by(s), "\a\x1b]9;built\a"+promptMark+startMark+endMark(3))
			go func() {
				if _, _, err := s.Attach(t.Context(), protocol.AttachSpec{}); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		})
		synctest.Wait()
		if w := awayOf(t, s); w.BackAt.IsZero() || w.Bells != 1 || w.Ended != 1 || len(w.Commands) != 1 || len(w.Notifications) != 1 {
			t.Errorf("during the absence: %+v", w)
		}
	})
}
