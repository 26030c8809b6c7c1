package vttest

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand" // not v2, because the inputs must stay those of earlier measurements
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// An Input is terminal output for measurements: the output of a program on a screen of 80
// columns and 24 rows, with the carriage returns that a PTY adds.
type Input struct {
	Name string
	Make func() []byte // returns the same bytes every time
}

// inputBytes is the length of an Input. An input may be longer by a page.
const inputBytes = 8 << 20

// Inputs is the output of ordinary programs.
var Inputs = []Input{
	{"plain", plainInput},
	{"source", sourceInput},
	{"sgr", sgrInput},
	{"tui", func() []byte { return tuiInput(80, 24) }},
	{"utf8", utf8Input},
	{"long", longInput},
	{"regions", func() []byte { return regionsInput(24) }},
	{"dense", func() []byte { return denseInput(80, 24) }},
}

// words are the words in the lines of the inputs.
var words = strings.Fields(`the quick brown fox jumps over lazy dog func return error if nil package import context
string bytes buffer reader writer terminal screen cursor scrollback session daemon client server socket frame message
handler config version build test pass fail warning note compile link object module cache index token parser state
0x1f 42 1024 65535 3.14159 /usr/lib/x86_64-linux-gnu /home/dev/project/src/main.go -rw-r--r-- drwxr-xr-x root`)

func anyOf[T any](r *rand.Rand, of []T) T { return of[r.Intn(len(of))] }

// seeded returns the random numbers for an input.
func seeded(seed int64) *rand.Rand { return rand.New(rand.NewSource(seed)) }

// plainInput returns lines of ASCII with 60 to 80 columns.
func plainInput() []byte {
	r := seeded(1)
	var b bytes.Buffer
	for b.Len() < inputBytes {
		b.WriteString(wordLine(r, 60+r.Intn(21)))
		b.WriteString("\r\n")
	}
	return b.Bytes()
}

func wordLine(r *rand.Rand, n int) string {
	var line []byte
	for len(line) < n {
		if len(line) > 0 {
			line = append(line, ' ')
		}
		line = append(line, anyOf(r, words)...)
	}
	return string(line[:n])
}

// sourceInput returns Go's own source, which has tabs and short lines. It is the only input
// that differs between versions of Go.
func sourceInput() []byte {
	r := seeded(2)
	files := sourceFiles()
	r.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	var b bytes.Buffer
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil || bytes.ContainsFunc(data, func(ch rune) bool { return ch >= utf8.RuneSelf }) {
			continue
		}
		b.Write(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))
		if b.Len() > inputBytes {
			break
		}
	}
	return b.Bytes()
}

// sourceFiles returns the names of the files, sorted.
func sourceFiles() (names []string) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		panic("vttest: go env: " + err.Error())
	}
	dir := filepath.Join(strings.TrimSpace(string(root)), "src")
	_ = filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".go") && !strings.Contains(name, "testdata") && !strings.Contains(name, "tables") {
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names
}

// sgrInput returns text with a style for nearly every word, as coloured listings and compilers
// print it.
func sgrInput() []byte {
	r := seeded(3)
	var b bytes.Buffer
	for b.Len() < inputBytes {
		for col := 0; ; {
			w := anyOf(r, words)
			if col += len(w) + 1; col > 80 {
				break
			}
			colored(&b, r, w)
			b.WriteByte(' ')
		}
		b.WriteString("\r\n")
	}
	return b.Bytes()
}

func colored(b *bytes.Buffer, r *rand.Rand, w string) {
	switch r.Intn(8) {
	case 0:
		fmt.Fprintf(b, "\x1b[%dm%s\x1b[0m", 30+r.Intn(8), w)
	case 1:
		fmt.Fprintf(b, "\x1b[1;%dm%s\x1b[0m", 31+r.Intn(6), w)
	case 2:
		fmt.Fprintf(b, "\x1b[01;%dm%s\x1b[m", 90+r.Intn(8), w)
	case 3:
		fmt.Fprintf(b, "\x1b[38;5;%dm%s\x1b[39m", r.Intn(256), w)
	case 4:
		fmt.Fprintf(b, "\x1b[38;2;%d;%d;%dm%s\x1b[39m", r.Intn(256), r.Intn(256), r.Intn(256), w)
	case 5:
		fmt.Fprintf(b, "\x1b[48;5;%d;38;5;15m%s\x1b[0m", 16+r.Intn(216), w)
	case 6:
		fmt.Fprintf(b, "\x1b[4m%s\x1b[24m", w)
	default:
		b.WriteString(w)
	}
}

