//go:build unix

package machine

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestHurry(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	t.Setenv("GOMAXPROCS", "")
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	before := percent()
	Share()
	calm := Hurry()
	if got := runtime.GOMAXPROCS(0); got != runtime.NumCPU() || percent() != hurryGC {
		t.Errorf("after Hurry: %d processors, GC at %d %%", got, percent())
	}
	calm()
	if got := runtime.GOMAXPROCS(0); got != max(1, runtime.NumCPU()/2) || percent() != before {
		t.Errorf("after the end of the hurry: %d processors, GC at %d %%", got, percent())
	}
}

func TestFiles(t *testing.T) {
	if open, limit, err := Files(); open < 3 || limit < open || err != nil {
		t.Errorf("Files returns %d of %d, %v", open, limit, err)
	}
}

func TestFilesLeft(t *testing.T) {
	before := FilesLeft()
	for range 10 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if after := FilesLeft(); before < 20 || after != before-10 {
		t.Errorf("FilesLeft was %d, and is %d with 10 more open files", before, after)
	}
}
