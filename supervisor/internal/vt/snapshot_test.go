package vt

import (
	"bytes"
	"fmt"
	"testing"
)

// Two snapshots of one screen are the same bytes: proxies compare what they see.
func TestSnapshotIsAlwaysTheSame(t *testing.T) {
	term := New(Config{})
	for i := range 16 {
		term.Write(fmt.Appendf(nil, "\x1b]4;%d;#%06x\a", i, i*4711))
	}
	first := term.Snapshot()
	for range 50 {
		if again := term.Snapshot(); !bytes.Equal(again, first) {
			t.Fatalf("%q, then %q", first, again)
		}
	}
}
