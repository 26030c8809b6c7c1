package main

import (
	"testing"
	"time"

	"holdfast/supervisor/internal/slate"
)

// TestNoReads: dear reads are refused for a while after a supervisor that worked on one has died by
// itself, by each successor, and not after any other end.
func TestNoReads(t *testing.T) {
	sl, err := slate.New("test")
	if err != nil {
		t.Fatal(err)
	}
	defer sl.Close()
	s := &self{slate: sl}
	refused := func(crashed bool) bool { return time.Now().Before(s.noReads(crashed)) }
	if refused(true) {
		t.Error("refused after the death of one that worked on none")
	}
	s.reading(2)
	if refused(false) {
		t.Error("refused after one that was killed")
	}
	s.reading(1)
	for range 2 { // also of the second one to ask
		if !refused(true) {
			t.Error("not refused after the death of one that worked on a read")
		}
	}
	if !refused(false) {
		t.Error("not refused by the next one, whose own predecessor was killed")
	}
}
