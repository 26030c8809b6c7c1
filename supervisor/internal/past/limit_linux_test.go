package past

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

const limitVariable = "HOLDFAST_PAST_LIMIT"

// A file system without room returns an error, and what was written before stays exact. The
// kernel's limit of the length of a file stands for the full disk: it writes a part, as a full
// disk does.
func TestNoRoom(t *testing.T) {
	dir := os.Getenv(limitVariable)
	if dir == "" {
		dir = t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run", "^TestNoRoom$", "-test.v")
		cmd.Env = append(os.Environ(), limitVariable+"="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGXFSZ)
	const limit = 100_000
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}))
	s := New(dir)
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
		must(t, w.Sync())
		if w.Synced() != w.End() || w.End() >= end {
			t.Fatalf("it is durable up to %d, its end is %d", w.Synced(), w.End())
		}
		must(t, lastPiece(reader(t, s).Range(0, end)))
		if failed%2 == 0 {
			must(t, w.Keyframe(end, []byte("k"))) // in another file
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
	must(t, err)
	if len(gaps) == 0 {
		t.Error("no gap is recorded")
	}
}
