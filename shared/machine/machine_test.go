//go:build unix

package machine

import (
	"os"
	"testing"
)

func TestFiles(t *testing.T) {
	if open, limit, err := Files(); open < 3 || limit < open || err != nil {
		t.Errorf("%d of %d, %v", open, limit, err)
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
		t.Errorf("%d files are left, and with 10 more open %d", before, after)
	}
}
