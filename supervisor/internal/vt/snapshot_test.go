package vt

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// Two snapshots of one screen have the same bytes, because proxies compare them.
func TestSnapshotIsAlwaysTheSame(t *testing.T) {
	term := New(Config{})
	for i := range 16 {
		term.Write(fmt.Appendf(nil, "\x1b]4;%d;#%06x\a", i, i*4711))
	}
	first := term.Snapshot()
	for range 50 {
		if again := term.Snapshot(); !bytes.Equal(again, first) {
			t.Fatalf("%q, then %q", first, again)
		}
	}
}

// Alacritty knows the alternate screen only by mode 1049, and tmux restores at the reset of this mode only the cursor that
// its set has saved. The program leaves the screen that a snapshot or a transition has shown there, too.
func TestAlternateScreenByMode1049(t *testing.T) {
	const start = "$ ls\r\na b\r\n\x1b[1;41m$ vim"
	for _, tt := range []struct{ name, in string }{
		{"entered by the program", start + "\x1b[?1049h\x1b[m\x1b[Htext\r\n~\x1b[5;3H"},
		{"in the first cell", "\x1b[?1049h\x1b[Htext\r\n~\x1b[5;3H"},
		{"with another cursor since", start + "\x1b7\x1b[2;1H\x1b[?1047h\x1b[m\x1b[Htext"},
	} {
		term, empty := New(Config{Cols: 20, Rows: 5}), New(Config{Cols: 20, Rows: 5})
		term.Write([]byte(tt.in))
		for _, shown := range [][]byte{term.Snapshot(), term.AppendTransition(nil, empty, Shows{})} {
			for _, unknown := range []string{"\x1b[?1047h", "\x1b[?1047l", "\x1b7"} {
				shown = bytes.ReplaceAll(shown, []byte(unknown), nil)
			}
			viewer, want := New(Config{Cols: 20, Rows: 5}), New(Config{Cols: 20, Rows: 5})
			viewer.Write(shown)
			want.Write([]byte(tt.in))
			for _, more := range []string{"", "\x1b[?1049l", "x"} {
				viewer.Write([]byte(more))
				want.Write([]byte(more))
				if got, want := viewer.shown(), want.shown(); got != want {
					t.Errorf("%s, then %q: %q shows\n%s, want\n%s", tt.name, more, shown, got, want)
				}
			}
		}
		normal := New(Config{Cols: 20, Rows: 5})
		normal.Write([]byte(tt.in + "\x1b[?1049l"))
		viewer := New(Config{Cols: 20, Rows: 5})
		viewer.Write([]byte(tt.in))
		viewer.Write(bytes.ReplaceAll(normal.AppendTransition(nil, viewer, Shows{}), []byte("\x1b[?1047l"), nil))
		if got, want := viewer.shown(), normal.shown(); got != want {
			t.Errorf("%s, and a transition back: got\n%s, want\n%s", tt.name, got, want)
		}
	}
}

// shown describes the screen that is shown, with its cursor and pen.
func (t *Term) shown() string {
	text := fmt.Sprintf("alternate %t, cursor %d;%d, pen %v", t.b == &t.alt, t.b.y+1, t.b.x+1, t.pen)
	for y := range t.rows {
		text += fmt.Sprintf("\n%v", t.rowCells(t.b.row(y)))
	}
	return text
}

// tmux and Alacritty know the mode of the keypad only by DECKPAM and DECKPNM.
func TestSnapshotOfTheKeypad(t *testing.T) {
	term := New(Config{})
	for _, tt := range []struct{ in, want string }{{"\x1b=", "\x1b="}, {"\x1b[?66l", "\x1b>"}} {
		before := term.Copy(0)
		term.Write([]byte(tt.in))
		for _, out := range [][]byte{term.Snapshot(), term.AppendTransition(nil, before, Shows{})} {
			if !bytes.Contains(out, []byte(tt.want)) || bytes.Contains(out, []byte("\x1b[?66")) {
				t.Errorf("after %q a viewer receives %q, want %q in it", tt.in, out, tt.want)
			}
		}
	}
}

