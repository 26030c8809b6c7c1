package plain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

var texts = []struct{ name, in, want string }{
	{"ASCII", "make -j8", "make -j8"},
	{"letters", "Grüße, 世界, עברית", "Grüße, 世界, עברית"},
	{"C0", "a\x00\x07\x08\x1b[31mb\r", "a???" + "?[31mb?"},
	{"DEL", "a\x7fb", "a?b"},
	{"C1", "a\u0080\u009b31m\u009fb", "a??31m?b"},
	{"a C1 byte", "a\x9b31m", "a\ufffd31m"},
	{"direction", "\u202eabc\u202c \u2066x\u2069 \u200e\u061c", "?abc? ?x? ??"},
	{"zero width", "a\u200bb\u200cc\ufeffd\u2060e\u00adf", "a?b?c?d?e?f"},
	{"separators", "a\u2028b\u2029c", "a?b?c"},
	{"fillers", "\u115f\u3164\uffa0\u034f", "????"},
	{"tags", "\U000e0041\U000e007f", "??"},
	{"emoji", "👩‍💻 ❤️‍🔥 👍🏽", "👩‍💻 ❤️‍🔥 👍🏽"},
	{"a joiner between letters", "a\u200db", "a?b"},
	{"combining", "e\u0301", "e\u0301"},
}

func TestText(t *testing.T) {
	for _, tt := range texts {
		if got := Text(tt.in); got != tt.want {
			t.Errorf("%s: %+q, want %+q", tt.name, got, tt.want)
		}
	}
	if got := Text("a\tb\nc"); got != "a?b?c" {
		t.Errorf("one line: %q", got)
	}
}

// A cut text is UTF-8, whatever the text was and wherever it is cut.
func TestCut(t *testing.T) {
	for _, tt := range []struct {
		in   string
		n    int
		want string
	}{{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé€", 2, "a"}, {"aé€", 3, "aé"}, {"aé€", 5, "aé"}, {"aé€", 6, "aé€"}, {"a\xffb", 3, "ab"}, {"€", 0, ""}} {
		if got := Cut(tt.in, tt.n); got != tt.want {
			t.Errorf("Cut(%q, %d) is %q, want %q", tt.in, tt.n, got, tt.want)
		}
	}
}

// Text that comes byte by byte must give the same result.
func TestWriter(t *testing.T) {
	for _, tt := range texts {
		var whole, pieces bytes.Buffer
		a, b := NewWriter(&whole), NewWriter(&pieces)
		in := "1\t" + tt.in + "\n"
		if n, err := a.Write([]byte(in)); n != len(in) || err != nil {
			t.Errorf("%s: %d, %v", tt.name, n, err)
		}
		for i := range len(in) {
			if n, err := b.Write([]byte{in[i]}); n != 1 || err != nil {
				t.Errorf("%s: %d, %v", tt.name, n, err)
			}
		}
		if want := "1\t" + tt.want + "\n"; whole.String() != want {
			t.Errorf("%s: %+q, want %+q", tt.name, whole.String(), want)
		}
		// A joiner depends on the character before it in the same write.
		if want := strings.ReplaceAll("1\t"+tt.want+"\n", "\u200d", "?"); pieces.String() != want {
			t.Errorf("%s in pieces: %+q, want %+q", tt.name, pieces.String(), want)
		}
	}
	var out bytes.Buffer
	if Raw(NewWriter(&out)) != &out || Raw(&out) != &out {
		t.Error("Raw does not return the underlying writer")
	}
}

func TestJSON(t *testing.T) {
	for _, tt := range texts {
		var out bytes.Buffer
		enc := json.NewEncoder(JSON(NewWriter(&out)))
		enc.SetIndent("", "  ")
		if err := enc.Encode(map[string]string{"text": tt.in}); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(out.String(), isEscaped) {
			t.Errorf("%s: %+q", tt.name, out.String())
		}
		var back map[string]string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["text"] != strings.ToValidUTF8(tt.in, "\ufffd") {
			t.Errorf("%s: %+q, %v", tt.name, back, err)
		}
	}
}

// A shell must read each word unchanged.
func TestShellWord(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"/usr/bin/make", "/usr/bin/make"}, {"LANG=de_DE.UTF-8@euro", "LANG=de_DE.UTF-8@euro"},
		{"", "''"}, {"/a b/it's", `'/a b/it'\''s'`}, {"~", "'~'"}, {"$(reboot)", "'$(reboot)'"},
	} {
		if got := ShellWord(tt.in); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.in, got, tt.want)
		}
	}
	script := ""
	var want strings.Builder
	for r := rune(1); r < 0x180; r++ {
		word := "a" + string(r) + "b"
		script += "printf '%s\\0' " + ShellWord(word) + " " + ShellWord(string(r)) + "\n"
		want.WriteString(word + "\x00" + string(r) + "\x00")
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		return // Windows has no sh
	}
	cmd := exec.Command(sh)
	cmd.Stdin = strings.NewReader(script)
	if got, err := cmd.Output(); err != nil || string(got) != want.String() {
		t.Errorf("%v, got %q", err, got)
	}
}

// countingWriter counts the calls of Write.
type countingWriter struct {
	strings.Builder
	calls int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.calls++
	return w.Builder.Write(p)
}

func TestTable(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"ID\tSTATE\nbuild\trunning\n", "ID     STATE\nbuild  running\n"},
		{"runs\tsh\nlabel é世\te\u0301\t👍\nlabel key\tab\tc\n", "runs       sh\nlabel é世  e\u0301   👍\nlabel key  ab  c\n"},
	} {
		var w countingWriter
		table := NewTable(&w)
		fmt.Fprint(table, tt.in)
		if err := table.Flush(); err != nil || w.calls > 1 || w.String() != tt.want {
			t.Errorf("%v, %d writes: %q, want %q", err, w.calls, w.String(), tt.want)
		}
	}
}
