//go:build linux || darwin

package session

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/screen"
)

// A viewer's own view is updated at once, and then at intervals, however much is printed. It ends at the end of the
// output.
func TestOwnView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		f := by(s)
		m := &model{sizes: []sizeAt{{0, info(t, s).Size}}}
		print := func(text string) {
			m.printed = append(m.printed, text...)
			show(f, text)
		}
		print("hello\r\n")
		v, err := attach(s, protocol.AttachSpec{Mode: protocol.ModeReadOnly, View: protocol.ViewOwn, Cols: 30, Rows: 10}, m)
		testkit.Must(t, err)
		defer v.a.Close()
		drain := func() {
			t.Helper()
			if _, err := v.drain(); err != nil {
				t.Fatal(err)
			}
		}
		drain()
		views := 0
		for i := range 100 {
			print(strings.Repeat("x", i) + "\r\n")
			time.Sleep(time.Millisecond)
			before := v.pos
			if drain(); v.pos != before {
				views++
			}
		}
		if most := int(100*time.Millisecond/viewEvery) + 1; views < 2 || views > most {
			t.Errorf("%d views in 100 ms, want 2 to %d", views, most)
		}
		time.Sleep(viewEvery)
		synctest.Wait()
		if drain(); v.pos != uint64(len(m.printed)) {
			t.Errorf("the view is at offset %d of %d", v.pos, len(m.printed))
		}
		print("\x1b[H") // the first change shows in the view, the second does not
		time.Sleep(viewEvery)
		drain()
		print("\x1b[H")
		time.Sleep(viewEvery)
		if drain(); v.pos != uint64(len(m.printed)) {
			t.Errorf("output that does not change the view does not move its offset: %d of %d", v.pos, len(m.printed))
		}
	})
}

// After the terminal core has panicked, a viewer with its own view continues with the output that the ring has.
func TestOwnViewOfLostScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		show(by(s), "before\r\n")
		a, _, err := s.Attach(t.Context(), protocol.AttachSpec{Mode: protocol.ModeReadOnly, View: protocol.ViewOwn, Cols: 40, Rows: 10})
		testkit.Must(t, err)
		defer a.Close()
		s.do(func() { s.display.useRestored(func(*screen.Screen) { panic("a mistake") }) })
		show(by(s), "after\r\n")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var got []byte
		for buf := make([]byte, 1<<10); !strings.HasSuffix(string(got), "before\r\nafter\r\n"); {
			item, err := a.Next(ctx, buf)
			if err != nil {
				t.Fatalf("%v, after %q", err, got)
			}
			switch item.Kind {
			case ItemResync: // the viewer clears its terminal
				got = nil
			case ItemSnapshot, ItemOutput, ItemView:
				got = append(got, item.Data...)
			}
		}
	})
}

// A viewer with its own view receives the output itself while its window has the session's size, and a snapshot in
// between. While it does not receive the output, the session answers queries.
func TestOwnViewAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		f := by(s)
		v := look(t, s, protocol.AttachSpec{View: protocol.ViewOwn, Answers: true, Cols: 80, Rows: 24})
		kinds := func() (got []ItemKind) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for {
				item, err := v.a.Next(ctx, v.buf)
				if err != nil {
					return got
				}
				if k := len(got); k == 0 || got[k-1] != item.Kind {
					got = append(got, item.Kind)
				}
				v.pos = max(v.pos, item.Offset)
			}
		}
		want := func(when string, want ...ItemKind) {
			t.Helper()
			time.Sleep(viewEvery)
			synctest.Wait()
			if got := kinds(); !slices.Equal(got, want) {
				t.Errorf("%s: the viewer received %v, want %v", when, got, want)
			}
		}
		show(f, askCursor)
		want("the same size", ItemOutput)
		other := look(t, s, protocol.AttachSpec{Cols: 100, Rows: 30, Writer: "other"})
		typeBy(t, other, f, "x")
		show(f, "hello"+askCursor)
		want("another viewer sends input", ItemResync, ItemSnapshot)
		if got := typedBy(f); !strings.HasSuffix(got, "R") {
			t.Errorf("the session answered with %q", got)
		}
		show(f, "more")
		want("more is printed", ItemView)
		typeBy(t, v, f, "x")
		show(f, "\x1b[H"+askCursor)
		if got := typedBy(f); got != cursorIs {
			t.Errorf("before the viewer has its snapshot the session answered with %q", got)
		}
		want("the viewer sends input", ItemAccepted, ItemResync, ItemSnapshot)
		show(f, askCursor)
		want("the viewer is asked again", ItemOutput)
		if got := typedBy(f); got != "" {
			t.Errorf("the session answered with %q", got)
		}
		if at, snapshot := v.resume(); at == nil || snapshot {
			t.Error("a viewer that receives output cannot resume at its offset")
		}
	})
}

