package apiserver

import (
	"testing"

	"holdfast/protocol"
)

// A process that has used up its share leaves room for others, and a process without connections is forgotten.
func TestQuota(t *testing.T) {
	q := Quota{Max: 3, MaxOfOne: 2}
	for i, tt := range []struct {
		pid  int
		room bool
	}{{7, true}, {7, true}, {7, false}, {8, true}, {9, false}} {
		err := q.Check(tt.pid)
		if (err == nil) != tt.room || err != nil && protocol.CodeOf(err) != protocol.CodeLimitExceeded {
			t.Errorf("connection %d of process %d: %v, want room %t", i, tt.pid, err, tt.room)
		}
		if tt.room {
			q.Add(tt.pid)
		}
	}
	for _, pid := range []int{7, 7, 8} {
		q.Remove(pid)
	}
	if q.Count() != 0 || len(q.byPID) != 0 {
		t.Errorf("%d connections of processes %v are not forgotten", q.Count(), q.byPID)
	}
}
