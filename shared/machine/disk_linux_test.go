package machine

import (
	"errors"
	"os"
	"testing"

	"holdfast/shared/testkit"
)

func TestWaitsForDisk(t *testing.T) {
	tasks := t.TempDir()
	for thread, stat := range map[string]string{"1": "1 (a) D) R 0 1", "2": "2 (supervisor) S 0 1"} {
		testkit.Must(t, errors.Join(os.Mkdir(tasks+"/"+thread, 0o700), os.WriteFile(tasks+"/"+thread+"/stat", []byte(stat), 0o600)))
	}
	if err := os.Mkdir(tasks+"/3", 0o700); err != nil { // a thread that has just ended
		t.Fatal(err)
	}
	if waitsForDisk(tasks) {
		t.Error("threads that run or sleep count as waiting")
	}
	testkit.Must(t, os.WriteFile(tasks+"/3/stat", []byte("3 (supervisor) D 0 1"), 0o600))
	if !waitsForDisk(tasks) {
		t.Error("a thread that waits is not found")
	}
}

func TestSyncDir(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/proc"} { // the second one is of a file system that cannot do it
		if err := SyncDir(dir); err != nil {
			t.Error(err)
		}
	}
}
