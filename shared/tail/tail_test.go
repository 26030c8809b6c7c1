package tail

import (
	"strings"
	"testing"
)

// A Tail keeps the end of all that was written, and counts all of it as written.
func TestTail(t *testing.T) {
	for _, parts := range [][]string{{""}, {"abc"}, {"abcd", "e"}, {"a", "bcdefg"}, {"abcdefgh"}, {"a", "b", "c", "d", "e", "f"}} {
		got := &Tail{Max: 4}
		for _, part := range parts {
			if n, err := got.Write([]byte(part)); n != len(part) || err != nil {
				t.Errorf("a write of %d bytes returns %d, %v", len(part), n, err)
			}
		}
		all := strings.Join(parts, "")
		if want := all[max(0, len(all)-4):]; got.String() != want {
			t.Errorf("after %q it has %q, want %q", parts, got, want)
		}
	}
}
