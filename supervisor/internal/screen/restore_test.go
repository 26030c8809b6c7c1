package screen

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// A record also has the state that no bytes of output can restore.
func TestRestore(t *testing.T) {
	long := strings.Repeat("0123456789", 30)
	for _, tt := range []struct {
		name, before, after string
		resize              protocol.Size // a resize at the end, if it is not zero
	}{
		{name: "nothing", after: "a"},
		{name: "a cut sequence", before: "\x1b[1;38;2;1;2;3mred\x1b[4", after: "5mgreen"},
		{name: "a cut parameter 0", before: "\x1b[0", after: "?25l"},
		{name: "a cut character", before: "caf\xc3", after: "\xa9"},
		{name: "a cut title", before: "\x1b]2;" + long, after: "more\a"},
		{name: "a string that is too long", before: "\x1b]2;" + strings.Repeat("x", 70_000), after: "y\a."},
		{name: "a line whose beginning is forgotten", before: strings.Repeat(long, 10) + "\r\nend" + numbers(90), after: numbers(20)},
		{name: "half a wide character", before: "\x1b[4;3H世界世\x1b[4;4H\x1b[@x", after: "\x1b[4;4Hy"},
		{name: "half a wide character above", before: "世界世\x1b[1;2H\x1b[@x" + numbers(50), after: numbers(5)},
		{name: "clusters without their mode", before: "\x1b[?2027h👨‍👩‍👧 and 🇩🇪\x1b[?2027l" + numbers(9), after: "."},
		{name: "a wrap pending behind an erased row", before: "x\x1b[1;20Hy\x1b[1K", after: "z"},
		{name: "a cursor outside the region", before: numbers(4) + "\x1b[2;3r\x1b[?6h\x1b[u", after: "x\x1b[Ay\nz"},
		{name: "rows that the alternate screen does not show", before: "\x1b[?1049h" + long, resize: protocol.Size{Cols: 10, Rows: 4}, after: "\x1b[Hx"},
		{name: "tab stops that are not shown", before: "\x1b[1;19H\x1bH", resize: protocol.Size{Cols: 10, Rows: 4}, after: "\r\t\tx"},
		{name: "the saved cursor of the hidden screen", before: "\x1b[?1047h\x1b[3;7H\x1b[31m\x1b7\x1b[?1047l\x1b[m", after: "\x1b[?1047h\x1b8x"},
		{name: "a saved cursor above the screen", before: "\x1b[2;5H\x1b7" + numbers(30), after: "\x1b8x"},
		{name: "REP under IRM", before: "\x1b[4habc\x1b[D\x1b[Dx", after: "\x1b[3b"},
		{name: "flags of the hidden keyboard", before: "\x1b[?1049h\x1b[>5u\x1b[?1049l", after: "\x1b[?1049h\x1b[?u"},
		{name: "a set that was neither saved nor shifted in", before: "\x1b(0\x1b7\x1b(Bq\x1b8\x1b[?1049hq", after: "q"},
		{name: "an underline that comes back", before: "\x1b[4m\x1b7\x1b[24m\x1b[58;5;3m\x1b8", after: "x\x1b[4:3my"},
		{name: "marks", before: "\x1b]133;A\a$ \x1b]133;B\als\r\n\x1b]133;C\a" + numbers(9), after: "\x1b]133;D;0\a"},
		{name: "a directory that is no text", before: "\x1b]1337;CurrentDir=/a/\x01\x1b\\\x1b]7;file:///a%01b\a", after: "\x1b]7;file:///a%01b\a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := printed(small, tt.before)
			if tt.resize != (protocol.Size{}) {
				want.Resize(tt.resize)
			}
			got := restored(t, recordOf(want, -1), 100, 7)
			for range 2 {
				if d := diff(got, want); d != "" {
					t.Fatal(d)
				}
				got.Write([]byte(tt.after))
				want.Write([]byte(tt.after))
			}
			for _, s := range []*Screen{got, want} {
				s.Resize(protocol.Size{Cols: 50, Rows: 9})
			}
			if d := diff(got, want); d != "" {
				t.Error(d)
			}
			if g, w := got.Replies(), want.Replies(); !bytes.Equal(g, w) {
				t.Errorf("the restored screen replies %q, want %q", g, w)
			}
		})
	}
}

// Events and replies that were not fetched before the save are returned once after the restore. Those that were
// fetched are not returned again.
func TestRestoreEvents(t *testing.T) {
	const events = "\x07\x1b]2;title\x07\x1b]7;file:///tmp\x07\x1b]9;hello\x07\x1b[6n\x1b[?1004h"
	want := printed(small, events)
	taken := restored(t, recordOf(want, -1), 100, 10)
	if g, w := taken.Events(), want.Events(); len(w) != 4 || !reflect.DeepEqual(g, w) {
		t.Errorf("got %v, want %v", g, w)
	}
	if g, w := taken.Replies(), want.Replies(); len(w) == 0 || !bytes.Equal(g, w) {
		t.Errorf("the restored screen replies %q, want %q", g, w)
	}
	again := restored(t, recordOf(taken, -1), 100, 10)
	on, asked := again.Focus()
	if again.Events() != nil || again.Replies() != nil || again.Title() != "title" || again.Cwd() != "/tmp" || !on || asked != 1 {
		t.Errorf("events or replies come again, or the title is %q, the directory %q, focus %t, %d", again.Title(), again.Cwd(), on, asked)
	}
	again.Write([]byte("\x1b]2;title\x07\x1b]7;file:///tmp\x07"))
	if e := again.Events(); e != nil {
		t.Errorf("an unchanged title causes events: %v", e)
	}
}

