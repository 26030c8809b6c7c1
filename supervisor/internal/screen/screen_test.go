package screen

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holdfast/protocol"
)

var small = protocol.Size{Cols: 20, Rows: 4}

func printed(size protocol.Size, text string) *Screen {
	s := New(size, 100)
	s.Write([]byte(text))
	return s
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d\r\n", i+1)
	}
	return b.String()
}

func show(t *testing.T, s *Screen, spec protocol.ScreenSpec) protocol.ScreenContent {
	t.Helper()
	for rows, tries := Rows(spec), 0; tries < 20; tries++ {
		c, next := s.View(rows).Content(spec)
		if next == 0 {
			return c
		}
		rows = next
	}
	t.Fatal("the loop does not end")
	panic("unreachable")
}

// A snapshot stands for an offset: a terminal with the snapshot and the output after the offset shows the right
// screen. That holds within a sequence, after any output, and for viewers of another size.
func TestSnapshot(t *testing.T) {
	for _, tt := range []struct{ name, before, after string }{
		{"nothing", "", "a"},
		{"text", "one\r\ntwo", "three"},
		{"history", numbers(50), "end"},
		{"colours and a cut sequence", "\x1b[1;38;2;1;2;3mred\x1b[4", "5mgreen"},
		{"a cut character", "caf\xc3", "\xa9"},
		{"the alternate screen", "shell\r\n\x1b[?1049h\x1b[2;3Hvim", "\x1b[?1049lback"},
		{"wrapped lines", strings.Repeat("0123456789", 5), "x"},
		{"wide characters", "世界世界世界世界世界世界", "界"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := printed(small, tt.before)
			data, offset := s.Snapshot(100, protocol.Size{}, nil)
			if offset != uint64(len(tt.before)) || offset != s.Offset() {
				t.Errorf("the snapshot stands for offset %d, but %d bytes were printed", offset, len(tt.before))
			}
			viewer := printed(small, string(data)+tt.after)
			s.Write([]byte(tt.after))
			spec := protocol.ScreenSpec{Format: protocol.ScreenCells, Scrollback: protocol.AllScrollback}
			got, want := show(t, viewer, spec), show(t, s, spec)
			if got.Offset = want.Offset; !reflect.DeepEqual(got, want) {
				t.Errorf("the viewer shows\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

// The snapshot for a viewer of another size shows the lines as the terminal would in that size, and the terminal does
// not change.
func TestSnapshotForAnotherSize(t *testing.T) {
	s := printed(small, strings.Repeat("0123456789", 5)+"\r\nend")
	before, _ := s.Snapshot(100, protocol.Size{}, nil)
	for _, size := range []protocol.Size{{Cols: 10, Rows: 4}, {Cols: 60, Rows: 2}, {Cols: 20, Rows: 10}, small} {
		data, _ := s.Snapshot(100, size, nil)
		viewer := printed(size, string(data))
		if got, want := viewer.Text(100), []string{strings.Repeat("0123456789", 5), "end"}; !slices.Equal(got, want) {
			t.Errorf("in the size %v the viewer shows %q, want %q", size, got, want)
		}
	}
	if after, _ := s.Snapshot(100, protocol.Size{}, nil); string(after) != string(before) {
		t.Error("the terminal has changed")
	}
}

// A snapshot has as many lines above the screen as were requested, and contains no queries and no bells.
func TestSnapshotHistory(t *testing.T) {
	s := printed(small, numbers(50)+"\x1b[6n\x07\x1b]11;?\x07\x05")
	if len(s.Replies()) == 0 {
		t.Fatal("the terminal has no reply")
	}
	for _, n := range []int{-1, 0, 5, 1000} {
		data, _ := s.Snapshot(n, protocol.Size{}, nil)
		viewer := printed(small, string(data))
		if got, want := len(viewer.Text(1000)), 3+min(max(n, 0), 47); got != want {
			t.Errorf("with %d lines above: got %d lines, want %d", n, got, want)
		}
		if r, e := viewer.Replies(), viewer.Events(); len(r) > 0 || len(e) > 0 {
			t.Errorf("the snapshot causes the replies %q and the events %v", r, e)
		}
	}
}

func TestText(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		n        int
		want     []string
	}{
		{"nothing", "", 5, []string{}},
		{"lines", "a\r\nb\r\n", 5, []string{"a", "b"}},
		{"blank lines within stay", "a\r\n\r\nb\r\n\r\n", 5, []string{"a", "", "b"}},
		{"colours", "\x1b[1;31mred\x1b[0m x", 5, []string{"red x"}},
		{"progress bar", "10%\r50%\r100%", 5, []string{"100%"}},
		{"cursor movement", "abc\x1b[2;3Hd", 5, []string{"abc", "  d"}},
		{"tab", "a\tb", 5, []string{"a       b"}},
		{"wide", "世界", 5, []string{"世界"}},
		{"combining", "e\u0301x", 5, []string{"e\u0301x"}},
		{"invalid UTF-8", "a\xff\xfeb", 5, []string{"ab"}},
		{"from above the screen", numbers(50), 6, []string{"45", "46", "47", "48", "49", "50"}},
		{"as many as there are", numbers(5), 100, []string{"1", "2", "3", "4", "5"}},
		{"wrapped rows are one line", "\r\n" + strings.Repeat("x", 95) + "\r\nend", 2, []string{strings.Repeat("x", 95), "end"}},
		{"a wide character that did not fit", strings.Repeat("x", 19) + "世", 5, []string{strings.Repeat("x", 19) + "世"}},
		{"no longer than an exit record's", strings.Repeat("é", 1000), 1, []string{strings.Repeat("é", protocol.MaxTailLine/2)}},
		{"the alternate screen", "shell\r\n\x1b[?1049h\x1b[Hvim", 5, []string{"vim"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := printed(small, tt.in).Text(tt.n); !slices.Equal(got, tt.want) {
				t.Errorf("Text(%d) = %q, want %q", tt.n, got, tt.want)
			}
		})
	}
}

func TestNonEmpty(t *testing.T) {
	s := printed(small, "a\r\nb\r\n"+strings.Repeat(" \r\n", 80)+"c\r\n")
	if got, want := s.NonEmpty(2), []string{"b", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := s.NonEmpty(10), []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestContent(t *testing.T) {
	s := printed(small, numbers(10)+"\r\nx")
	for _, tt := range []struct {
		name string
		spec protocol.ScreenSpec
		want []string
	}{
		{"the screen", protocol.ScreenSpec{}, []string{"9", "10", "", "x"}},
		{"the end of the screen", protocol.ScreenSpec{Lines: 2}, []string{"", "x"}},
		{"more than it has", protocol.ScreenSpec{Lines: 5}, []string{"8", "9", "10", "", "x"}},
		{"some above", protocol.ScreenSpec{Scrollback: 2}, []string{"7", "8", "9", "10", "", "x"}},
		{"the end of that", protocol.ScreenSpec{Scrollback: 2, Lines: 100}, []string{"7", "8", "9", "10", "", "x"}},
		{"all", protocol.ScreenSpec{Scrollback: -1}, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "", "x"}},
		{"not blank", protocol.ScreenSpec{Lines: 3, NonEmpty: true}, []string{"9", "10", "x"}},
		{"rows above", protocol.ScreenSpec{Lines: 3, Skip: 4}, []string{"6", "7", "8"}},
		{"nothing before", protocol.ScreenSpec{Scrollback: -1, Skip: 100}, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := show(t, s, tt.spec)
			if !slices.Equal(c.Lines, tt.want) || c.Truncated || c.Cursor != (protocol.Cursor{X: 1, Y: 3}) || c.Offset != s.Offset() || c.Rows != 4 {
				t.Errorf("got %+v, want lines %q", c, tt.want)
			}
		})
	}
}

func TestCells(t *testing.T) {
	s := printed(small, "\x1b[1;31mr\x1b[0;48;5;200m世\x1b[4:3;58:2::1:2:3m!\x1b[0m\x1b]8;;https://a.b/\x07l\x1b]8;;\x07\r\n\x1b[?25l\x1b]2;ti\x02tle\x07")
	c := show(t, s, protocol.ScreenSpec{Format: protocol.ScreenCells})
	want := []protocol.ScreenLine{{Cells: []protocol.ScreenCell{{Text: "r", Look: 1}, {Text: "世", Width: 2, Look: 2}, {Text: "!", Look: 3}, {Text: "l", Look: 4}}}}
	looks := []protocol.Look{
		{}, {Fg: "1", Bold: true}, {Bg: "200"},
		{Bg: "200", Underline: protocol.UnderlineCurly, UnderlineColor: "#010203"}, {Link: "https://a.b/", Underline: c.Looks[4].Underline},
	}
	if !reflect.DeepEqual(c.Cells, want) || !reflect.DeepEqual(c.Looks, looks) || !c.Cursor.Hidden || c.Title != "title" {
		t.Errorf("got %+v", c)
	}
	above := show(t, printed(small, numbers(10)), protocol.ScreenSpec{Format: protocol.ScreenCells, Scrollback: 3})
	if above.Above != 3 || len(above.Cells) != 6 || above.Cells[0].Cells[0].Text != "5" {
		t.Errorf("got %+v, want three rows above", above)
	}
}

// The output of the format ansi shows the same lines in a terminal.
func TestANSI(t *testing.T) {
	in := "plain \x1b[1;3;4;9;53;91;44mmany\x1b[0m\r\n\x1b[38;5;100mpalette \x1b[38;2;1;2;3;7mrgb\x1b[0m\r\n" + strings.Repeat("wrapped", 10) + "\r\n\r\nend"
	big := protocol.Size{Cols: 20, Rows: 20}
	s := printed(big, in)
	c := show(t, s, protocol.ScreenSpec{Format: protocol.ScreenANSI})
	for l := range strings.Lines(c.ANSI) {
		if !strings.HasSuffix(l, "\x1b[0m\n") {
			t.Errorf("a line ends with %q", l)
		}
	}
	spec := protocol.ScreenSpec{Format: protocol.ScreenCells}
	got := show(t, printed(big, strings.ReplaceAll(c.ANSI, "\n", "\r\n")), spec)
	want := show(t, s, spec)
	if !reflect.DeepEqual(got.Cells, want.Cells) || !reflect.DeepEqual(got.Looks, want.Looks) {
		t.Errorf("the terminal shows\n%+v\nwant\n%+v", got, want)
	}
}

// Many titles and notifications cause few events.
func TestEvents(t *testing.T) {
	s := printed(small, strings.Repeat("\x07\x1b]0;spin\x07\x1b]0;title\x07\x1b]7;file://host/tmp/a%20b\x07\x1b]9;hello\x07\x1b]777;notify;T;B\x07", 100))
	var kinds []protocol.EventKind
	var last *protocol.Notification
	for _, e := range s.Events() {
		kinds = append(kinds, e.Kind)
		if e.Notification != nil {
			last = e.Notification
		}
	}
	want := append([]protocol.EventKind{protocol.EventTitle, protocol.EventCwd}, slices.Repeat([]protocol.EventKind{protocol.EventNotification}, maxNotifications)...)
	want = append(want, protocol.EventBell)
	if !slices.Equal(kinds, want) || *last != (protocol.Notification{Title: "T", Body: "B"}) {
		t.Errorf("got %q, the last notification %+v; want %q", kinds, last, want)
	}
	if s.Title() != "title" || s.Cwd() != "/tmp/a b" || s.Events() != nil {
		t.Errorf("got title %q, cwd %q, or events come twice", s.Title(), s.Cwd())
	}
	s.Write([]byte("\x1b]2;" + strings.Repeat("é", 1000) + "\x07"))
	if n := len(s.Title()); n != protocol.MaxTitle {
		t.Errorf("a title of %d bytes, want at most %d", n, protocol.MaxTitle)
	}
}

// The history has the configured number of lines, packed or not.
func TestScrollbackLines(t *testing.T) {
	s := New(small, 10)
	s.Write([]byte(numbers(1000)))
	s.Pack()
	if got := s.Text(1000); len(got) != 13 || got[0] != "988" || got[12] != "1000" {
		t.Errorf("got %d lines, %q to %q", len(got), got[0], got[len(got)-1])
	}
}

// Content can be requested for another size than the screen's.
func TestContentOfSize(t *testing.T) {
	s := printed(small, numbers(10)+strings.Repeat("0123456789", 3)+"\r\nx")
	for _, tt := range []struct {
		name string
		spec protocol.ScreenSpec
		size protocol.Size
		want []string
	}{
		{"the size of the screen", protocol.ScreenSpec{Cols: 20, Rows: 4}, small, []string{"10", "012345678901234567890123456789", "x"}},
		{"wider", protocol.ScreenSpec{Cols: 40}, protocol.Size{Cols: 40, Rows: 4}, []string{"9", "10", "012345678901234567890123456789", "x"}},
		{"narrower", protocol.ScreenSpec{Cols: 10}, protocol.Size{Cols: 10, Rows: 4}, []string{"012345678901234567890123456789", "x"}},
		{"taller", protocol.ScreenSpec{Rows: 6}, protocol.Size{Cols: 20, Rows: 6}, []string{"8", "9", "10", "012345678901234567890123456789", "x"}},
		{"with rows above", protocol.ScreenSpec{Cols: 10, Rows: 2, Scrollback: 3}, protocol.Size{Cols: 10, Rows: 2}, []string{"10", "012345678901234567890123456789", "x"}},
		{"too large", protocol.ScreenSpec{Cols: 1 << 20, Rows: 1}, protocol.Size{Cols: protocol.MaxCols, Rows: 1}, []string{"x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := show(t, s, tt.spec)
			if !slices.Equal(c.Lines, tt.want) || (protocol.Size{Cols: c.Cols, Rows: c.Rows}) != tt.size {
				t.Errorf("got %d x %d, %q, want %s, %q", c.Cols, c.Rows, c.Lines, tt.size, tt.want)
			}
		})
	}
}

// If rows become longer, and therefore fewer, more lines are read for the same number of rows.
func TestContentOfWiderSize(t *testing.T) {
	s := New(protocol.Size{Cols: 10, Rows: 4}, 10_000)
	s.Write([]byte(strings.Repeat(strings.Repeat("0123456789", 20)+"\r\n", 100)))
	c := show(t, s, protocol.ScreenSpec{Format: protocol.ScreenCells, Cols: 200, Scrollback: 50})
	if c.Above != 50 || len(c.Cells) != 53 {
		t.Errorf("got %d rows, %d of them above", len(c.Cells), c.Above)
	}
}

func TestAppearance(t *testing.T) {
	s := New(small, 0)
	s.SetAppearance(protocol.Appearance{Foreground: "#102030", Background: "#ffffff", CellWidth: 8, CellHeight: 16, Version: "term 1"})
	s.Write([]byte("\x1b]10;?\x07\x1b[?996n\x1b[14t\x1b[16t\x1b[>q"))
	want := "\x1b]10;rgb:1010/2020/3030\x1b\\\x1b[?997;2n\x1b[4;64;160t\x1b[6;16;8t\x1bP>|holdfast term 1\x1b\\"
	if got := string(s.Replies()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if data, _ := s.Snapshot(0, protocol.Size{}, nil); strings.Contains(string(data), "]10;") {
		t.Errorf("the snapshot has colours: %q", data)
	}
}

// A program that requests focus events again must receive the focus again.
func TestFocus(t *testing.T) {
	s := New(small, 0)
	for _, tt := range []struct {
		in    string
		on    bool
		asked uint64
	}{
		{"", false, 0}, {"\x1b[?1004h", true, 1}, {"\x1b[?1004;2004h", true, 2}, {"\x1b[?1004l", false, 2}, {"\x1b[?1004h\x1bc", false, 3},
	} {
		s.Write([]byte(tt.in))
		if on, asked := s.Focus(); on != tt.on || asked != tt.asked {
			t.Errorf("after %q: focus %t, %d requests", tt.in, on, asked)
		}
	}
}

// Lines that cannot be laid out for another size in the time of a request are left out, and the reply says that it is
// truncated.
func TestViewLaidOut(t *testing.T) {
	s := New(protocol.Size{Cols: 80, Rows: 24}, 30_000)
	line := strings.Repeat("\x1b[41m \x1b[42m ", 40) + "\x1b[m\r\n"
	for range 200 {
		s.Write([]byte(strings.Repeat(line, 100)))
	}
	s.Write([]byte("the end"))
	const lines = 15_000
	for _, tt := range []struct {
		cols int
		all  bool
	}{{80, true}, {60, false}} {
		spec := protocol.ScreenSpec{Cols: tt.cols, Lines: lines}
		c, next := s.View(Rows(spec)).Content(spec)
		if next != 0 {
			t.Fatalf("%d columns: Content asks for more rows: %d", tt.cols, next)
		}
		if n := len(c.Lines); n < 2000 || (n == lines) != tt.all || c.Truncated == tt.all || c.Lines[n-1] != "the end" {
			t.Errorf("%d columns: %d lines, truncated: %v; the last is %q", tt.cols, n, c.Truncated, c.Lines[n-1])
		}
	}
}
