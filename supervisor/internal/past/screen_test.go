package past

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/vt/vttest"
)

// saved returns the record of a real screen.
func saved(t *testing.T, s *screen.Screen) []byte {
	t.Helper()
	var b memory
	testkit.Must(t, s.Save(&b, -1))
	return b
}

// A memory is the file that a screen is saved to.
type memory []byte

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	if need := int(at) + len(p); need > len(*m) {
		*m = append(*m, make([]byte, need-len(*m))...)
	}
	return copy((*m)[at:], p), nil
}

// The screen at any offset, restored from a keyframe of a real screen, is the one that shows all
// output from 0 on.
func TestRealScreen(t *testing.T) {
	const lines = 300
	in := vttest.Listing.Make()
	in = in[:min(len(in), 2<<20)]
	r := rand.New(rand.NewPCG(15, 16))
	s, _ := newStore(t)
	w := open(t, s, Full)
	live := screen.New(protocol.Size{Cols: 80, Rows: 24}, lines)
	testkit.Must(t, w.Resize(0, live.Size()))
	want := map[uint64][]byte{} // records at some offsets
	for end := uint64(0); int(end) < len(in); {
		n := min(1+r.IntN(10_000), len(in)-int(end))
		testkit.Must(t, w.Append(end, in[end:int(end)+n]))
		live.Write(in[end : int(end)+n])
		end += uint64(n)
		switch r.IntN(20) {
		case 0:
			testkit.Must(t, w.Keyframe(end, saved(t, live)))
		case 1, 2:
			live.Resize(protocol.Size{Cols: 60 + r.IntN(60), Rows: 10 + r.IntN(30)})
			testkit.Must(t, w.Resize(end, live.Size()))
		case 3, 4, 5, 6:
			want[end] = saved(t, live)
		}
	}
	testkit.Must(t, w.Sync())
	rd := reader(t, s)
	for offset, record := range want {
		v, err := rd.At(offset)
		testkit.Must(t, err)
		got := screen.New(v.Size, lines)
		if v.Keyframe != nil {
			restorer, err := screen.Restore(v.Keyframe, lines)
			testkit.Must(t, err)
			for !restorer.Step(1 << 20) {
			}
			got = restorer.Screen()
		}
		for p, err := range v.Replay {
			testkit.Must(t, err)
			if p.Size != (protocol.Size{}) {
				got.Resize(p.Size)
			}
			got.Write(slices.Clone(p.Output))
		}
		if !bytes.Equal(saved(t, got), record) {
			t.Errorf("the screen at %d, from the keyframe at %d, differs", offset, v.KeyframeAt)
		}
	}
	t.Logf("%d screens", len(want))
}
