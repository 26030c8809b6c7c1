package vt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// marked lists the shell marks of a terminal: line, column and text.
func marked(t *Term) (all []string) {
	add := func(line int, marks []shellMark) {
		for _, m := range marks {
			all = append(all, fmt.Sprintf("%d,%d %s", line, m.col, m.text))
		}
	}
	t.hist.each(0, func(i int, l storedLine) bool { add(i, l.marks); return true })
	for y := range t.rows {
		add(t.hist.lines+y, t.normal.row(y).marks)
	}
	return all
}

func TestMarks(t *testing.T) {
	prompt := "\x1b]133;A\x07\x1b[K$ \x1b]133;B\x07ls\r\n\x1b]133;C\x07"
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"none", "hello\r\n", nil},
		{"a prompt", prompt + "out\r\n\x1b]133;D;0\x07", []string{"0,0 133;A", "0,2 133;B", "1,0 133;C", "2,0 133;D;0"}},
		{"in the history", prompt + "\x1b[31m" + strings.Repeat("x\r\n", 4), []string{"0,0 133;A", "0,2 133;B", "1,0 133;C"}},
		{"of VS Code", "\x1b]633;A\x07> \x1b]633;P;Cwd=/a\x07", []string{"0,0 633;A", "0,2 633;P;Cwd=/a"}},
		{"in a wrapped line", "0123456789012\x1b]133;B\x07x", []string{"1,3 133;B"}},
		{"where a line wraps", "0123456789\x1b]133;B\x07x", []string{"0,9 133;B"}},
		{"at a wrapped line's beginning", "01234567890\r\x1b]133;C\x07", []string{"1,0 133;C"}},
		{"behind the content", "a\x1b[8G\x1b]133;B\x07\r\nb", []string{"0,7 133;B"}},
		{"among empty columns", "a\x1b[4G\x1b]133;B\x07\x1b[8Gb", []string{"0,3 133;B"}},
		{"with a background", "\x1b[41m\x1b[2K\x1b[4G\x1b]133;B\x07\x1b[m", []string{"0,3 133;B"}},
		{"on the alternate screen", "\x1b[?1049h\x1b]133;A\x07", nil},
		{"of a screen that was erased", prompt + "\x1b[2J", nil},
		{"of a row erased by DECSED", "\x1b[1\"qx\x1b[\"q\r\n\x1b]133;A\x07ab\r\x1b[31mc\x1b[?2J", []string{"1,0 133;A"}},
		{"too many, and too long", strings.Repeat("\x1b]133;A\x07", 20) + "\r\n\x1b]633;E;" + strings.Repeat("x", 999) + "\x07", slices.Repeat([]string{"0,0 133;A"}, maxMarks)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			term := New(Config{Cols: 10, Rows: 4, HistoryLines: 100})
			term.Write([]byte(tt.in))
			if got := marked(term); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			term.Pack()
			again := New(Config{Cols: 10, Rows: 4, HistoryLines: 100})
			again.Write(term.Snapshot())
			if got := marked(again); !slices.Equal(got, tt.want) {
				t.Errorf("the snapshot %q makes\n     %q\nwant %q", term.Snapshot(), got, tt.want)
			}
			again.Resize(20, 6)
			again.Resize(10, 4)
			if got := marked(again); len(got) != len(tt.want) {
				t.Errorf("after a resize and another one back the marks are\n     %q\nwant %q", got, tt.want)
			}
		})
	}
}

// A mark of a command has the place of an earlier one only until there was as much output as finding the places costs.
func TestPlaceAfterManyMarks(t *testing.T) {
	var last Event
	term := New(Config{Cols: 300, Rows: 100, Events: func(e Event) { last = e }})
	term.Write([]byte(strings.Repeat("中", 300*100/2) + "\x1b]133;C\a"))
	const long = 3 * 300 * 100 / 2
	room := maxPlaceWork - placeWork*long - term.rows
	if last.Byte != long || term.placeRoom < room {
		t.Errorf("the mark is at the byte %d of its line, want %d; %d remain for others, want %d", last.Byte, long, term.placeRoom, room)
	}
	term.placeRoom = 0
	term.Write([]byte("\x1b[2J\x1b[Hab\x1b]133;C\a"))
	if last.Byte != long {
		t.Errorf("the mark is at the byte %d of its line, want %d as before", last.Byte, long)
	}
	term.Write([]byte("c\x1b]133;C\a"))
	if last.Byte != 3 {
		t.Errorf("the mark is at the byte %d of its line, want 3", last.Byte)
	}
}
