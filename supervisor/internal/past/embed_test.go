//go:build unix

package past

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holdfast/shared/testkit"
)

// Output may contain blocks, for example if a user prints a segment. They are no blocks of the segment that has this output:
// a writer must not continue behind them, because it would drop all output up to there.
func TestBlockWithinOutput(t *testing.T) {
	const part = 1000
	for _, mode := range []Mode{Full, Screen} {
		s, _ := newStore(t)
		w := open(t, s, mode)
		testkit.Must(t, w.Append(0, textAt(0, part)), w.Keyframe(part, []byte("keyframe")), w.Append(part, textAt(part, part)), w.Sync())
		noise := make([]byte, 3*part)
		_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // it cannot be compressed, so it is in the file as it is
		printed := slices.Concat(noise[:part], appendBlock(nil, nil, kindOutput, 1<<20, noise[part:2*part]), noise[2*part:])
		testkit.Must(t, w.Append(2*part, printed), w.Close())
		path := filepath.Join(w.dir, openName(part))
		whole, err := os.ReadFile(path)
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(path, whole[:len(whole)-part/2], 0o600)) // the writer was killed before the block was whole
		w = open(t, s, mode)
		if w.End() != 2*part {
			t.Errorf("%s: the writer continues at %d, want %d", mode, w.End(), 2*part)
		}
		testkit.Must(t, w.Append(2*part, printed), w.Sync())
		if got := names(t, w.dir); !slices.Contains(got, openName(part)) {
			t.Errorf("%s: the files are %q", mode, got)
		}
	}
}

// If a block within damaged output claims an offset that no segment reaches, the whole part of the segment stays readable.
func TestDistantBlock(t *testing.T) {
	const part = 1000
	s, _ := newStore(t)
	w := open(t, s, Full)
	noise := make([]byte, 3*part)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	testkit.Must(t, w.Append(0, textAt(0, part)), w.Sync())
	path := filepath.Join(w.dir, openName(0))
	info, err := os.Stat(path)
	testkit.Must(t, err)
	distant := appendBlock(nil, nil, kindOutput, maxRaw-10, noise[part:2*part])
	testkit.Must(t, w.Append(part, slices.Concat(noise[:part], distant, noise[2*part:])), w.Close())
	file, err := os.ReadFile(path)
	testkit.Must(t, err)
	for at := info.Size(); at < int64(bytes.Index(file, noise[:part])); at++ {
		file[at] ^= 1 // the headers of the second append
	}
	testkit.Must(t, os.WriteFile(path, file, 0o600))
	w = open(t, s, Full)
	if b, err := reader(t, s).Bounds(); err != nil || b.End != part || w.End() != part {
		t.Errorf("bounds %+v, %v; the writer continues at %d; want %d", b, err, w.End(), part)
	}
}