// A paused viewer learns how much of its input was accepted, and then receives no item, not even the end, until it
// continues or resumes by another attachment.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		f := by(s)
		v := look(t, s, protocol.AttachSpec{Writer: "w"})
		next := func() (Item, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return v.a.Next(ctx, v.buf)
		}
		typeBy(t, v, f, "typed")
		show(f, "before")
		v.a.Pause()
		if item, err := next(); err != nil || item.Kind != ItemPaused || item.Offset != 5 {
			t.Errorf("paused: %+v, %v", item, err)
		}
		show(f, "after")
		f.exit(pty.Status{})
		<-s.Exited()
		if item, err := next(); err != context.DeadlineExceeded || item.Kind == ItemOutput {
			t.Errorf("a paused viewer received %+v, %v", item, err)
		}
		v.a.Unpause()
		if over, err := v.drain(); !over || err != nil || string(v.seen) != "beforeafter" || !v.exited {
			t.Errorf("in the end the viewer has received %q, %v", v.seen, err)
		}
	})
}

// Bells, notifications and texts for the clipboard reach every viewer once, even if it has its own view. Queries do
// not reach a viewer with its own view.
func TestOwnViewHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		m := &model{sizes: []sizeAt{{0, info(t, s).Size}}}
		print := func(text string) {
			m.printed = append(m.printed, text...)
			show(by(s), text)
		}
		own, err := attach(s, protocol.AttachSpec{Mode: protocol.ModeReadOnly, View: protocol.ViewOwn, Cols: 30, Rows: 10}, m)
		testkit.Must(t, err)
		defer own.a.Close()
		raw := look(t, s, protocol.AttachSpec{Mode: protocol.ModeReadOnly})
		said := []string{"\x07", "\x1b]52;c;aGk=", "\x1b]9;done", "\x1b]9;4;1;50", "\x1b]777;notify;a;b", "\x1b]99;i=1:d=1;hi"}
		text := strings.Join(said, "\x1b\\text")
		print("\x1b[31m")
		for i := 0; i < len(text); i += 7 {
			print(text[i:min(len(text), i+7)])
			if i%3 == 0 {
				time.Sleep(viewEvery)
			}
			for _, v := range []*viewer{own, raw} {
				if _, err := v.drain(); err != nil {
					t.Fatal(err)
				}
			}
		}
		print("\x1b\\\x1b]52;c;?\x1b\\")
		time.Sleep(viewEvery)
		synctest.Wait()
		for _, v := range []*viewer{own, raw} {
			if _, err := v.drain(); err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(string(v.seen)+string(v.views), "text", "")
			for _, what := range said {
				// Output may end within a sequence. A view then begins the sequence again, so only whole ones are counted.
				if n := strings.Count(got, what+"\x1b\\"); n != 1 && what != "\x07" || what == "\x07" && strings.Count(got, what) != 1 {
					t.Errorf("%q is in %q %d times, want once", what, got, n)
				}
			}
			if asked := strings.Contains(got, "52;c;?"); asked != (v == raw) {
				t.Errorf("asked for the clipboard: %v, in %q", asked, got)
			}
		}
	})
}
