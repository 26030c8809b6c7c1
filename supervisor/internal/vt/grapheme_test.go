package vt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// clusterTexts are texts with the widths of their cells, in the order in which the cells begin. clusters are those of
// grapheme clusters. marks are those of the Unicode 11 provider, in which a character without width that begins a
// text is a cell of width 0.
var clusterTexts = []struct {
	name            string
	text            string
	clusters, marks []int
}{
	{"ASCII", "a#1", []int{1, 1, 1}, []int{1, 1, 1}},
	{"ideographs", "日本", []int{2, 2}, []int{2, 2}},
	{"accent", "e\u0301x", []int{1, 1}, []int{1, 1}},
	{"two accents", "e\u0301\u0323", []int{1}, []int{1}},
	{"accent on a wide one", "日\u0301", []int{2}, []int{2}},
	{"accent on nothing", "\u0301a", []int{1, 1}, []int{0, 1}},
	{"two accents on nothing", "\u0301\u0302", []int{1}, []int{0, 0}},
	{"face", "😀", []int{2}, []int{2}},
	{"thumb of a skin tone", "👍🏽", []int{2}, []int{2, 2}},
	{"family", "👨\u200d👩\u200d👧\u200d👦", []int{2}, []int{2, 2, 2, 2}},
	{"rainbow flag", "🏳\ufe0f\u200d🌈", []int{2}, []int{1, 2}},
	{"pilot", "👩🏽\u200d✈\ufe0f", []int{2}, []int{2, 2, 1}},
	{"heart as text", "❤", []int{1}, []int{1}},
	{"heart as emoji", "❤\ufe0f", []int{2}, []int{1}},
	{"heart asked to be text", "❤\ufe0e", []int{1}, []int{1}},
	{"keycap", "1\ufe0f\u20e3", []int{2}, []int{1}},
	{"joiner and a letter", "a\u200db", []int{1, 1}, []int{1, 1}},
	{"joiner after a letter, GB11 is loose", "a\u200d😀", []int{2}, []int{1, 2}},
	{"flag", "🇩🇪", []int{2}, []int{1, 1}},
	{"two flags", "🇩🇪🇫🇷", []int{2, 2}, []int{1, 1, 1, 1}},
	{"flag and a half", "🇩🇪🇫", []int{2, 1}, []int{1, 1, 1}},
	{"half a flag and text", "🇩a", []int{1, 1}, []int{1, 1}},
	{"flag of Scotland", "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", []int{2}, []int{2}},
	{"Hangul by letters", "한", []int{2}, []int{2}},
	{"two vowels", "\u1112\u1161\u1161", []int{2}, []int{2}},
	{"Hangul syllables", "한국", []int{2, 2}, []int{2, 2}},
	{"Hangul syllable and a consonant", "가\u11a8", []int{2}, []int{2}},
	{"Hangul syllable that has its consonant", "각\u1161", []int{2, 1}, []int{2}},
	{"Devanagari, no conjuncts", "क्षि", []int{1, 1}, []int{1, 1, 1}},
	{"Devanagari spacing mark", "का", []int{1}, []int{1, 1}},
	{"Tamil", "நி", []int{1}, []int{1, 1}},
	{"Thai", "กำ", []int{1}, []int{1, 1}},
	{"Arabic number sign joins what follows", "\u0600١", []int{1}, []int{0, 1}},
}

func TestJoinWidth(t *testing.T) {
	for _, tt := range clusterTexts {
		t.Run(tt.name, func(t *testing.T) {
			if got := cellWidths(tt.text, true); !slices.Equal(got, tt.clusters) {
				t.Errorf("clusters of %+q are %d wide, want %d", tt.text, got, tt.clusters)
			}
			if got := cellWidths(tt.text, false); !slices.Equal(got, tt.marks) {
				t.Errorf("marks of %+q are %d wide, want %d", tt.text, got, tt.marks)
			}
		})
	}
}

// cellWidths prints text and returns the widths of its cells.
func cellWidths(text string, clusters bool) []int {
	var cells []int
	var state joinState
	for _, r := range text {
		state = joinWidth(r, state, clusters)
		if state.joins() {
			cells = cells[:len(cells)-1]
		}
		cells = append(cells, state.width())
	}
	return cells
}

// The fast paths of joinWidth return the same states as its table.
func TestJoinStates(t *testing.T) {
	for _, tt := range []struct {
		name     string
		r        rune
		before   joinState
		clusters bool
		want     joinState
	}{
		{"ASCII after nothing", 'a', 0, true, 2},
		{"ASCII after ASCII", 'a', 2, true, 2},
		{"ASCII after a pair", 'a', 32<<3 | 2<<1 | 1, true, 0xfffff0<<3 | 2},
		{"ASCII after that", 'a', 0xfffff0<<3 | 2, true, 0xfffff0<<3 | 2},
		{"ASCII after another mode's state", 'a', 32<<3 | 2<<1 | 1, false, 2},
		{"ideograph after nothing", '日', 0, true, 0x30<<3 | 2<<1},
		{"emoji selector after nothing", 0xfe0f, 0, true, 0x22<<3 | 2<<1},
		{"accent after ASCII", 0x301, 2, true, 18<<3 | 1<<1 | 1},
		{"accent after no width", 0x301, 8, false, 0},
		{"accent after an ideograph", 0x301, 4, false, 5},
		{"no code point", 0x110000, 0, true, 2},
		{"negative", -1, 0, true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := joinWidth(tt.r, tt.before, tt.clusters); got != tt.want {
				t.Fatalf("joinWidth(%#x, %#x, %v) = %#x, want %#x", tt.r, tt.before, tt.clusters, got, tt.want)
			}
		})
	}
}