// tuiInput redraws a full screen in three ways in turn: as htop does, as an editor does, and
// by moves and edits within rows.
func tuiInput(cols, rows int) []byte {
	r := seeded(4)
	var b bytes.Buffer
	b.WriteString("\x1b[?1049h\x1b[22;0;0t\x1b[?1h\x1b=\x1b[?25l\x1b[H\x1b[2J")
	for frame := 1; b.Len() < inputBytes; frame++ {
		switch frame % 4 {
		case 0, 1:
			meters(&b, r, cols, rows)
		case 2:
			editor(&b, r, cols, rows)
		case 3:
			for range 120 {
				edit(&b, r, cols, rows)
			}
		}
	}
	return b.Bytes()
}

func meters(b *bytes.Buffer, r *rand.Rand, cols, rows int) {
	for y := 1; y <= min(5, rows); y++ {
		n := r.Intn(cols/2 - 8)
		fmt.Fprintf(b, "\x1b[%d;3H\x1b[36m%2d\x1b[1m\x1b[39m[\x1b[22m\x1b[32m%s\x1b[31m%s\x1b[90m%*s%5.1f%%\x1b[39m\x1b[1m]\x1b[m",
			y, y, strings.Repeat("|", n*2/3), strings.Repeat("|", n/3), cols/2-8-n, "", r.Float64()*100)
	}
	b.WriteString("\x1b[7;1H\x1b[30m\x1b[42m  PID USER      PRI  NI  VIRT   RES   SHR S CPU% MEM%   TIME+  \x1b[30m\x1b[46mCommand\x1b[K\x1b[m")
	for y := 8; y < rows; y++ {
		fmt.Fprintf(b, "\x1b[%d;1H\x1b[%dm%5d \x1b[mroot       20   0 \x1b[36m%4dM \x1b[m%3d\x1b[36mM\x1b[m  8192 S %5.1f %5.1f  0:%02d.%02d \x1b[32m%s\x1b[K\x1b[m",
			y, 30+r.Intn(8), r.Intn(99999), r.Intn(9999), r.Intn(999), r.Float64()*100, r.Float64()*10, r.Intn(60), r.Intn(100), anyOf(r, words))
	}
	fmt.Fprintf(b, "\x1b[%d;1HF1\x1b[30m\x1b[46mHelp  \x1b[mF2\x1b[30m\x1b[46mSetup \x1b[mF10\x1b[30m\x1b[46mQuit\x1b[K\x1b[m", rows)
}

// editor scrolls a region by a line, and prints the new line and the status line.
func editor(b *bytes.Buffer, r *rand.Rand, cols, rows int) {
	for k := range 12 {
		y := rows - 1
		fmt.Fprintf(b, "\x1b[1;%dr", rows-1)
		if k%3 == 0 {
			y = 1
			b.WriteString("\x1b[H\x1bM")
		} else {
			fmt.Fprintf(b, "\x1b[%d;1H\n", rows-1)
		}
		fmt.Fprintf(b, "\x1b[1;%dr", rows)
		fmt.Fprintf(b, "\x1b[%d;1H\x1b[38;5;130m%4d \x1b[38;5;4mfunc\x1b[m %s(\x1b[38;5;2mint\x1b[m) {\x1b[K", y, r.Intn(9999), anyOf(r, words))
		fmt.Fprintf(b, "\x1b[%d;%dH%d,%d\x1b[9C%d%%\x1b[K\x1b[%d;%dH",
			rows, cols-18, r.Intn(9999), r.Intn(80), r.Intn(100), 1+r.Intn(rows-1), 1+r.Intn(cols))
	}
}

