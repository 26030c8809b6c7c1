//go:build linux || darwin

package session

import (
	"bytes"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// heap returns the bytes of memory in use.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Viewers that attach while a session prints, and do not read, have different snapshots. Together these take bounded
// memory, and each viewer receives a whole one and all output after it when it reads.
func TestViewersThatDoNotReadTakeBoundedMemory(t *testing.T) {
	const viewers = 22
	spec := bash(`stty -echo; awk 'BEGIN {
		for (i = 0; i < 1000; i++) printf "\033]8;;http://%d/%06000d\007%c", i, 0, 65+i%26
		print "" }'; printf READY; while read line; do printf %s "$line"; done`)
	spec.Cols, spec.Rows = 160, 40
	s := create(t, newTable(t, Config{RingBytes: 32 << 20}), spec)
	reader := look(t, s, fromStart(s))
	reader.until(t, "READY")
	before := heap()
	var waiting []*viewer
	for i := range viewers {
		mark := []byte{'<', byte('a' + i), '>'}
		testkit.Must(t, reader.a.Type(uint64(4*i), append(mark, '\n')))
		for !bytes.HasSuffix(reader.seen, mark) {
			if _, err := reader.next(t); err != nil {
				t.Fatal(err)
			}
		}
		v := look(t, s, protocol.AttachSpec{})
		if v.waits = true; v.left < 4_000_000 {
			t.Fatalf("a snapshot of %d bytes is too small for this test", v.left)
		}
		waiting = append(waiting, v)
	}
	if got := heap() - before; got > maxHeld+12<<20 {
		t.Errorf("%d viewers that do not read take %d MiB", viewers, got>>20)
	}
	printed := &model{printed: reader.seen, sizes: []sizeAt{{0, spec.Size()}}}
	for i, v := range waiting {
		v.model = printed
		testkit.Must(t, v.begins(false))
		for v.pos < reader.pos || v.left > 0 {
			if _, err := v.next(t); err != nil {
				t.Fatalf("viewer %d: %v", i, err)
			}
		}
		if v.missed > 0 {
			t.Errorf("viewer %d has missed %d bytes", i, v.missed)
		}
	}
	if n := len(s.held.all); n != 0 {
		t.Errorf("%d snapshots are held after all viewers have read theirs", n)
	}
}

// If there is no room, the snapshot is dropped that was not read for the longest time.
func TestRoomForSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heldSnapshots
		viewers := make([]*Attachment, 5)
		for i := range viewers {
			viewers[i] = &Attachment{wake: make(chan struct{}, 1)}
		}
		a, b, c, d, e := viewers[0], viewers[1], viewers[2], viewers[3], viewers[4]
		hold := func(v *Attachment, x byte) {
			time.Sleep(time.Millisecond)
			h.hold(v, bytes.Repeat([]byte{x}, maxHeld/2))
		}
		check := func(when string, holders ...*Attachment) {
			t.Helper()
			for i, v := range viewers {
				if got, want := v.held != nil, slices.Contains(holders, v); got != want {
					t.Errorf("%s: viewer %d has a snapshot: %v", when, i, got)
				}
			}
		}
		hold(a, 'a')
		hold(b, 'b')
		hold(c, 'b') // equal, so that it needs no room
		time.Sleep(time.Millisecond)
		h.use(a)
		check("there is room", a, b, c)
		hold(d, 'd')
		check("b and c have not read", a, d)
		for _, v := range []*Attachment{b, c} {
			if <-v.wake; v.renewal != newSnapshot {
				t.Error("a viewer whose snapshot was dropped does not begin again")
			}
		}
		h.release(a)
		hold(e, 'e')
		check("a has read its snapshot", d, e)
		h.release(e)
		h.replace(d, []byte("masked"))
		h.replace(e, []byte("masked"))
		check("e has ended", d)
	})
}
