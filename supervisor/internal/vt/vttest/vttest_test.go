package vttest_test

import (
	"bytes"
	"strings"
	"testing"

	"holdfast/supervisor/internal/vt"
	. "holdfast/supervisor/internal/vt/vttest"
)

func TestDiff(t *testing.T) {
	state := func(change func(*vt.State)) *vt.State {
		s := &vt.State{Cols: 4, Rows: 1, Attrs: []vt.Attr{{}, {Flags: vt.Bold}}, Normal: vt.Buffer{
			Tabs: []int{}, Lines: []vt.Line{{Cells: []vt.Cell{{Text: "a", Width: 1}, {Text: "b", Width: 1, Attr: 1}}}},
		}}
		change(s)
		return s
	}
	tests := []struct {
		name   string
		change func(*vt.State)
		want   string // a part of the difference
	}{
		{"nothing", func(*vt.State) {}, ""},
		{"attributes in another order", func(s *vt.State) {
			s.Attrs = []vt.Attr{{}, {Flags: vt.Dim}, {Flags: vt.Bold}}
			s.Normal.Lines[0].Cells[1].Attr = 2
		}, ""},
		{"empty cells at the end", func(s *vt.State) { s.Normal.Lines[0].Cells = append(s.Normal.Lines[0].Cells, vt.Cell{Width: 1}) }, ""},
		{"white underline", func(s *vt.State) { s.Attrs[0].UnderlineColor = 0x3ffffff }, ""},
		{"nil lists", func(s *vt.State) { s.Normal.Tabs, s.Charsets = nil, []string{"B", ""} }, ""},
		{"another name of a charset", func(s *vt.State) { s.Charset = "B" }, ""},
		{"text", func(s *vt.State) { s.Normal.Lines[0].Cells[0].Text = "x" }, `normal line 0 column 0: got "x"`},
		{"look", func(s *vt.State) { s.Normal.Lines[0].Cells[1].Attr = 0 }, `normal line 0 column 1 ("b"): got {`},
		{"no such look", func(s *vt.State) { s.Pen = 7 }, "pen: attribute out of range"},
		{"wrapped", func(s *vt.State) { s.Normal.Lines[0].Wrapped = true }, "normal line 0 wrapped: got true"},
		{"cursor", func(s *vt.State) { s.Normal.X = 3 }, "normal cursor: got [3 0], want [0 0]"},
		{"mode", func(s *vt.State) { s.Modes.Insert = true }, "mode Insert: got true"},
		{"a mode of the core", func(s *vt.State) { s.Modes.Win32Input = true }, ""},
		{"screen", func(s *vt.State) { s.Alternate = &s.Normal }, "alternate shown: got true"},
		{"title", func(s *vt.State) { s.TitleStack = []string{"x"} }, "title stack: got [x]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Diff(state(tt.change), state(func(*vt.State) {}))
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q in it", got, tt.want)
			}
		})
	}
	wrapped := state(func(s *vt.State) { s.Normal.Lines[0].Wrapped = true })
	if got := Diff(wrapped, state(func(*vt.State) {}), Options{FirstWrapped: true}); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestMinimise(t *testing.T) {
	steps := []Step{{Write: []byte("some text\x1b[31mand more")}, {Cols: 10, Rows: 3}, {Write: []byte("again\r\nfoo\x1b")}, {Write: []byte("cbar")}, {Cols: 4, Rows: 4}}
	// The predicate fails for a reset that comes after the first resize.
	got := Minimise(steps, func(steps []Step) bool {
		var after []byte
		resized := false
		for _, s := range steps {
			resized = resized || s.IsResize()
			if resized {
				after = append(after, s.Write...)
			}
		}
		return bytes.Contains(after, []byte("\x1bc"))
	})
	if want := "resize 10 3\n\"\\x1bc\"\n"; Format(got) != want {
		t.Errorf("got %q, want %q", Format(got), want)
	}
}

func TestCaseIsKept(t *testing.T) {
	c := &Case{Name: "kept", Config: Config{Cols: 10, Rows: 3, History: 5, Unicode: "11"}, Steps: []Step{
		{Write: []byte("a\"\\\r\n\xff漢\x1b[m")}, {Cols: 4, Rows: 2}, {Write: []byte("#")},
	}}
	dir := t.TempDir()
	if _, err := c.Save(dir); err != nil {
		t.Fatal(err)
	}
	got := LoadCases(t, dir)
	if len(got) != 1 || got[0].Name != "kept" || got[0].String() != c.String() || got[0].Config != c.Config {
		t.Errorf("got %+v, want %+v", got, c)
	}
	if string(got[0].Steps[0].Write) != string(c.Steps[0].Write) {
		t.Errorf("got %q, want %q", got[0].Steps[0].Write, c.Steps[0].Write)
	}
	for _, bad := range []string{"resize 1", "terminal x", `"open`, "word"} {
		if _, err := Parse("bad", []byte(bad)); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
}

// The recording of a program is complete, its queries are answered, and keys are sent when it is ready for them.
func TestRecordScript(t *testing.T) {
	got := Record(t, Program{
		Argv: []string{"sh", "-c", `stty -echo; printf 'ready?'; read -r line; printf "<$line>"; read -r line; printf "<$line>"; cat`},
		Env:  []string{"PATH=/usr/bin:/bin"}, Cols: 80, Rows: 24,
		Script: []Act{{Wait: "ready?", Send: "one\n"}, {Wait: "<one>"}, {Send: "three\n"}, {Wait: "three", Send: "\x04"}},
		Answer: func(output []byte) []byte {
			if bytes.HasSuffix(output, []byte("<one>")) {
				return []byte("two\n")
			}
			return nil
		},
	})
	if want := "ready?<one><two>three\r\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
