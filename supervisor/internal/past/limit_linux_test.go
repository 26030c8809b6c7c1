package past

import (
	"errors"
	"syscall"
	"testing"

	"holdfast/shared/testkit"
)

// A file system without room returns an error, and the output that was written before stays exact.
func TestNoRoom(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	testkit.LimitFiles(t, 100_000)
	s := New(t.TempDir(), nil)
	w := open(t, s, Full)
	var end uint64
	failed := 0
	for end < 2<<20 {
		err := w.Append(end, textAt(end, 1000))
		if end += 1000; err == nil {
			continue
		}
		if !errors.Is(err, syscall.EFBIG) {
			t.Fatal(err)
		}
		failed++
		testkit.Must(t, w.Sync())
		if w.syncedTo() != w.End() || w.End() >= end {
			t.Fatalf("the life is durable up to %d, its end is %d", w.syncedTo(), w.End())
		}
		testkit.Must(t, lastPiece(reader(t, s).Range(0, end)))
		if failed%2 == 0 {
			testkit.Must(t, w.Keyframe(end, []byte("k"))) // in another file
		}
	}
	if err := w.Close(); err != nil && !errors.Is(err, syscall.EFBIG) {
		t.Fatal(err)
	}
	if failed < 2 {
		t.Fatalf("%d writes failed", failed)
	}
	readAll(t, s)
	r := reader(t, s)
	gaps, err := r.Gaps()
	testkit.Must(t, err)
	if len(gaps) == 0 {
		t.Error("no gap is recorded")
	}
}
