//go:build linux || darwin

package session

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/screen"
)

// typedBy returns the input that the session's child has received.
func typedBy(f *fakePTY) string {
	synctest.Wait()
	return string(f.take(1 << 20))
}

func show(f *fakePTY, text string) {
	f.print([]byte(text))
	synctest.Wait()
}

const askCursor, cursorIs = "\x1b[6n", "\x1b[1;1R"

// Each query is answered once: by the viewer that sent input last if its terminal answers, and otherwise by the
// session.
func TestOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		f := by(s)
		show(f, askCursor)
		if got := typedBy(f); got != "" {
			t.Errorf("the session answered with %q before a client could attach", got)
		}
		time.Sleep(claimTime)
		sessionAnswered := func(why string) {
			t.Helper()
			if got := typedBy(f); got != cursorIs {
				t.Errorf("%s: the session answered with %q, want %q", why, got, cursorIs)
			}
		}
		sessionAnswered("no viewer has attached")
		plain := look(t, s, protocol.AttachSpec{})
		readOnly := look(t, s, protocol.AttachSpec{Answers: true, Mode: protocol.ModeReadOnly})
		show(f, askCursor)
		sessionAnswered("no viewer answers")
		first := look(t, s, protocol.AttachSpec{Answers: true, Writer: "first"})
		second := look(t, s, protocol.AttachSpec{Answers: true, Writer: "second"})
		show(f, askCursor)
		sessionAnswered("the first viewer decides, and its terminal does not answer")
		seen := func(v *viewer, want int) {
			t.Helper()
			v.seen = nil
			if _, err := v.drain(); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(string(v.seen), askCursor); got != want {
				t.Errorf("viewer %s receives %d queries in %q, want %d", v.a.spec.Writer, got, v.seen, want)
			}
		}
		types := func(v *viewer, what string) {
			t.Helper()
			testkit.Must(t, v.a.Type(v.typed, []byte(what)))
			v.typed += uint64(len(what))
			f.take(len(what))
		}
		seen(plain, 2)
		seen(readOnly, 2)
		seen(first, 0)
		types(first, "x")
		show(f, "\x1b[6")
		show(f, "n")
		seen(first, 1)
		seen(second, 0)
		seen(plain, 1)
		types(second, "\x1b[I\x1b[<35;1;1M\x1b[1;1R\x1b]11;rgb:0/0/0\x1b\\") // the terminal answers queries and reports the focus and the mouse
		show(f, askCursor)
		seen(first, 1)
		types(second, "\x1b[A") // a key, which the user has pressed
		show(f, askCursor)
		seen(second, 1)
		seen(first, 0)
		if got := typedBy(f); got != "" {
			t.Errorf("the session answered with %q, although a viewer answers", got)
		}
		second.a.Close()
		show(f, askCursor)
		sessionAnswered("the viewer that decides has detached")
		back := look(t, s, protocol.AttachSpec{Answers: true, Writer: "second", Resume: &protocol.Resume{Instance: s.Instance(), Offset: second.pos}})
		seen(back, 0)
		show(f, askCursor)
		seen(back, 1)
		seen(first, 0)
		late := look(t, s, protocol.AttachSpec{Answers: true, Writer: "late", Resume: &protocol.Resume{Instance: s.Instance()}})
		seen(late, 0)
		if got := typedBy(f); got != "" {
			t.Errorf("the session answered with %q, although a viewer answers", got)
		}
	})
}

// A client that starts a session and attaches at once receives the first queries of the program.
func TestClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		show(by(s), askCursor)
		spec := fromStart(s)
		spec.Answers = true
		v := look(t, s, spec)
		if v.drain(); string(v.seen) != askCursor {
			t.Errorf("the viewer received %q, want the query", v.seen)
		}
		time.Sleep(2 * claimTime)
		if got := typedBy(by(s)); got != "" {
			t.Errorf("the session answered with %q as well", got)
		}
		v.a.Close()

		other := create(t, tb, bash(""))
		show(by(other), askCursor)
		look(t, other, protocol.AttachSpec{Answers: true}) // this viewer receives a snapshot, which has no query
		if got := typedBy(by(other)); got != cursorIs {
			t.Errorf("the viewer did not receive the query: the session answered with %q, want %q", got, cursorIs)
		}
	})
}

// A child that queries and does not read receives a bounded amount of answers, which take no room from the input of
// its writers.
func TestAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{InputBytes: 64 << 10})
		s := create(t, tb, bash(""))
		f := by(s)
		time.Sleep(claimTime)
		for range 100 {
			show(f, strings.Repeat(askCursor, 600))
		}
		if n, err := s.Type("", 0, make([]byte, 16<<10)); err != nil || n != 16<<10 {
			t.Errorf("%d bytes of input were accepted, %v", n, err)
		}
		total := 0
		for n := len(typedBy(f)); n > 0; n = len(typedBy(f)) {
			total += n
		}
		if total < maxReplies/2 || total > maxReplies+16<<10+f.room {
			t.Errorf("the child reads %d bytes", total)
		}
		show(f, askCursor)
		if got := typedBy(f); got != cursorIs {
			t.Errorf("later the session answered with %q, want %q", got, cursorIs)
		}
	})
}

