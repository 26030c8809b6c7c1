package screen

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/vt/vttest"
)

// seed is the seed of the streams of this run. HOLDFAST_SEED repeats an earlier run.
var seed = testkit.Seed()

// streams returns the number of streams: HOLDFAST_STREAMS, or else n.
func streams(t testing.TB, n int) int {
	t.Helper()
	t.Logf("HOLDFAST_SEED=%d", seed)
	if s, err := strconv.Atoi(os.Getenv("HOLDFAST_STREAMS")); err == nil {
		return s
	}
	if testing.Short() {
		n /= 10
	}
	return n
}

// terminal executes the steps of a stream on a screen.
type terminal struct{ *Screen }

func (t terminal) Write(p []byte)        { t.Screen.Write(p) }
func (t terminal) Resize(cols, rows int) { t.Screen.Resize(protocol.Size{Cols: cols, Rows: rows}) }

// memory is a file in memory.
type memory []byte

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if n := int(off) + len(p) - len(*m); n > 0 {
		*m = append(*m, make([]byte, n)...)
	}
	return copy((*m)[off:], p), nil
}

// nowhere is a file that keeps no content.
type nowhere struct{}

func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// recordOf returns a record of a screen with at most history lines above it.
func recordOf(s *Screen, history int) []byte {
	var m memory
	if err := s.Save(&m, history); err != nil {
		panic(err)
	}
	return m
}

// appendSection appends a section to a record.
func appendSection(record []byte, kind byte, p []byte) []byte {
	record = binary.LittleEndian.AppendUint64(append(record, kind), uint64(len(p)))
	return append(record, p...)
}

// restored returns the screen of a record, restored in steps of n bytes.
func restored(t testing.TB, record []byte, lines, n int) *Screen {
	t.Helper()
	r, err := Restore(record, lines)
	testkit.Must(t, err)
	for !r.Step(n) {
		if r.Screen() != nil {
			t.Fatal("a screen is returned before the restore has ended")
		}
	}
	return r.Screen()
}

// diff returns the first difference between two screens that a viewer or later output could show. It fetches no
// events or replies.
func diff(got, want *Screen) string {
	if d := vttest.Diff(got.term.State(), want.term.State()); d != "" {
		return d
	}
	for _, size := range []protocol.Size{{}, {Cols: want.size.Cols + 7, Rows: want.size.Rows + 3}, {Cols: want.size.Cols/2 + 1, Rows: want.size.Rows/2 + 1}} {
		for _, history := range []int{0, 1, 7, 100_000} {
			g, _ := got.Snapshot(history, size, nil)
			w, _ := want.Snapshot(history, size, nil)
			if !bytes.Equal(g, w) {
				return fmt.Sprintf("snapshot of %d lines for %s:\n%q, want\n%q", history, size, g, w)
			}
		}
	}
	next := want.lineNumbers().Next
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"size", got.size, want.size},
		{"offset", got.offset, want.offset},
		{"line numbers", got.lineNumbers(), want.lineNumbers()},
		{"lines", got.History(protocol.HistorySpec{Before: &next, Lines: 100}).Content(), want.History(protocol.HistorySpec{Before: &next, Lines: 100}).Content()},
		{"text", got.Text(1000), want.Text(1000)},
		{"events", fmt.Sprintf("%+v", got.events), fmt.Sprintf("%+v", want.events)},
		{"modes", got.term.Modes(), want.term.Modes()},
		{"focus", got.term.FocusAsked(), want.term.FocusAsked()},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			return fmt.Sprintf("%s: got %v, want %v", c.what, c.got, c.want)
		}
	}
	if g, w := recordOf(got, -1), recordOf(want, -1); !bytes.Equal(g, w) {
		return fmt.Sprintf("records:\n%q, want\n%q", g, w)
	}
	return ""
}

// A run is a stream that is saved and restored in its middle.
type run struct {
	size          protocol.Size
	lines, step   int
	pack          bool
	before, after []vttest.Step
}

