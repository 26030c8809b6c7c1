package vt

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The text form of cells gives the same cells, also if it has long runs of equal ones, which are stored and read at
// once.
func TestTextForm(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		term := New(Config{})
		var made []cell
		for range 1 + r.IntN(6) {
			sb := styleID(r.IntN(3)).cell()
			texts := []string{"", "a", "\u2502", "e\u0301", "\u0301", "中", "中\u0301", "\u2764\ufe0f", "\U0001f1eb\U0001f1f7", " "}
			one := []cell{sb}
			if text := texts[r.IntN(len(texts))]; text != "" {
				one[0] |= term.content([]byte(text)) | widthBits(r.IntN(3))
			}
			if r.IntN(2) == 0 {
				one = append(one, styleID(r.IntN(2)).cell()&sb|zeroCell) // of the same style, or of the default
			}
			for range []int{1, 2, 3, 31, 32, 33, 70, 200}[r.IntN(8)] {
				made = append(made, one...)
			}
		}
		text, runs, n, _ := term.encode(nil, nil, made)
		got := term.decode(nil, text, runs)
		for len(made) > 0 && made[len(made)-1] == 0 {
			made = made[:len(made)-1]
		}
		if n != len(made) || !slices.Equal(got, made) {
			t.Fatalf("seed %d: %d columns became %d other ones; the text form is %q with runs %x", seed, len(made), len(got), text, runs)
		}
	}
}