// Long histories keep all lines and numbers, compressed or not.
func TestRestoreHistory(t *testing.T) {
	for _, pack := range []bool{false, true} {
		want := listed(10_000)
		if pack {
			want.Pack()
		}
		record := recordOf(want, -1)
		got := restored(t, record, 10_000, 4096)
		if d := diff(got, want); d != "" {
			t.Fatalf("packed %t: %.200s", pack, d)
		}
		for _, tt := range []struct{ save, restore int }{{-1, 100}, {100, 10_000}, {0, 10_000}, {-1, 0}, {20_000, 20_000}} {
			got := restored(t, recordOf(want, tt.save), tt.restore, 1<<20)
			n, w := got.lineNumbers(), want.lineNumbers()
			if n.Next != w.Next || n.Screen != w.Screen || n.First < w.First || got.term.HistoryLines() != int(min(uint(tt.save), uint(tt.restore), 10_000)) {
				t.Errorf("%v: lines are numbered %+v, want %+v; %d above", tt, n, w, got.term.HistoryLines())
			}
			spec := protocol.HistorySpec{Before: &w.Next, Lines: 60}
			g, h := got.History(spec).Content(), want.History(spec).Content()
			for i, l := range g.Lines {
				if !reflect.DeepEqual(l.Line, h.Lines[i].Line) || fmt.Sprint(linesAsText(g)[i]) != linesAsText(h)[i] {
					t.Errorf("%v: line %v, want %v", tt, l, h.Lines[i])
				}
			}
		}
	}
}

// A history that fits into its budget only if it is compressed is compressed while it is restored.
func TestRestorePacked(t *testing.T) {
	s := New(protocol.Size{Cols: protocol.MaxCols, Rows: 10}, 17_000)
	line := bytes.Repeat([]byte("0123456789"), protocol.MaxCols/10)
	for i := range 17_010 {
		s.Write(fmt.Appendf(line[:protocol.MaxCols-10], "%d\r\n", i))
		if i%1000 == 0 {
			s.Pack()
		}
	}
	if n := s.term.HistoryLines(); n != 17_000 {
		t.Fatalf("the history has %d lines", n)
	}
	got := restored(t, recordOf(s, -1), 17_000, 64<<10)
	if n, w := got.lineNumbers(), s.lineNumbers(); n != w {
		t.Errorf("lines are numbered %+v, want %+v", n, w)
	}
}

// Save holds only a small part of the record at a time.
func TestSaveMemory(t *testing.T) {
	for _, pack := range []bool{false, true} {
		s := listed(10_000)
		if pack {
			s.Pack()
		}
		n := len(recordOf(s, -1))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		testkit.Must(t, s.Save(nowhere{}, -1))
		runtime.ReadMemStats(&after)
		if got := int(after.TotalAlloc - before.TotalAlloc); got > 2<<20 {
			t.Errorf("packed %t: %d bytes for a record of %d", pack, got, n)
		}
	}
}

// Sections that a later version adds are skipped, and damaged records are an error.
func TestRestoreRecords(t *testing.T) {
	want := printed(small, numbers(9)+"\x1b]2;title\a")
	record := recordOf(want, -1)
	added := appendSection(bytes.Clone(record), 77, []byte("later"))
	if d := diff(restored(t, added, 100, 9), want); d != "" {
		t.Error(d)
	}
	at := bytes.LastIndex(record, []byte(`{"size"`))
	field := append(append(bytes.Clone(record[:at+1]), `"later":[{}],`...), record[at+1:]...)
	binary.LittleEndian.PutUint64(field[at-8:], uint64(len(field)-at))
	if d := diff(restored(t, field, 100, 9), want); d != "" {
		t.Error(d)
	}
	for name, bad := range map[string][]byte{
		"nothing": nil, "a version": {2}, "no sections": {1}, "half a head": {1, 1, 0}, "cut": record[:len(record)-1],
		"no rest": record[:at-9], "no size": bytes.Replace(record, []byte(`"cols":20`), []byte(`"cols":00`), 1),
		"a large size": bytes.Replace(record, []byte(`"cols":20`), []byte(`"cols":1e9`), 1),
		"length":       append([]byte{1, 1}, bytes.Repeat([]byte{0xff}, 8)...),
	} {
		if _, err := Restore(bad, 100); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A viewer that attaches before the first output of a continued screen sees the old lines.
func TestContinueSnapshot(t *testing.T) {
	size := protocol.Size{Cols: 40, Rows: 6}
	old := New(size, 100)
	old.Write([]byte("printed before\r\n"))
	for _, above := range []int{0, 100} {
		s, err := Continue(recordOf(old, above), size, 100, "the machine stopped")
		testkit.Must(t, err)
		data, offset := s.Snapshot(100, size, nil)
		if offset != 0 || !bytes.Contains(data, []byte("printed before")) || !bytes.Contains(data, []byte("the machine stopped")) {
			t.Errorf("the snapshot at offset %d is %q", offset, data)
		}
	}
	if data, _ := New(size, 100).Snapshot(100, size, nil); data != nil {
		t.Errorf("the snapshot of a new screen is %q", data)
	}
}
