//go:build linux || darwin

package session

import (
	"strings"
	"testing"
	"testing/synctest"

	"holdfast/protocol"
)

// A session is refused if a successor would not have enough file descriptors to adopt all sessions. The error names
// the limit. The oldest exit records are forgotten to make room.
func TestFileRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 5
		none, _ := fakeTable(t, Config{Files: 24})
		if _, err := none.create("first", bash(""), ""); protocol.CodeOf(err) != protocol.CodeLimitExceeded || !strings.Contains(err.Error(), "24 files, which is too few") {
			t.Errorf("a limit without room for one session: %v", err)
		}
		tb, by := fakeTable(t, Config{Files: filesReserved + most*filesPerSession})
		var all []*Session
		for range most {
			all = append(all, create(t, tb, bash("")))
		}
		_, err := tb.create("more", bash(""), "")
		if protocol.CodeOf(err) != protocol.CodeLimitExceeded || !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
			t.Errorf("one session too many: %v", err)
		}
		for _, s := range all {
			exits(by, s)
		}
		for i := range most {
			create(t, tb, bash(""))
			synctest.Wait()
			room := most*filesPerSession - (i+1)*filesPerSession
			if n, want := len(tb.List("")), i+1+min(most, room/filesPerExited); n != want {
				t.Errorf("after %d new sessions %d are listed, want %d", i+1, n, want)
			}
		}
		if _, err := tb.create("more", bash(""), ""); err == nil || tb.Live() != most {
			t.Errorf("%d live: %v", tb.Live(), err)
		}
	})
}
