package apiserver

import (
	"math/rand/v2"
	"testing"
)

// Each event number has a place of its own, from which the number can be decoded. The order of places does not tell
// the order of the numbers.
func TestPlaces(t *testing.T) {
	p, q := newPlaces("one"), newPlaces("another")
	seen := map[uint64]bool{}
	ascending := 0
	last := uint64(0)
	const numbers = 10_000
	for seq := range uint64(numbers) {
		at := p.encode(seq)
		if p.decode(at) != seq {
			t.Fatalf("%d has the place %d, which is decoded as %d", seq, at, p.decode(at))
		}
		if at >= 1<<53 || seen[at] || seq > 0 && at == q.encode(seq) || (at == 0) != (seq == 0) {
			t.Fatalf("%d has the place %d", seq, at)
		}
		seen[at] = true
		if at > last {
			ascending++
		}
		last = at
	}
	if ascending < numbers*4/10 || ascending > numbers*6/10 {
		t.Errorf("of %d places %d are higher than the one before", numbers, ascending)
	}
	for range numbers { // a client may send any place
		at := rand.Uint64()
		if seq := p.decode(at); seq >= 1<<52 {
			t.Fatalf("place %d is decoded as %d", at, seq)
		}
	}
}