func makeRun(i int) run {
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	c := run{size: protocol.Size{Cols: 2 + r.IntN(60), Rows: 1 + r.IntN(20)}, lines: []int{0, 1, 5, 20, 1000}[r.IntN(5)]}
	c.step, c.pack = 1+r.IntN(1+r.IntN(5000)), r.IntN(2) == 0
	steps := vttest.Stream(r, vttest.StreamOptions{
		Cols: c.size.Cols, Rows: c.size.Rows, Bytes: 100 + r.IntN(4000), Profile: vttest.Profiles[i%len(vttest.Profiles)],
	})
	if r.IntN(3) == 0 { // drops a part of the history
		steps = append([]vttest.Step{{Write: []byte("\x1b[?2027h")}}, steps...)
	}
	k := r.IntN(len(steps))
	c.before, c.after = steps[:k:k], steps[k:]
	if s := steps[k]; len(s.Write) > 1 {
		at := r.IntN(len(s.Write))
		c.before = append(c.before, vttest.Step{Write: s.Write[:at]})
		c.after = append([]vttest.Step{{Write: s.Write[at:]}}, c.after[1:]...)
	}
	return c
}

// check returns the first difference of the restored screen, right after the restore or after later output.
func (c run) check(t testing.TB) string {
	want := New(c.size, c.lines)
	want.SetAppearance(protocol.Appearance{Background: "#fafafa", CellWidth: 7, CellHeight: 13, Version: "t<1>"})
	vttest.Do(terminal{want}, c.before)
	if c.pack {
		want.Pack()
	}
	got := restored(t, recordOf(want, -1), c.lines, c.step)
	if d := diff(got, want); d != "" {
		return "restored: " + d
	}
	if d := diff(restored(t, recordOf(got, -1), c.lines, 1000), want); d != "" {
		return "restored again: " + d
	}
	for i, s := range c.after {
		vttest.Do(terminal{got}, []vttest.Step{s})
		vttest.Do(terminal{want}, []vttest.Step{s})
		if i%8 == 0 || i == len(c.after)-1 {
			if d := diff(got, want); d != "" {
				return fmt.Sprintf("after %d more steps: %s", i+1, d)
			}
		}
	}
	if g, w := fmt.Sprintf("%q", got.Replies()), fmt.Sprintf("%q", want.Replies()); g != w {
		return fmt.Sprintf("replies: %s, want %s", g, w)
	}
	if g, w := got.Events(), want.Events(); !reflect.DeepEqual(g, w) {
		return fmt.Sprintf("events: %v, want %v", g, w)
	}
	return ""
}

// Lines with pictures are restored as the session shows them.
func TestRestorePictures(t *testing.T) {
	for _, tt := range []struct {
		name       string
		cols, rows int
		before     string
	}{
		{"dropped by DECSTR above the screen", 18, 2, "\x1bPqq\x1b\\\x1b[2;17Habc\x1b[!p"},
		{"dropped on a hyperlink", 18, 2, "\x1b]8;;l\x1b\\\x1bPqq\x1b\\\x1b[2;17Habc\x1b[!p"},
		{"on half a wide character", 18, 2, "🏨\x1b[H\x1bPqq\x1b\\"},
		{"on half a wide character above the screen", 18, 2, "🏨\x1b[H\x1bPqq\x1b\\\n\n\n"},
		{"of an inverse pen", 57, 19, "\x1b[7;4m\x1bPqpayload漢\x1b\\"},
		{"at the right edge of a screen of one row", 2, 1, "[\x1bPqr\x1b\\\n"},
	} {
		for _, pack := range []bool{false, true} {
			c := run{size: protocol.Size{Cols: tt.cols, Rows: tt.rows}, lines: 20, step: 1000, pack: pack, before: []vttest.Step{{Write: []byte(tt.before)}}, after: []vttest.Step{{Write: []byte("L")}}}
			if d := c.check(t); d != "" { // L may cut the picture, so that its pixels are compared
				t.Errorf("a picture %s, packed %t: %s", tt.name, pack, d)
			}
		}
	}
}