// A program such as vim pushes the title before it sets one. The terminal of a viewer keeps its own title meanwhile.
func TestSnapshotOfNoTitle(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"\x1b[22;0;0t", ""},
		{"\x1b[22;0;0t\x1b]0;a\a", "\x1b]2;a\x1b\\"},
		{"\x1b]2;a\a\x1b[22;2t\x1b]2;\a\x1b[22;2t", "\x1b]2;a\x1b\\\x1b[22;2t\x1b]2;\x1b\\\x1b[22;2t\x1b]2;\x1b\\"},
	} {
		term, viewer := New(Config{}), New(Config{})
		term.Write([]byte(tt.in))
		snapshot := term.Snapshot()
		if set := bytes.Contains(snapshot, []byte("\x1b]2;")); set != (tt.want != "") || !bytes.Contains(snapshot, []byte(tt.want)) {
			t.Errorf("after %q a viewer receives %q, want %q in it", tt.in, snapshot, tt.want)
		}
		viewer.Write(snapshot)
		if fmt.Sprint(viewer.title, viewer.titleStack, viewer.icon, viewer.iconStack) != fmt.Sprint(term.title, term.titleStack, term.icon, term.iconStack) {
			t.Errorf("after %q a viewer has the title %q, %q", tt.in, viewer.title, viewer.titleStack)
		}
	}
}

// A viewer whose terminal counts the columns of a text by other rules still shows the row of the cursor correctly,
// with the cursor behind the last printed character.
func TestSnapshotForOtherWidths(t *testing.T) {
	for _, tt := range []struct{ name, in, typed, want string }{
		{"a prompt", "> ⚠️ typed", "!", "> ⚠️ typed!"},
		{"a hand with a skin", "👍🏽 $ ls", " -l", "👍🏽 $ ls -l"},
		{"the cursor moved back", "⚠️ one two\x1b[3D", "x", "⚠️ one xwo"},
		{"text behind the cursor, in columns never printed", "⚠️ a\x1b[1;20Hb\x1b[1;10H", "c", ""},
		{"a wrap that is pending", strings.Repeat("⚠️", 7) + strings.Repeat("x", 13), "", strings.Repeat("⚠️", 7) + strings.Repeat("x", 6)},
		{"insert", "⚠️ typed\x1b[4h\x1b[2D", "X", "⚠️ typXed"},
		{"DECOM", "\x1b[2;4r\x1b[?6h⚠️ typed", "!", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			term := New(Config{Cols: 20, Rows: 5})
			term.Write([]byte(tt.in))
			for _, snapshot := range [][]byte{term.Snapshot(), term.AppendTransition(nil, New(Config{Cols: 20, Rows: 5}), Shows{})} {
				same := New(Config{Cols: 20, Rows: 5})
				same.Write(snapshot)
				same.Write([]byte(tt.typed))
				want := New(Config{Cols: 20, Rows: 5})
				want.Write([]byte(tt.in + tt.typed))
				if got, want := fmt.Sprint(same.State()), fmt.Sprint(want.State()); got != want {
					t.Errorf("a terminal with the same widths: %q makes\n%s, want\n%s", snapshot, got, want)
				}
				other := New(Config{Cols: 20, Rows: 5, Graphemes: true})
				other.Write(bytes.ReplaceAll(snapshot, []byte("\x1b[?2027l"), nil))
				other.Write([]byte(tt.typed))
				line := ""
				for _, c := range other.State().Normal.Lines[0].Cells {
					line += c.Text
				}
				if line != tt.want && tt.want != "" {
					t.Errorf("a terminal with other widths: %q shows %q, want %q", snapshot, line, tt.want)
				}
			}
		})
	}
}