func edit(b *bytes.Buffer, r *rand.Rand, cols, rows int) {
	switch r.Intn(8) {
	case 0:
		fmt.Fprintf(b, "\x1b[%dA", 1+r.Intn(5))
	case 1:
		fmt.Fprintf(b, "\x1b[%dB", 1+r.Intn(5))
	case 2:
		fmt.Fprintf(b, "\x1b[%dC%s", 1+r.Intn(20), anyOf(r, words))
	case 3:
		fmt.Fprintf(b, "\r\x1b[%dG%c", 1+r.Intn(cols), 'a'+r.Intn(26))
	case 4:
		fmt.Fprintf(b, "\x1b[%d@%c", 1+r.Intn(4), 'A'+r.Intn(26))
	case 5:
		fmt.Fprintf(b, "\x1b[%dP", 1+r.Intn(4))
	case 6:
		fmt.Fprintf(b, "\x1b[%d;%dH\x1b[1m%s\x1b[22m", 1+r.Intn(rows), 1+r.Intn(cols), anyOf(r, words))
	case 7:
		fmt.Fprintf(b, "\x1b[%dX\x1b[K", 1+r.Intn(9))
	}
}

// Characters of utf8Input, besides words.
var (
	hanRunes = []rune("的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生自会那后能对着事其里所去行过家十用发天如然作方成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从日本語テストひらがなカタカナ한국어텍스트")
	accented = []string{"naïve", "café", "Ünïcödé", "привет", "мир", "Ελλάδα", "łódź", "façade", "smörgåsbord", "žluťoučký"}
	boxes    = []string{"├──", "└──", "│  ", "┌─┬─┐", "█▓▒░", "…", "→", "✓", "✗", "•"}
	emojis   = []string{"😀", "🚀", "👍🏽", "👨‍👩‍👧‍👦", "❤️", "🇫🇷", "🇯🇵", "⚠️", "🎉", "✅", "🧑‍💻", "1️⃣"}
	combined = []string{"e\u0301", "a\u0308", "o\u0302\u0323", "n\u0303", "Z\u0351\u036b", "ก\u0e33", "नि", "க்"}
)

// utf8Input returns text of which one half is CJK, and the other half accents, boxes, emoji
// and combining marks.
func utf8Input() []byte {
	r := seeded(5)
	var b bytes.Buffer
	for b.Len() < inputBytes {
		for col := 0; col < 72; col++ {
			switch k := r.Intn(20); {
			case k < 10:
				n := 2 + r.Intn(6)
				for range n {
					b.WriteRune(anyOf(r, hanRunes))
				}
				col += 2 * n
			case k < 13:
				col += writeWord(&b, anyOf(r, accented))
			case k < 15:
				col += writeWord(&b, anyOf(r, boxes))
			case k < 17:
				b.WriteString(anyOf(r, emojis))
				col += 2
			case k < 18:
				b.WriteString(anyOf(r, combined))
				col++
			default:
				col += writeWord(&b, anyOf(r, words))
			}
			b.WriteByte(' ')
		}
		b.WriteString("\r\n")
	}
	return b.Bytes()
}

func writeWord(b *bytes.Buffer, w string) (cols int) {
	b.WriteString(w)
	return utf8.RuneCountInString(w)
}

// longInput returns one line without an end.
func longInput() []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/{}[]\":,"
	r := seeded(6)
	b := make([]byte, inputBytes)
	for i := range b {
		b[i] = letters[r.Intn(len(letters))]
	}
	return b
}

// regionsInput scrolls within regions at the top, at the bottom and in the middle.
func regionsInput(rows int) []byte {
	r := seeded(7)
	var b bytes.Buffer
	for b.Len() < inputBytes {
		switch r.Intn(3) {
		case 0:
			fmt.Fprintf(&b, "\x1b[1;%dr\x1b[%d;1H", rows-1, rows-1)
		case 1:
			fmt.Fprintf(&b, "\x1b[2;%dr\x1b[%d;1H", rows, rows)
		case 2:
			fmt.Fprintf(&b, "\x1b[%d;%dr\x1b[%d;1H", rows/4+1, rows/2+1, rows/2+1)
		}
		b.WriteString(strings.Repeat("y\r\n", 1000))
		b.WriteString("\x1b[r")
	}
	return b.Bytes()
}

// denseInput gives every cell of a screen a style of its own.
func denseInput(cols, rows int) []byte {
	var b bytes.Buffer
	b.WriteString("\x1b[?1049h")
	for frame := 0; b.Len() < inputBytes; frame++ {
		b.WriteString("\x1b[H")
		for y := 1; y <= rows; y++ {
			for x := 1; x <= cols; x++ {
				i := x + y + frame
				fmt.Fprintf(&b, "\x1b[38;5;%d;48;5;%d;1;3;4m%c", i%156+100, 255-i%156, 'A'+frame%('z'-'A'+1))
			}
		}
	}
	return b.Bytes()
}
