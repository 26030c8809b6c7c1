package session

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
)

// Each policy chooses the size from the windows alone.
func TestChooseSize(t *testing.T) {
	one, two := window{"one", 1, protocol.Size{Cols: 100, Rows: 40}}, window{"two", 2, protocol.Size{Cols: 60, Rows: 50}}
	tiny := window{"tiny", 3, protocol.Size{Cols: 1, Rows: 1}}
	for _, tt := range []struct {
		policy  protocol.SizePolicy
		windows []window
		want    protocol.Size // zero if the policy demands none
	}{
		{protocol.SizeLatest, nil, protocol.Size{}},
		{protocol.SizeLatest, []window{one, two}, two.size},
		{protocol.SizeLatest, []window{one}, protocol.Size{}},
		{protocol.SizeOwner, []window{two, one}, one.size},
		{protocol.SizeSmallest, []window{one, two}, protocol.Size{Cols: 60, Rows: 40}},
		{protocol.SizeSmallest, []window{one, tiny}, protocol.Size{Cols: protocol.SmallestCols, Rows: protocol.SmallestRows}},
		{protocol.SizeLargest, []window{one, two}, protocol.Size{Cols: 100, Rows: 50}},
		{protocol.SizeFixed, []window{one, two}, protocol.Size{}},
	} {
		z := sizing{SizePolicy: tt.policy, Decider: "two"}
		if got, ok := z.choose(slices.Values(tt.windows)); got != tt.want || ok != (tt.want != protocol.Size{}) {
			t.Errorf("%s of %v: %v, %v, want %v", tt.policy, tt.windows, got, ok, tt.want)
		}
	}
}

// A lost viewer counts, with its window and its right to write, until it is taken back or its time is over. A
// successor finds attached and lost viewers alike.
func TestLostViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v viewers
		defer v.stop()
		a := &Attachment{spec: protocol.AttachSpec{Writer: "a"}, number: 1, window: protocol.Size{Cols: 90, Rows: 30}}
		b := &Attachment{spec: protocol.AttachSpec{Writer: "b", Mode: protocol.ModeReadOnly}, number: 2}
		shadow := &Attachment{spec: protocol.AttachSpec{Writer: "c"}, shadow: true}
		for _, each := range []*Attachment{a, b, shadow} {
			v.add(each)
		}
		if v.count() != 2 || v.of("b") != b || !v.canWrite("a") || v.canWrite("b") || len(v.saved()) != 2 {
			t.Fatalf("%d viewers, %+v", v.count(), v.saved())
		}
		before := v.saved()
		for _, each := range []*Attachment{a, b, shadow} {
			v.addLost(each)
			v.remove(each, nil)
		}
		if v.count() != 0 || !slices.Equal(v.saved(), before) || !v.anyLostCouldWrite() || len(slices.Collect(v.windows())) != 1 {
			t.Errorf("%d viewers, saved %+v, want %+v", v.count(), v.saved(), before)
		}
		if a.hasEnded() {
			t.Error("the attachment knows its end before the end is published")
		}
		if v.notifyDeparted(); !a.hasEnded() || !shadow.hasEnded() {
			t.Error("an attachment does not know its end")
		}
		again := &Attachment{spec: a.spec}
		if !v.takeBack(again) || again.number != 1 || v.takeBack(again) || v.anyLostCouldWrite() {
			t.Errorf("taken back as %d", again.number)
		}
		var next viewers
		defer next.stop()
		next.restore(before)
		time.Sleep(reconnectTime)
		if <-v.c; len(v.expireLost()) != 1 || len(v.saved()) != 0 || v.c != nil {
			t.Errorf("the lost viewer still counts: %+v", v.saved())
		}
		if <-next.c; len(next.expireLost()) != 2 || len(next.saved()) != 0 {
			t.Errorf("the lost viewer still counts: %+v", next.saved())
		}
	})
}
