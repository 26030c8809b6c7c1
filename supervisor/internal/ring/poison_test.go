package ring

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// TestPoisonStays checks that the poison never changes, because programs of two versions adopt each other's rings.
func TestPoisonStays(t *testing.T) {
	const want = "d2e910facf34adfeb056cb7b358768d27dd1b86bd81781d9159043fedd8e079c"
	if got := fmt.Sprintf("%x", sha256.Sum256(poison[:])); got != want {
		t.Errorf("the poison is %s, want %s: another layout needs another version", got, want)
	}
}

func TestPoisonIsNoText(t *testing.T) {
	all := make([]bool, 256)
	for r := rune(0); r <= utf8.MaxRune; r++ {
		for _, b := range utf8.AppendRune(nil, r) {
			all[b] = true
		}
	}
	for b, inText := range all {
		if isPoison := bytes.IndexByte([]byte(poisonBytes), byte(b)) >= 0; isPoison == inText {
			t.Errorf("%#x: in text %v, in the poison %v", b, inText, isPoison)
		}
	}
}

// TestSpoilt compares unpoisonedLen with a comparison of every byte.
func TestSpoilt(t *testing.T) {
	const seed = 1
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := make([]byte, 3*poisonPeriod)
	for range 2000 {
		at, n := rnd.IntN(5*poisonPeriod), rnd.IntN(len(p)+1)
		layPoison(p[:n], at)
		for range rnd.IntN(3) {
			if n > 0 {
				p[rnd.IntN(n)] = byte(rnd.Uint32())
			}
		}
		want := n
		for want > 0 && p[want-1] == poison[(at+want-1)%poisonPeriod] {
			want--
		}
		if got := unpoisonedLen(p[:n], at); got != want {
			t.Fatalf("seed %d: spoilt(%d bytes at %d) = %d, want %d", seed, n, at, got, want)
		}
	}
}
