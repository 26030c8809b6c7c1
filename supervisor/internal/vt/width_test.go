package vt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestRuneWidth(t *testing.T) {
	for _, tt := range []struct {
		name        string
		first, last rune
		want        int
	}{
		{"ASCII", 0x20, 0x7e, 1},
		{"C0", 0, 0x1f, 0},
		{"DEL and C1", 0x7f, 0x9f, 0},
		{"Latin-1, soft hyphen and all", 0xa0, 0xff, 1},
		{"Latin Extended", 0x100, 0x2ff, 1},
		{"combining diacritical marks", 0x300, 0x36f, 0},
		{"Hangul leading consonants", 0x1100, 0x115f, 2},
		{"Hangul vowels and trailing consonants", 0x1160, 0x11ff, 0},
		{"zero width space to RLM", 0x200b, 0x200f, 0},
		{"watch and hourglass", 0x231a, 0x231b, 2},
		{"half fill space", 0x303f, 0x303f, 1},
		{"box drawing", 0x2500, 0x257f, 1},
		{"scissors, of ambiguous width", 0x2702, 0x2702, 1},
		{"kana", 0x3041, 0x3096, 2},
		{"CJK unified ideographs", 0x4e00, 0x9fff, 2},
		{"Hangul syllables", 0xac00, 0xd7a3, 2},
		{"after the last Hangul syllable", 0xd7a4, 0xd7a4, 1},
		{"private use", 0xe000, 0xf8ff, 1},
		{"variation selectors", 0xfe00, 0xfe0f, 0},
		{"byte order mark", 0xfeff, 0xfeff, 0},
		{"fullwidth forms", 0xff01, 0xff60, 2},
		{"replacement character", 0xfffd, 0xfffd, 1},
		{"musical combining marks", 0x1d167, 0x1d169, 0},
		{"regional indicators", 0x1f1e6, 0x1f1ff, 1},
		{"cyclone to the stars", 0x1f300, 0x1f320, 2},
		{"faces", 0x1f600, 0x1f64f, 2},
		{"Unicode 12's ballet shoes", 0x1fa70, 0x1fa70, 2},
		{"Unicode 13's thong sandal", 0x1fa74, 0x1fa74, 2},
		{"Unicode 13's smiling face with tear", 0x1f972, 0x1f972, 2},
		{"Unicode 14's melting face", 0x1fae0, 0x1fae0, 2},
		{"Unicode 15's wireless", 0x1f6dc, 0x1f6dc, 2},
		{"Unicode 16's face with bags under eyes", 0x1fae9, 0x1fae9, 2},
		{"Unicode 17's distorted face", 0x1faea, 0x1faea, 2},
		{"not assigned in Unicode 17", 0x1fadd, 0x1fade, 1},
		{"plane 2", 0x20000, 0x2fffd, 2},
		{"end of plane 2", 0x2fffe, 0x2ffff, 1},
		{"plane 3", 0x30000, 0x3fffd, 2},
		{"tags", 0xe0020, 0xe007f, 0},
		{"variation selectors supplement", 0xe0100, 0xe01ef, 0},
		{"the last code point", 0x10ffff, 0x10ffff, 1},
		{"no code points", 0x110000, 0x1100ff, 1},
		{"negative", -2, -1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for r := tt.first; r <= tt.last; r++ {
				if got := runeWidth(r); got != tt.want {
					t.Fatalf("runeWidth(%#x) = %d, want %d", r, got, tt.want)
				}
			}
		})
	}
}

// tableWidth, the fast path, returns the same as runeWidth.
func TestTableWidth(t *testing.T) {
	for r := rune(0); r <= 0x10ffff; r++ {
		if got, want := tableWidth(r), runeWidth(r); got != want {
			t.Fatalf("tableWidth(%#x) = %d, runeWidth %d", r, got, want)
		}
	}
}

// An emoji has two columns, with grapheme clusters as well.
func TestEmojiOfClusters(t *testing.T) {
	for _, r := range []rune{0x1f972, 0x1fae0, 0x1f6dc, 0x1fae9, 0x1faea} {
		for _, clusters := range []bool{false, true} {
			if got := joinWidth(r, 0, clusters).width(); got != 2 {
				t.Errorf("%c has %d columns with clusters %v, want 2", r, got, clusters)
			}
		}
	}
}

func TestRuneWidthIsXterms(t *testing.T) {
	var asked []question
	for r := rune(0); r <= 0x10ffff; r++ {
		asked = append(asked, question{r: r})
	}
	for i, a := range askXterm(t, asked) {
		if got := runeWidth(asked[i].r); got != int(a.width) {
			t.Fatalf("runeWidth(%#x) = %d, xterm.js says %d", asked[i].r, got, a.width)
		}
	}
}

