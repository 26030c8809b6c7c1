package machine

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
)

// WaitsForDisk reports whether a thread of this process waits for a disk, or for another device, and cannot be
// interrupted. The process neither ends nor executes another program before the device answers.
func WaitsForDisk() bool { return waitsForDisk("/proc/self/task") }

func waitsForDisk(tasks string) bool {
	threads, _ := os.ReadDir(tasks)
	return slices.ContainsFunc(threads, func(t os.DirEntry) bool {
		stat, _ := os.ReadFile(filepath.Join(tasks, t.Name(), "stat")) // empty if the thread has ended
		return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" D"))
	})
}