// Titles, directories and notifications that a program prints are published as events. However many are printed, few
// are published.
func TestNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		for range 1000 {
			show(by(s), "\x07\x1b]0;spin\x07\x1b]0;title\x07\x1b]7;file:///tmp\x07\x1b]777;notify;T;B\x07")
		}
		show(by(s), "\x1b]0;last\x07")
		time.Sleep(screenEventInterval)
		synctest.Wait()
		events, _, err := tb.Events().Next(context.Background(), 1)
		if err != nil || len(events) > 30 {
			t.Fatalf("%d events, %v", len(events), err)
		}
		kinds := map[protocol.EventKind]int{}
		var text *protocol.Notification
		for _, e := range events {
			kinds[e.Kind]++
			if e.Notification != nil {
				text = e.Notification
			}
		}
		if kinds[protocol.EventTitle] != 2 || kinds[protocol.EventCwd] != 1 || kinds[protocol.EventBell] != 2 || *text != (protocol.Notification{Title: "T", Body: "B"}) {
			t.Errorf("the events are %v, the last notification is %+v", kinds, text)
		}
		if i := info(t, s); i.Title != "last" || i.CurrentCwd != "/tmp" || events[len(events)-1].Session.Title != "last" {
			t.Errorf("the title is %q, the directory %q", i.Title, i.CurrentCwd)
		}
	})
}

// A session that is silent compresses its screen once, drops it later, and then sets no timer.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		runs := func() (on bool) { s.do(func() { on = s.idle.c != nil }); return on }
		if runs() {
			t.Error("a timer runs before the first output")
		}
		for range 20 {
			show(by(s), strings.ReplaceAll(numbers(100), "\n", "\r\n"))
			time.Sleep(time.Second)
			if !runs() {
				t.Error("no timer runs after output")
			}
		}
		isDropped := func() (is bool) { s.do(func() { is = s.display.isDropped() }); return is }
		time.Sleep(dropAfter)
		if isDropped() {
			t.Error("the screen was dropped too early")
		}
		time.Sleep(2 * idleAfter)
		if runs() || !isDropped() {
			t.Error("the timer still runs after the session was silent, or the screen was not dropped")
		}
		c, err := s.Show(protocol.ScreenSpec{Scrollback: protocol.AllScrollback})
		if err != nil || len(c.Lines) != 2000 || !runs() {
			t.Errorf("got %d lines, %v", len(c.Lines), err)
		}
	})
}

// A viewer that asks for its own view receives the screen in its own size, with as much of the history as it asks
// for.
func TestSnapshotAsWished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		show(by(s), strings.ReplaceAll(numbers(3000), "\n", "\r\n")+strings.Repeat("x", 100)+"\r\n")
		for _, tt := range []struct {
			name  string
			spec  protocol.AttachSpec
			lines int // lines that the viewer shows
			width int // width of the first row of the last line
		}{
			{"in the session's size", protocol.AttachSpec{}, 1000 + 22, 80},
			{"no history", protocol.AttachSpec{History: new(0)}, 22, 80},
			{"all history", protocol.AttachSpec{History: new(1 << 30)}, 3001, 80},
			{"the screen only", protocol.AttachSpec{Resume: &protocol.Resume{Instance: s.Instance()}, Snapshot: true, ScreenOnly: true}, 22, 80},
			{"another size", protocol.AttachSpec{Mode: protocol.ModeReadOnly, View: protocol.ViewOwn, Cols: 30, Rows: 24, History: new(0)}, 20, 30},
			{"another size, raw", protocol.AttachSpec{Mode: protocol.ModeReadOnly, Cols: 30, Rows: 24, History: new(0)}, 22, 80},
		} {
			v := look(t, s, tt.spec)
			if _, err := v.drain(); err != nil {
				t.Fatal(err)
			}
			if v.info.Session.Size != (protocol.Size{Cols: 80, Rows: 24}) || v.info.BytesMissed != 0 {
				t.Errorf("%s: the attach returned %v, %d missed", tt.name, v.size, v.info.BytesMissed)
			}
			if got := linesIn(string(v.seen), tt.width); got != tt.lines {
				t.Errorf("%s: the viewer shows %d lines, want %d", tt.name, got, tt.lines)
			}
		}
	})
}

// A few bytes of output may change every cell of a large screen. Loop answers requests between pieces of such output,
// so that no request waits until the screen has all of it. A resize takes effect at the offset at which it was made.
func TestDearOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		large, later := protocol.Size{Cols: protocol.MaxCols, Rows: protocol.MaxRows}, protocol.Size{Cols: 90, Rows: 30}
		resize := func(size protocol.Size) {
			t.Helper()
			testkit.Must(t, s.Resize(size))
		}
		resize(large)
		dear := []byte(strings.Repeat(dearUnit, 8*feedCost/dearCost) + "\x1b[2J\rhere")
		by(s).print(dear)
		end := uint64(len(dear))
		for read := uint64(0); read < end; {
			_, read, _ = s.ring.Bounds()
		}
		at, between := uint64(0), 0
		if err := s.askScreen(func(sc *screen.Screen) error { at = sc.Offset(); return nil }); err != nil || at == 0 || at == end {
			t.Errorf("a request finds the screen at offset %d (%v), want one within the %d bytes", at, err, end)
		}
		resize(later)
		for ; at < end; between++ {
			s.do(func() {
				if at = s.display.screen.Offset(); at < end && s.display.screen.Size() != large {
					t.Errorf("at offset %d the screen is %v, want %v until %d", at, s.display.screen.Size(), large, end)
				}
			})
		}
		if between < 10 {
			t.Errorf("%d requests were answered before the screen had all output, want at least 10", between)
		}
		c, err := s.Show(protocol.ScreenSpec{})
		if err != nil || c.Offset != end || c.Cols != later.Cols || !strings.Contains(strings.Join(c.Lines, "\n"), "here") {
			t.Errorf("after all output: offset %d, %d columns, %q, %v", c.Offset, c.Cols, c.Lines, err)
		}
	})
}
