//go:build !windows

package slate

import (
	"errors"
	"os"
	"testing"

	"holdfast/shared/testkit"
)

// A duplicate outlives the slate, and the duplicate of a closed slate fails with os.ErrClosed.
func TestDuplicate(t *testing.T) {
	s, err := New("slate")
	testkit.Must(t, err)
	testkit.Must(t, s.Write([]byte("content")))
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
