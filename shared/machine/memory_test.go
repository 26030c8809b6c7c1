package machine

import (
	"os"
	"strings"
	"testing"
)

// A memory file must have no path by which a process could open it.
func TestMemoryFile(t *testing.T) {
	f, err := MemoryFile("holdfast-test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("kept"), 0); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != "kept" {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := os.Stat(f.Name()); err == nil || !strings.Contains(f.Name(), "holdfast-test") {
		t.Errorf("the name of the file is %s, %v", f.Name(), err)
	}
}
