//go:build linux

package session

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/screen"
)

// Lines that were cleared are gone from the history, for viewers, and for the next supervisor. Later lines get
// numbers that were not used before.
func TestClear(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(map[bool]string{false: "history", true: "screen"}[all], func(t *testing.T) {
			l := newLife(t, Config{})
			s := create(t, l.Table, bash(`seq 1 3000; printf READY; while read -r line; do echo "got $line"; done`))
			v := look(t, s, fromStart(s))
			v.until(t, "READY")
			before, err := s.History(protocol.HistorySpec{SessionID: s.ID()})
			if err != nil || before.Screen < 2900 {
				t.Fatalf("before the clear the history is %+v, %v", before.LineNumbers, err)
			}
			lost := protocol.Resume{Instance: s.Instance(), Offset: v.pos}
			testkit.Must(t, s.Clear(all))
			checkCleared(t, s, all, before)

			// The viewer must receive a resync with a snapshot that has none of the cleared lines.
			item, err := v.a.Next(t.Context(), v.buf)
			if err != nil || item.Kind != ItemResync || item.ScreenOnly || item.Missed != 0 || item.Offset != v.pos {
				t.Fatalf("the viewer received %+v, %v", item, err)
			}
			if got := snapshotOf(t, v.a, item.Bytes, s.size); strings.Contains(got, "2900") || !strings.Contains(got, "READY") || all == strings.Contains(got, "3000") {
				t.Errorf("the viewer is shown\n%s", got)
			}
			// A viewer that resumes must also receive a snapshot, even if it asked to keep its lines.
			for _, spec := range []protocol.AttachSpec{{Resume: &lost}, {Resume: &lost, Snapshot: true, ScreenOnly: true}} {
				a, info, err := s.Attach(t.Context(), spec)
				testkit.Must(t, err)
				if info.Replay != protocol.ReplaySnapshot || info.BytesMissed != 0 {
					t.Errorf("a viewer that resumes receives %+v", info)
				}
				a.Close()
			}

			l = l.restart(Heritage{})
			s = l.get(s.ID())
			checkCleared(t, s, all, before)
			a, info, err := s.Attach(t.Context(), protocol.AttachSpec{Resume: &lost})
			if err != nil || info.Replay != protocol.ReplaySnapshot {
				t.Errorf("a viewer that resumes at the next supervisor receives %+v, %v", info, err)
			}
			a.Close()
			w := look(t, s, protocol.AttachSpec{})
			testkit.Must(t, w.a.Type(0, []byte("more\n")))
			w.until(t, "got more")
			now, err := s.History(protocol.HistorySpec{SessionID: s.ID(), Before: new(^uint64(0))})
			if err != nil || now.First < before.Screen || now.Next <= before.Next {
				t.Errorf("lines were %+v and are %+v, %v", before.LineNumbers, now.LineNumbers, err)
			}
			if err := w.a.Resize(protocol.Size{Cols: 90, Rows: 40}); err != nil { // a taller window must not pull cleared lines back into the screen
				t.Fatal(err)
			}
			if got := text(t, s); strings.Contains(got, "2900") {
				t.Errorf("after the resize the screen shows\n%s", got)
			}
		})
	}
}

func checkCleared(t *testing.T, s *Session, all bool, before protocol.HistoryContent) {
	t.Helper()
	checkPastCleared(t, s, "2900")
	h, err := s.History(protocol.HistorySpec{SessionID: s.ID()})
	if err != nil || len(h.Lines) != 0 || h.More || !all && h.Next != before.Next || h.First != h.Screen {
		t.Errorf("the history is %+v, %v", h, err)
	}
	if all && h.First != before.Next-1 || !all && h.First != before.Screen {
		t.Errorf("the first line is %d; before the clear the screen began at %d and ended before %d", h.First, before.Screen, before.Next)
	}
	found, err := s.Search(context.Background(), protocol.SearchSpec{SessionID: s.ID(), Pattern: "^2900$"})
	if err != nil || len(found.Matches) != 0 {
		t.Errorf("a search finds %+v, %v", found.Matches, err)
	}
	if got := text(t, s); strings.Contains(got, "2900") || !strings.Contains(got, "READY") || all == strings.Contains(got, "3000") {
		t.Errorf("the screen shows\n%s", got)
	}
}

