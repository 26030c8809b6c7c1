//go:build !windows

package slate

import (
	"errors"
	"os"
	"testing"
)

// A duplicate outlives the slate, and the duplicate of a closed slate fails with os.ErrClosed.
func TestDuplicate(t *testing.T) {
	s, err := New("slate")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write([]byte("content")); err != nil {
		t.Fatal(err)
	}
	f, err := s.Duplicate()
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if p, err := ReadLive(f); err != nil || string(p) != "content" {
		t.Errorf("the duplicate has %q: %v", p, err)
	}
	if _, err := s.Duplicate(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed slate: %v", err)
	}
}
