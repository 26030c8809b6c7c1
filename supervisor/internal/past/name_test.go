package past

import (
	"os"
	"path/filepath"
	"testing"

	"holdfast/shared/testkit"
)

// A file whose name claims more output than a segment can have is no segment, and a writer continues where the output ends.
func TestNameOfTooLongSegment(t *testing.T) {
	s := New(t.TempDir(), nil)
	w := open(t, s, Full)
	testkit.Must(t, w.Append(0, textAt(0, 1000)))
	testkit.Must(t, w.Close())
	if err := os.WriteFile(filepath.Join(w.dir, "0000000000000002000-4000000000000000000"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w = open(t, s, Full)
	if w.End() != 1000 {
		t.Errorf("the writer continues at %d, want 1000", w.End())
	}
	testkit.Must(t, w.Append(1000, textAt(1000, 1000)))
	testkit.Must(t, w.Close())
}
