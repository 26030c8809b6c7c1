//go:build linux || darwin

package session

import (
	"strings"
	"testing"
	"testing/synctest"

	"holdfast/protocol"
)

// A session is refused before its files would leave a successor no room to adopt all, with the
// limit's name; exit records make room, the oldest first.
func TestFileRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 5
		tb, by := fakeTable(t, Config{Files: filesReserved + most*filesPerSession})
		var all []*Session
		for range most {
			all = append(all, create(t, tb, bash("")))
		}
		_, err := tb.Create("more", bash(""), "")
		if protocol.CodeOf(err) != protocol.CodeLimitExceeded || !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
			t.Errorf("one too many: %v", err)
		}
		for _, s := range all {
			exits(by, s)
		}
		for i := range most {
			create(t, tb, bash(""))
			synctest.Wait()
			room := most*filesPerSession - (i+1)*filesPerSession
			if n, want := len(tb.List("")), i+1+min(most, room/filesPerExited); n != want {
				t.Errorf("after %d new ones %d are listed, want %d", i+1, n, want)
			}
		}
		if _, err := tb.Create("more", bash(""), ""); err == nil || tb.Live() != most {
			t.Errorf("%d live: %v", tb.Live(), err)
		}
	})
}