// The tables in the tree are those that scripts/oracle makes of the addons of xterm.js.
func TestWidthTableIsGenerated(t *testing.T) {
	got, err := os.ReadFile("width_table.go")
	if err != nil {
		t.Fatal(err)
	}
	if want := xtermWidths(t, nil); !bytes.Equal(got, want) {
		t.Fatal("width_table.go is not what scripts/oracle/widths.mjs prints; go generate it")
	}
	if got, err = os.ReadFile("../../../proxy/internal/web/client/src/emoji.ts"); err != nil {
		t.Fatal(err)
	}
	if want := xtermWidths(t, nil, "emoji"); !bytes.Equal(got, want) {
		t.Fatal("emoji.ts is not what scripts/oracle/widths.mjs emoji prints; go generate it")
	}
}

// A question is put to the width providers of xterm.js, and an answer has their results.
type (
	question struct {
		r      rune
		before joinState
	}
	answer struct {
		width         uint32
		mark, cluster joinState
	}
)

// askXterm returns the providers' answers to all questions. It skips the test if xterm.js is not installed.
func askXterm(t *testing.T, asked []question) []answer {
	t.Helper()
	in := make([]byte, 0, len(asked)*8)
	for _, q := range asked {
		in = binary.LittleEndian.AppendUint32(in, uint32(q.r))
		in = binary.LittleEndian.AppendUint32(in, uint32(q.before))
	}
	out := xtermWidths(t, in, "ask")
	if len(out) != len(asked)*12 {
		t.Fatalf("%d bytes of answers to %d questions", len(out), len(asked))
	}
	answers := make([]answer, len(asked))
	for i := range answers {
		words := out[i*12:]
		answers[i] = answer{
			width:   binary.LittleEndian.Uint32(words),
			mark:    joinState(binary.LittleEndian.Uint32(words[4:])),
			cluster: joinState(binary.LittleEndian.Uint32(words[8:])),
		}
	}
	return answers
}

// xtermWidths runs scripts/oracle/widths.mjs, or skips the test if the script or xterm.js is missing.
func xtermWidths(t *testing.T, in []byte, args ...string) []byte {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "scripts", "oracle")
	missing := func(what string, err error) {
		if os.Getenv("HOLDFAST_REQUIRE_ORACLE") == "1" {
			t.Fatalf("%s is missing and HOLDFAST_REQUIRE_ORACLE=1: %v", what, err)
		}
		t.Skipf("not compared with xterm.js, %s is missing (npm ci in scripts/oracle): %v", what, err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		missing("node", err)
	}
	for _, name := range []string{"addon-unicode11", "addon-unicode-graphemes", "headless"} {
		if _, err := os.Stat(filepath.Join(dir, "node_modules", "@xterm", name)); err != nil {
			missing("@xterm/"+name, err)
		}
	}
	cmd := exec.Command(node, append([]string{filepath.Join(dir, "widths.mjs")}, args...)...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("widths.mjs %v: %v\n%s", args, err, stderr.Bytes())
	}
	return out
}

// BenchmarkRuneWidth must reach 500 million lookups a second for each text.
func BenchmarkRuneWidth(b *testing.B) {
	for _, bb := range []struct{ name, text string }{
		{"ascii", "The quick brown fox jumps over the lazy dog, 0123456789."},
		{"latin", "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich."},
		{"cjk", "色は匂へど散りぬるを我が世誰ぞ常ならむ有為の奥山今日越えて"},
		{"mixed", "ls 日本語 → naïve café e\u0301 😀 Привет 한국어 ═══ ok\u200d\ufe0f 𠀀 end of line"},
	} {
		var text []rune
		for len(text) < 4096 {
			text = append(text, []rune(bb.text)...)
		}
		b.Run(fmt.Sprintf("%s%d", bb.name, len(text)), func(b *testing.B) {
			b.ReportAllocs()
			sum := 0
			for b.Loop() {
				sum += sumWidths(text)
			}
			b.ReportMetric(float64(len(text))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrunes/s")
			if sum == 0 {
				b.Fatal("the text has no width")
			}
		})
	}
}

// sumWidths is a function of its own, because b.Loop keeps the variables of its body in memory, which takes longer
// than a lookup.
func sumWidths(text []rune) (sum int) {
	for _, r := range text {
		sum += runeWidth(r)
	}
	return sum
}