func TestJoinWidthDoesNotAllocate(t *testing.T) {
	text := []rune("e\u0301 日本 👨\u200d👩 🇩🇪")
	for _, clusters := range []bool{false, true} {
		if n := testing.AllocsPerRun(100, func() {
			var state joinState
			for _, r := range text {
				state = joinWidth(r, state, clusters)
			}
		}); n != 0 {
			t.Fatalf("clusters %v: %v allocations", clusters, n)
		}
	}
}

// joinWidth agrees with xterm.js for every code point, at the beginning of a text and after one character of each
// kind.
func TestJoinWidthIsXtermsForEveryCodePoint(t *testing.T) {
	befores := []joinState{0}
	for _, r := range sampleRunes() {
		befores = append(befores, joinWidth(r, 0, true), joinWidth(r, 2, true))
	}
	slices.Sort(befores)
	befores = slices.Compact(befores)

	// At the beginning of a text every code point is compared, because that shows the whole table. After other
	// characters the result depends on kinds alone, so every 31st code point, from another first one each time,
	// suffices.
	var asked []question
	for i, before := range befores {
		step, first := rune(31), rune(i%31)
		if before == 0 {
			step, first = 1, 0
		}
		for r := first; r <= 0x10ffff; r += step {
			asked = append(asked, question{r, before})
		}
	}
	compareJoins(t, asked)
}

// joinWidth agrees with xterm.js for each kind of character in every state that a text can lead to.
func TestJoinWidthIsXtermsInEveryState(t *testing.T) {
	runes := sampleRunes()
	for _, clusters := range []bool{false, true} {
		reached := []joinState{0}
		var asked []question
		for i := 0; i < len(reached); i++ {
			for _, r := range runes {
				asked = append(asked, question{r, reached[i]})
				if after := joinWidth(r, reached[i], clusters); !slices.Contains(reached, after) {
					reached = append(reached, after)
				}
			}
		}
		t.Logf("clusters %v: %d states", clusters, len(reached))
		compareJoins(t, asked)
	}
}

// joinWidth agrees with xterm.js for the texts above and for random ones. Each state is the result of the one before.
func TestJoinWidthIsXtermsForTexts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	runes := sampleRunes()

	var texts [][]rune
	for _, tt := range clusterTexts {
		texts = append(texts, []rune(tt.text))
	}
	for range 20000 {
		text := make([]rune, 1+rnd.IntN(24))
		for i := range text {
			switch rnd.IntN(8) {
			case 0:
				text[i] = rnd.Int32N(0x110000)
			case 1:
				text[i] = rnd.Int32N(0x3000)
			case 2:
				text[i] = 0x1f000 + rnd.Int32N(0x1000)
			default:
				text[i] = runes[rnd.IntN(len(runes))]
			}
		}
		texts = append(texts, text)
	}
	var asked []question
	for _, text := range texts {
		for _, clusters := range []bool{false, true} {
			var state joinState
			for _, r := range text {
				asked = append(asked, question{r, state})
				state = joinWidth(r, state, clusters)
			}
		}
	}
	compareJoins(t, asked)
}

// sampleRunes returns a few characters of each kind in the table of clusters.
func sampleRunes() []rune {
	runes := []rune{'a', '~', 0x7f, 0x200d, 0xfe0f, 0xfe0e}
	seen := make(map[uint32]int)
	for r := rune(0); r <= 0x10ffff; r++ {
		// U+0020 to U+007E have a fast path, and are in the list above.
		if info := clusterInfo(r); (r < 0x20 || r > 0x7e) && seen[info] < 2 {
			seen[info]++
			runes = append(runes, r)
		}
	}
	return runes
}

// compareJoins compares joinWidth with xterm.js, with and without clusters.
func compareJoins(t *testing.T, asked []question) {
	t.Helper()
	for i, a := range askXterm(t, asked) {
		q := asked[i]
		if got := joinWidth(q.r, q.before, false); got != a.mark {
			t.Fatalf("joinWidth(%#x, %#x, false) = %#x, xterm.js says %#x", q.r, q.before, got, a.mark)
		}
		if got := joinWidth(q.r, q.before, true); got != a.cluster {
			t.Fatalf("joinWidth(%#x, %#x, true) = %#x, xterm.js says %#x", q.r, q.before, got, a.cluster)
		}
	}
}

func BenchmarkJoinWidth(b *testing.B) {
	for _, bb := range []struct{ name, text string }{
		{"ascii", "The quick brown fox jumps over the lazy dog, 0123456789."},
		{"mixed", "ls 日本語 → naïve café e\u0301 😀 Привет 한국어 ═══ ok\u200d\ufe0f 𠀀 end of line"},
	} {
		text := []rune(bb.text)
		for _, clusters := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/clusters=%v", bb.name, clusters), func(b *testing.B) {
				b.ReportAllocs()
				sum := 0
				for b.Loop() {
					sum += sumJoined(text, clusters)
				}
				b.ReportMetric(float64(len(text))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrunes/s")
				if sum == 0 {
					b.Fatal("the text has no width")
				}
			})
		}
	}
}

func sumJoined(text []rune, clusters bool) (sum int) {
	var state joinState
	for _, r := range text {
		state = joinWidth(r, state, clusters)
		sum += state.width()
	}
	return sum
}
