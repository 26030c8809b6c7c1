package machine

import (
	"os"
	"runtime"
	"testing"
)

func TestReserveThreads(t *testing.T) {
	ReserveThreads()
	tasks, err := os.ReadDir("/proc/self/task")
	if want := runtime.GOMAXPROCS(0) + spareThreads; err != nil || len(tasks) < want {
		t.Errorf("the process has %d threads, %v, want at least %d", len(tasks), err, want)
	}
}
