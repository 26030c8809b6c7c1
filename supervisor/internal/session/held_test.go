//go:build linux || darwin

package session

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
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
	const viewers = 14
	spec := bash(`stty -echo; awk 'BEGIN {
		for (y = 0; y < 1100; y++) {
			for (x = 0; x < 160; x++) printf "\033[38;2;%d;%d;%d;48;2;%d;%d;%dm%c", 100+x, 100+y%100, 255, 255, 100+x, 100, 65+x%26
			print ""
		}}'; printf READY; while read line; do printf %s "$line"; done`)
	spec.Cols, spec.Rows = 160, 40
	s := create(t, newTable(t, Config{RingBytes: 32 << 20}), spec)
	reader := look(t, s, fromStart(s))
	reader.until(t, "READY")
	before := heap()
	var waiting []*viewer
	for i := range viewers {
		mark := []byte{'<', byte('a' + i), '>'}
		if err := reader.a.Type(uint64(4*i), append(mark, '\n')); err != nil {
			t.Fatal(err)
		}
		for !bytes.HasSuffix(reader.seen, mark) {
			if _, err := reader.next(t); err != nil {
				t.Fatal(err)
			}
		}
		v := look(t, s, protocol.AttachSpec{})
		if v.waits = true; v.left < 5<<20 {
			t.Fatalf("a snapshot of %d bytes is too small for this test", v.left)
		}
		waiting = append(waiting, v)
	}
	if got := heap() - before; got > maxHeld+12<<20 {
		t.Errorf("%d viewers that do not read take %d MiB", viewers, got>>20)
	}
	for i, v := range waiting {
		v.model = &model{printed: reader.seen, sizes: []sizeAt{{0, spec.Size()}}}
		if err := v.begins(false); err != nil {
			t.Fatal(err)
		}
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

// If there is no room, the snapshot is dropped that no viewer reads. While all are read, the last viewer waits.
func TestRoomForSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heldSnapshots
		viewers := make([]*Attachment, 5)
		for i := range viewers {
			viewers[i] = &Attachment{wake: make(chan struct{}, 1)}
		}
		a, b, c, d, e := viewers[0], viewers[1], viewers[2], viewers[3], viewers[4]
		content := func(x byte) []byte { return bytes.Repeat([]byte{x}, maxHeld/2) }
		check := func(when string, holders ...*Attachment) {
			t.Helper()
			want := make(map[*Attachment]bool)
			for _, v := range holders {
				want[v] = true
			}
			for i, v := range viewers {
				if got := v.held != nil; got != want[v] {
					t.Errorf("%s: viewer %d has a snapshot: %v", when, i, got)
				}
				if v.held == nil && v.renewal != newSnapshot {
					t.Errorf("%s: viewer %d neither has a snapshot nor begins again", when, i)
				}
			}
		}
		h.hold(a, content('a'))
		h.hold(b, content('b'))
		h.hold(c, content('b')) // equal, so that it needs no room
		time.Sleep(heldTime / 2)
		h.of(a)
		h.hold(d, content('d'))
		h.hold(e, content('e'))
		check("all are read", a, b, c)
		<-d.wake
		<-e.wake
		if h.awaitRoom(d) || h.awaitRoom(e) {
			t.Error("there is room for another snapshot")
		}
		<-d.wake // heldTime is over since b and c have begun to hold theirs
		<-e.wake
		if !h.awaitRoom(d) {
			t.Error("there is no room, although two viewers do not read")
		}
		h.hold(d, content('d'))
		check("two do not read", a, d)
		<-b.wake
		if h.awaitRoom(e) {
			t.Error("there is room, although both snapshots are read")
		}
		h.of(d)
		h.release(a)
		<-e.wake // at once
		if !h.awaitRoom(e) {
			t.Error("there is no room after a viewer has received its snapshot")
		}
	})
}
