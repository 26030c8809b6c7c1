package main

import (
	"testing"
	"time"

	"holdfast/supervisor/internal/slate"
)

// TestNoReads checks that costly reads are refused for a while after a supervisor crashed while it executed one. Each
// successor refuses them. After any other end they are not refused.
func TestNoReads(t *testing.T) {
	sl, err := slate.New("test")
	if err != nil {
		t.Fatal(err)
	}
	defer sl.Close()
	s := &self{slate: sl}
	refused := func(crashed bool) bool { return time.Now().Before(s.noReads(crashed)) }
	if refused(true) {
		t.Error("reads are refused after the crash of a supervisor that executed none")
	}
	s.reading(2)
	if refused(false) {
		t.Error("reads are refused after a supervisor was killed")
	}
	s.reading(1)
	for range 2 { // a second call must have the same result
		if !refused(true) {
			t.Error("reads are not refused after the crash of a supervisor that executed one")
		}
	}
	if !refused(false) {
		t.Error("reads are not refused by the next supervisor, whose own predecessor was killed")
	}
}
