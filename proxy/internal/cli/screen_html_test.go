package cli

import (
	"strings"
	"testing"

	"holdfast/protocol"
)

// The page of a session runs no script and loads no file, whatever the session prints: text is escaped, and only
// known styles and links become markup.
func TestScreenHTML(t *testing.T) {
	cell := func(look int, texts ...string) (out []protocol.ScreenCell) {
		for _, s := range texts {
			out = append(out, protocol.ScreenCell{Text: s, Look: look})
		}
		return out
	}
	const a, z = `<pre title="t&lt;&#34;&gt;" style="color:#ffffff;background:#000000;font-family:monospace;line-height:1.2;padding:0.5em;margin:0">`, "\n</pre>\n"
	for _, tt := range []struct {
		name  string
		look  protocol.Look
		cells []protocol.ScreenCell
		want  string
	}{
		{"plain", protocol.Look{}, cell(1, "a", "", "b"), "a b"},
		{"markup", protocol.Look{}, cell(1, "<script>", "&", `"`), "&lt;script&gt;&amp;&#34;"},
		{"control characters", protocol.Look{}, cell(1, "a\x1b\u009b"), "a"},
		{"runs", protocol.Look{Fg: "1"}, append(cell(0, "a"), cell(1, "b", "c")...), `a<span style="color:#cc0000">bc</span>`},
		{"bold is bright", protocol.Look{Fg: "1", Bold: true}, cell(1, "a"), `<span style="color:#ef2929;font-weight:bold">a</span>`},
		{"palette", protocol.Look{Fg: "16", Bg: "231"}, cell(1, "a"), `<span style="color:#000000;background:#ffffff">a</span>`},
		{"cube and grey", protocol.Look{Fg: "100", Bg: "232"}, cell(1, "a"), `<span style="color:#878700;background:#080808">a</span>`},
		{"RGB", protocol.Look{Fg: "#0a0B0c"}, cell(1, "a"), `<span style="color:#0a0B0c">a</span>`},
		{"no colours", protocol.Look{Fg: "red;x", Bg: "#12345g", UnderlineColor: "256"}, cell(1, "a"), "a"},
		{"inverse", protocol.Look{Inverse: true}, cell(1, "a"), `<span style="color:#000000;background:#ffffff">a</span>`},
		{"invisible", protocol.Look{Invisible: true}, cell(1, "a"), `<span style="color:transparent">a</span>`},
		{"lines", protocol.Look{Strike: true, Underline: protocol.UnderlineCurly, UnderlineColor: "9"}, cell(1, "a"),
			`<span style="text-decoration:underline line-through;text-decoration-style:wavy;text-decoration-color:#ef2929">a</span>`},
		{"link", protocol.Look{Link: `https://a.b/?"<`}, cell(1, "a"), `<a href="https://a.b/?&#34;&lt;" rel="noopener" style="color:inherit">a</a>`},
		{"mail", protocol.Look{Link: "MAILTO:a@b", Italic: true}, cell(1, "a"), `<a href="MAILTO:a@b" rel="noopener" style="color:inherit;font-style:italic">a</a>`},
		{"script", protocol.Look{Link: "javascript:alert(1)"}, cell(1, "a"), "a"},
		{"script, hidden", protocol.Look{Link: "java\nscript:alert(1)"}, cell(1, "a"), "a"},
		{"data", protocol.Look{Link: "data:text/html,x"}, cell(1, "a"), "a"},
		{"no scheme", protocol.Look{Link: "//a.b"}, cell(1, "a"), "a"},
		{"no such look", protocol.Look{}, cell(7, "a"), "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &protocol.ScreenContent{Title: `t<">`, Looks: []protocol.Look{{}, tt.look}, Cells: []protocol.ScreenLine{{Cells: tt.cells}}}
			if got := string(screenHTML("s", c)); got != a+tt.want+z {
				t.Errorf("got\n%s\nwant\n%s", strings.TrimPrefix(got, a), tt.want+z)
			}
		})
	}
	c := &protocol.ScreenContent{Title: `t<">`, Cells: []protocol.ScreenLine{{Cells: cell(0, "a")}, {Wrapped: true, Cells: cell(0, "b")}, {Cells: cell(0, "c")}}}
	if got := string(screenHTML("s", c)); got != a+"ab\nc"+z {
		t.Errorf("wrapped rows make %q", got)
	}
}

// A picture lies over the text at its place, and takes no room in it.
func TestScreenHTMLPictures(t *testing.T) {
	line := func(text string) (l protocol.ScreenLine) {
		for _, r := range text {
			l.Cells = append(l.Cells, protocol.ScreenCell{Text: string(r)})
		}
		return l
	}
	c := &protocol.ScreenContent{
		Cells: []protocol.ScreenLine{line("abcd"), line("e")}, Looks: []protocol.Look{{}},
		Pictures: []protocol.ScreenPicture{{Row: 0, Col: 1, Rows: 2, Cols: 8, PNG: []byte("PNG")}, {Row: 1, Col: 3, Rows: 1, Cols: 1, PNG: []byte("P")}},
	}
	got := string(screenHTML("s", c))
	const want = `a<img alt="" style="position:absolute;width:8ch;height:2.4em" src="data:image/png;base64,UE5H">bcd` + "\n" +
		`e  <img alt="" style="position:absolute;width:1ch;height:1.2em" src="data:image/png;base64,UA==">` + "\n</pre>"
	if !strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
}
