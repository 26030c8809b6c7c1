package session

import (
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// A session starts under a limit for the length of files, and if the limit is too small for its ring, the error says so.
func TestFileSizeLimit(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	tb := newTable(t, Config{})
	lift := testkit.LimitFiles(t, 100_000)
	_, err := tb.create("", bash("exit"), "")
	e := wantCode(t, "Create", err, protocol.CodeSpawnFailed)
	if !strings.Contains(e.Message, "at most 100000 bytes") || !strings.Contains(e.Message, "ulimit -f") {
		t.Errorf("got %q, want the limit and what to do", e.Message)
	}
	lift()
	testkit.LimitFiles(t, 8<<20)
	if exit := ended(t, create(t, tb, bash("exit 3"))); exit.ExitCode != 3 {
		t.Errorf("got %+v, want code 3", exit)
	}
}
