package vt

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// fixtures returns the folder with other projects' test data: $HOLDFAST_FIXTURES,
// by default ../shared/fixtures beside the repository.
func fixtures(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("HOLDFAST_FIXTURES")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "fixtures")
	}
	dir = filepath.Join(dir, name)
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv("HOLDFAST_REQUIRE_FIXTURES") != "" {
			t.Fatalf("no fixtures: %v", err)
		}
		t.Skipf("no fixtures, set HOLDFAST_FIXTURES to their folder: %v", err)
	}
	return dir
}

// xtermSkips are the cases that xterm.js skips in its own tests, with its reason.
var xtermSkips = map[string]string{
	"t0055-EL":           "xterm.js treats EL and ED behind the last column otherwise than xterm (its issue 3362)",
	"t0084-CBT":          "xterm.js skips it, and gives no reason",
	"t0101-NLM":          "xterm.js skips it, and gives no reason: LNM applies to the input of the keyboard as well",
	"t0103-reverse_wrap": "xterm.js goes back over soft wraps only, on purpose",
	"t0504-vim":          "xterm.js skips it, and gives no reason",
}

func TestXtermFixtures(t *testing.T) {
	dir := filepath.Join(fixtures(t, "xtermjs"), "escape_sequence_files")
	ins, err := filepath.Glob(filepath.Join(dir, "*.in"))
	if err != nil || len(ins) == 0 {
		t.Fatalf("no cases in %s: %v", dir, err)
	}
	for _, in := range ins {
		name := strings.TrimSuffix(filepath.Base(in), ".in")
		t.Run(name, func(t *testing.T) {
			if why, ok := xtermSkips[name]; ok {
				t.Skip(why)
			}
			data, err := os.ReadFile(in)
			testkit.Must(t, err)
			want, err := os.ReadFile(strings.TrimSuffix(in, ".in") + ".text")
			testkit.Must(t, err)
			term := New(Config{Cols: 80, Rows: 25})
			// The fixtures were made through a PTY, which adds the carriage returns.
			term.Write(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))
			if got := trimRight(screenText(term)); got != trimRight(string(want)) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// screenText returns the screen in the form of the fixtures: each row with a newline.
func screenText(t *Term) string {
	var b strings.Builder
	s := t.State()
	buf := s.Normal
	if s.Alternate != nil {
		buf = *s.Alternate
	}
	for _, l := range buf.Lines[buf.History:] {
		for _, c := range l.Cells {
			switch {
			case c.Text != "":
				b.WriteString(c.Text)
			case c.Width == 1:
				b.WriteByte(' ')
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// trimRight removes the blanks at the end of each line. Some of the fixtures have them, and the comparison of
// xterm.js ignores them.
func trimRight(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}
