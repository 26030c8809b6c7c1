package session

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/vt/vttest"
)

// A screen that is dropped at any time, and restored from the keyframe or from the ring alone, continues as one that was never
// dropped: it shows the same, and gives the same replies.
func TestDropStreams(t *testing.T) {
	n := 30
	if given, err := strconv.Atoi(os.Getenv("HOLDFAST_STREAMS")); err == nil {
		n = given
	}
	seed, drops := testkit.Seed(), 0
	for i := range n {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		size := protocol.Size{Cols: 2 + rnd.IntN(60), Rows: 1 + rnd.IntN(20)}
		dropped, kept := newStage(t, size), newStage(t, size)
		dropped.isFromRing = rnd.IntN(2) == 0
		first := []vttest.Step{{Write: []byte("$ ")}} // because sizes before the first output leave tab stops behind, which have no effect
		for k, s := range append(first, vttest.Stream(rnd, vttest.StreamOptions{Cols: size.Cols, Rows: size.Rows})...) {
			dropped.do(s)
			kept.do(s)
			if rnd.IntN(10) > 0 || !dropped.dropAndRestore() {
				continue
			}
			drops++
			if d := cmpScreens(t, dropped.screen, kept.screen); d != "" {
				t.Fatalf("seed %d, stream %d, step %d: %s", seed, i, k, d)
			}
			if !bytes.Equal(dropped.replies, kept.replies) {
				t.Fatalf("seed %d, stream %d, step %d: replied %q, want %q", seed, i, k, dropped.replies, kept.replies)
			}
		}
	}
	if drops < n {
		t.Errorf("%d screens were dropped in %d streams", drops, n)
	}
}

// do executes a step of a stream as a session does.
func (g *stage) do(s vttest.Step) {
	if s.IsResize() {
		g.noteResize(g.ring.MarkSize(protocol.Size{Cols: s.Cols, Rows: s.Rows}))
		g.fit()
		return
	}
	for end := g.print(string(s.Write)); g.screen.Offset() < end; {
		g.write(end, pieceCost)
		g.answer(g.screen)
		g.screen.Heard()
		g.screen.Events()
	}
}

// dropAndRestore drops the screen as an idle session does, and restores it. It reports whether it was dropped.
func (g *stage) dropAndRestore() bool {
	g.t.Helper()
	if g.ringSuffices() {
		g.eraseKeyframe()
	} else if !g.writeKeyframe(allLines) {
		g.t.Fatal("no keyframe")
	}
	if !g.drop() {
		return false
	}
	if !g.isDropped() || g.isBehind() || g.screen != nil {
		g.t.Fatal("the screen is not dropped")
	}
	g.restore()
	return true
}

// cmpScreens returns a difference between two screens, or "".
func cmpScreens(t *testing.T, got, want *screen.Screen) string {
	t.Helper()
	if a, b := recordOf(t, got), recordOf(t, want); a != b {
		return fmt.Sprintf("the records differ:\n%q\n%q", a, b)
	}
	return ""
}

// recordOf returns the record of a screen, without its length, and without one field that depends on how the core has parsed
// a repeated character, and that has no effect then.
func recordOf(t *testing.T, sc *screen.Screen) string {
	t.Helper()
	var b buffer
	testkit.Must(t, sc.Save(&b, allLines))
	at := bytes.LastIndex(b, []byte(`{"size":`))
	return string(b[:at-8]) + strings.Replace(string(b[at:]), `"printing":true,`, "", 1)
}
