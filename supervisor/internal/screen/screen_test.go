package screen

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"holdfast/protocol"
)

func TestPlain(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"lines", "a\r\nb\r\n", []string{"a", "b"}},
		{"no newline at the end", "a\r\nb", []string{"a", "b"}},
		{"blank lines within stay", "a\r\n\r\nb\r\n\r\n", []string{"a", "", "b"}},
		{"colours", "\x1b[1;31mred\x1b[0m x", []string{"red x"}},
		{"title by BEL and by ST", "\x1b]0;title\x07a\x1b]2;t\x1b\\b", []string{"ab"}},
		{"DCS and APC", "\x1bPq#0\x1b\\a\x1b_x\x1b\\b", []string{"ab"}},
		{"a string cut by another sequence", "\x1b]0;t\x1b[31ma", []string{"a"}},
		{"charset", "\x1b(Ba", []string{"a"}},
		{"progress bar", "10%\r50%\r100%", []string{"100%"}},
		{"shorter overwrite with erase", "abcdef\rxy\x1b[K", []string{"xy"}},
		{"backspace", "ab\b\bX", []string{"Xb"}},
		{"tab", "a\tb", []string{"a       b"}},
		{"UTF-8", "é 世", []string{"é 世"}},
		{"invalid UTF-8", "a\xff\xfeb\xc3", []string{"a\ufffd\ufffdb\ufffd"}},
		{"cut sequence at the end", "a\x1b[3", []string{"a"}},
		{"C0 within a sequence", "\x1b[3\r1ma", []string{"a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Plain([]byte(tt.in)); !slices.Equal(got, tt.want) {
				t.Errorf("Plain(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

type fakeSource struct {
	data  string
	start uint64
}

func (f fakeSource) Tail(n int) ([]byte, uint64) {
	k := min(n, len(f.data))
	return []byte(f.data[len(f.data)-k:]), f.start + uint64(len(f.data)-k)
}

func TestText(t *testing.T) {
	s := New(protocol.Size{Cols: 80, Rows: 2}, 0, fakeSource{"[31m1\r\n2\r\n3\r\n", 9})
	if got := s.Text(0); !slices.Equal(got, []string{"2", "3"}) {
		t.Errorf("Text(0) = %q, want the terminal's height", got)
	}
	if got := s.Text(10); !slices.Equal(got, []string{"2", "3"}) {
		t.Errorf("Text(10) = %q, want no line that may begin within a sequence", got)
	}
}

func TestSnapshot(t *testing.T) {
	s := New(protocol.Size{}, 0, fakeSource{"abc\nd\x1b[6nef", 9})
	if data, offset, missed := s.Snapshot(); string(data) != "def" || offset != 20 || missed != 13 {
		t.Errorf("Snapshot = %q, %d, %d; want def, 20, 13", data, offset, missed)
	}
}

func TestQuiet(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"text", "a\r\nb", "a\r\nb"},
		{"colours, modes and moves stay", "\x1b[1;31ma\x1b[?2004h\x1b[3;4H\x1b[>1u\x1b[?25l\x1b[>4;2m\x1b[0 q", "\x1b[1;31ma\x1b[?2004h\x1b[3;4H\x1b[>1u\x1b[?25l\x1b[>4;2m\x1b[0 q"},
		{"bell and ENQ", "a\x07b\x05c", "abc"},
		{"device attributes", "\x1b[c\x1b[0c\x1b[>c\x1b[=0cx\x1bZ", "x"},
		{"status and position", "\x1b[5n\x1b[6n\x1b[?6nx", "x"},
		{"modes", "\x1b[?2026$px\x1b[4$p", "x"},
		{"version and keyboard", "\x1b[>q\x1b[>0q\x1b[?ux", "x"},
		{"window reports, not window operations", "\x1b[14t\x1b[18t\x1b[22;0tx", "\x1b[22;0tx"},
		{"colours asked, colours set", "\x1b]11;?\x07\x1b]10;?\x1b\\\x1b]4;1;?\x07\x1b]11;#000\x07x", "\x1b]11;#000\x07x"},
		{"title with its BEL stays", "\x1b]0;t\x07x", "\x1b]0;t\x07x"},
		{"DECRQSS and XTGETTCAP", "\x1bP$qm\x1b\\\x1bP+q544e\x1b\\x", "x"},
		{"cut at the end", "x\x1b[6", "x\x1b[6"},
		{"a string too long to be a question keeps its BEL", "\x1b]52;c;" + strings.Repeat("A", 5000) + "\x07x\x07", "\x1b]52;c;" + strings.Repeat("A", 5000) + "\x07x"},
		{"cut within a string", "x\x1b]11;?", "x\x1b]11;?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Quiet([]byte(tt.in)); string(got) != tt.want {
				t.Errorf("Quiet(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

// FuzzQuiet: nothing is added, nothing without an escape or a bell is taken
// away, and a second time changes no more than the first left over.
func FuzzQuiet(f *testing.F) {
	f.Add([]byte("a\x1b[6nb\x1b]11;?\x07"))
	f.Fuzz(func(t *testing.T, in []byte) {
		out := Quiet(in)
		if len(out) > len(in) {
			t.Fatalf("Quiet(%q) = %q is longer", in, out)
		}
		if !strings.ContainsAny(string(in), "\x05\x07\x1b") && string(out) != string(in) {
			t.Fatalf("Quiet(%q) = %q", in, out)
		}
	})
}

// FuzzPlain: whatever is printed, the lines are valid UTF-8 of bounded length
// without control characters.
func FuzzPlain(f *testing.F) {
	f.Add([]byte("a\x1b[1;2Hb\x1b]0;x\x07\r\n\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, l := range Plain(in) {
			if !utf8.ValidString(l) || len(l) > protocol.MaxTailLine || strings.ContainsAny(l, "\x1b\n\r\x00\x07") {
				t.Fatalf("Plain(%q) has line %q", in, l)
			}
		}
	})
}