// checkPastCleared fails if a request returns text from the output before the last clear, or shows an
// earlier screen.
func checkPastCleared(t *testing.T, s *Session, text string) {
	t.Helper()
	data, from, end, err := s.Read(0, 1<<20)
	if err != nil || from == 0 || strings.Contains(string(data), text) {
		t.Errorf("%d bytes of output begin at %d, %v", len(data), from, err)
	}
	o, err := s.ReadPast(t.Context(), 0, 1<<20)
	if err != nil || o.Offset < from || o.End != end || strings.Contains(string(o.Data), text) {
		t.Errorf("%d bytes of the past begin at %d, %v", len(o.Data), o.Offset, err)
	}
	if p, err := s.Past(t.Context(), protocol.PastSpec{}); err != nil || p.Start < from || p.End != end {
		t.Errorf("the past begins at %d, the output at %d, %v", p.Start, from, err)
	}
	found, err := s.SearchPast(t.Context(), protocol.PastSearchSpec{SessionID: s.id, Pattern: text})
	if err != nil || len(found.Matches) > 0 || found.Start < from {
		t.Errorf("a search of the past from %d on finds %+v, %v", found.Start, found.Matches, err)
	}
	for _, at := range []uint64{0, from - 1} {
		_, err := s.ShowAt(t.Context(), protocol.ScreenSpec{SessionID: s.id, At: &protocol.Moment{Offset: &at}})
		wantCode(t, "the screen before the clear", err, protocol.CodeNotStored)
	}
	c, err := s.ShowAt(t.Context(), protocol.ScreenSpec{SessionID: s.id, At: &protocol.Moment{Offset: &end}, Scrollback: protocol.AllScrollback})
	if err != nil || strings.Contains(strings.Join(c.Lines, "\n"), text) {
		t.Errorf("the last screen is %q, %v", c.Lines, err)
	}
}

// snapshotOf returns the text of a terminal that has received the snapshot.
func snapshotOf(t *testing.T, a *Attachment, left int, size protocol.Size) string {
	t.Helper()
	terminal, buf := screen.New(size, 5000), make([]byte, 64<<10)
	for left > 0 {
		item, err := a.Next(t.Context(), buf)
		if err != nil || item.Kind != ItemSnapshot {
			t.Fatalf("instead of a snapshot the viewer received %+v, %v", item, err)
		}
		terminal.Write(item.Data)
		left -= len(item.Data)
	}
	c, _ := terminal.View(protocol.AllScrollback).Content(protocol.ScreenSpec{Lines: 5000, Scrollback: protocol.AllScrollback})
	return strings.Join(c.Lines, "\n")
}

// Clear leaves the alternate screen of a program as it is, and refuses a session that has ended.
func TestClearAlternate(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`seq 1 300; printf '\e[?1049h\e[HFULL'; read -r; printf '\e[?1049l'; echo END`))
	v := look(t, s, fromStart(s))
	v.until(t, "FULL")
	testkit.Must(t, s.Clear(true))
	if got := text(t, s); !strings.Contains(got, "FULL") {
		t.Errorf("the screen shows\n%s", got)
	}
	testkit.Must(t, v.a.Type(0, []byte("\n")))
	ended(t, s)
	if got := text(t, s); strings.Contains(got, "\n250\n") || !strings.Contains(got, "\n300\nEND") {
		t.Errorf("after the clear the screen has\n%s", got)
	}
	wantCode(t, "clear", s.Clear(false), protocol.CodeSessionExited)
}

// A viewer may have received more output than the screen when lines are cleared. If it attaches again before it has received
// the snapshot without them, it receives one nevertheless.
func TestClearBehindViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, fromStart(s))
		show(by(s), "old\r\n")
		if err := s.askScreen(func(*screen.Screen) error { // loop writes nothing to the screen until it is cleared
			show(by(s), "new\r\n")
			v.saw(t)
			v.a.Pause()
			s.clear(s.display.screen, true)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, at := range []uint64{v.pos, v.pos + 1} {
			show(by(s), "x")
			_, info, err := s.Attach(t.Context(), protocol.AttachSpec{Writer: v.a.Writer(), Resume: &protocol.Resume{Instance: s.Instance(), Offset: at}})
			if want := at == v.pos; err != nil || (info.Replay == protocol.ReplaySnapshot) != want {
				t.Errorf("a viewer that has the output up to %d receives %+v, %v", at, info, err)
			}
		}
	})
}
