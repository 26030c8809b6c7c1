//go:build linux

package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/protocol"
)

// Sessions without limits use up the memory of the whole machine repeatedly. The kernel may kill only
// programs of those sessions, never the keeper, the supervisor or a process of another session.
func TestOutOfMemory(t *testing.T) {
	if os.Getenv("HOLDFAST_LONG") == "" && !*inside {
		t.Skip("long mode: set HOLDFAST_LONG=1")
	}
	inMachine(t, 512, 9*time.Minute, outOfMemory)
}

func outOfMemory(t *testing.T) {
	const times, sessions = 50, 5
	m := newMachine(t)
	for i := range sessions {
		m.spawn(protocol.SessionID(fmt.Sprintf("s%d", i)), protocol.Limits{}, "sh", "-c", answers)
	}
	ours := processes(filepath.Join(cgroups, "holdfast"))
	for i := range times {
		id := protocol.SessionID(fmt.Sprintf("hog%d", i))
		m.spawn(id, protocol.Limits{}, "sh", "-c", "dd if=/dev/zero of=/dev/null bs=400M; exit 4")
		e := m.awaitEnd(id)
		if e.Cage == nil || e.Cage.OOMKills == 0 || e.Cage.OOMs > 0 {
			t.Errorf("%s ended with %+v, %+v", id, e, e.Cage)
		}
		m.echoes(sessions, fmt.Sprintf("after-%d", i))
	}
	now := processes(filepath.Join(cgroups, "holdfast"))
	for _, pid := range ours {
		if score(pid) == "" {
			t.Errorf("keeper or supervisor %d has ended: the processes were %v; now they are %v", pid, ours, now)
		}
	}
	st, err := m.c.Status(t.Context())
	if err != nil || st.Supervisor == nil || st.Supervisor.Keeper == nil || st.Supervisor.Keeper.Starts != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	t.Logf("memory ran out %d times; keeper and supervisor are the same processes, and %d sessions echo", times, sessions)
}