// A mark in the empty columns at the end of a line stays there when the line moves into the history.
func TestRestoreMarks(t *testing.T) {
	for col := 1; col <= 5; col++ {
		c := run{
			size: protocol.Size{Cols: 13, Rows: 5}, lines: 20, step: 1000, pack: true,
			before: []vttest.Step{{Write: fmt.Appendf(nil, "0123456789a GY\x1b[2;%dH\x1b]133;A\x1b\\\x1b[2;6H12345678p", col)}, {Cols: 5, Rows: 3}},
			after:  []vttest.Step{{Write: []byte("1234567890123")}},
		}
		if d := c.check(t); d != "" {
			t.Errorf("a mark in column %d: %s", col, d)
		}
	}
}

// In origin mode, changing between the screens can leave the cursor outside of the margins. Printing the last character again
// in the nearest row within them would change that row.
func TestRestoreOutsideMargins(t *testing.T) {
	for _, before := range []string{"\x1b[2r\x1b[?47h\x1b[?6h\x1b[?47l", "\x1b[1;2r\x1b[?47h\x1b[?6h\x1b[4;3H\x1b[?47l", "\x1b[1;2r\x1b[?47h\x1b[?6h\x1b[4;26H\x1b[?47l"} {
		for _, text := range []string{"", "k", "ke"} {
			for _, after := range []string{"L", "\u0301", "\x1b[3b", "\x1b[A", "\x1b[3Hxyz"} {
				c := run{
					size: protocol.Size{Cols: 26, Rows: 4}, lines: 5, step: 1000,
					before: []vttest.Step{{Write: []byte(before + text)}}, after: []vttest.Step{{Write: []byte(after)}},
				}
				if d := c.check(t); d != "" {
					t.Errorf("%q, then %q: %s", before+text, after, d)
				}
			}
		}
	}
}

// A character that grows in a pen that looks like its own is not odd: the pen has no extended attributes, but an underline.
func TestRestoreGrownCharacter(t *testing.T) {
	c := run{
		size: protocol.Size{Cols: 34, Rows: 20}, step: 1000, pack: true,
		before: []vttest.Step{{Write: []byte("\x1b[?2027h\x1b[4m\x1b[s\x1b[m\x1b[u\x1b]8;;\x1b\\\U0001f1e9")}},
		after:  []vttest.Step{{Write: []byte("\U0001f3fb")}},
	}
	if d := c.check(t); d != "" {
		t.Error(d)
	}
}

// An inserted column can separate the second half of a wide character from the first one. If it comes to stand before the last
// column, and a wide character wraps there, that character begins the next row again.
func TestRestoreSeparatedHalf(t *testing.T) {
	c := run{
		size: protocol.Size{Cols: 6, Rows: 3}, lines: 5, step: 1000,
		before: []vttest.Step{{Write: []byte("ab漢\x1b[4G\x1b['}\x1b[1\"q\x1b[6G漁")}},
		after:  []vttest.Step{{Write: []byte("x")}},
	}
	if d := c.check(t); d != "" {
		t.Error(d)
	}
}

// A screen that was saved and restored anywhere in a stream is the same, and stays the same with later output.
func TestRestoreStreams(t *testing.T) {
	failures := 0
	for i := range streams(t, 60) {
		c := makeRun(i)
		d := c.check(t)
		if d == "" {
			continue
		}
		c.before = vttest.Minimise(c.before, func(s []vttest.Step) bool { m := c; m.before = s; return m.check(t) != "" })
		c.after = vttest.Minimise(c.after, func(s []vttest.Step) bool { m := c; m.after = s; return m.check(t) != "" })
		c.before = vttest.Minimise(c.before, func(s []vttest.Step) bool { m := c; m.before = s; return m.check(t) != "" })
		t.Errorf("stream %d, %s with %d lines, packed %t, from\n%sand then\n%s%s", i, c.size, c.lines, c.pack, vttest.Format(c.before), vttest.Format(c.after), c.check(t))
		if failures++; failures == 3 {
			return
		}
	}
}
