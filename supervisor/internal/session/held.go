package session

import (
	"bytes"
	"slices"
	"sync"
	"time"
)

// A viewer that does not read keeps its snapshot in memory. Therefore a session holds snapshots up to maxHeld. If there is no
// room for a snapshot, that one is dropped of which no viewer has taken a piece for the longest time; its viewers begin
// again with a new one when they read. If viewers have taken pieces of each within heldTime, the new snapshot is dropped
// instead, and its viewer waits for room: otherwise viewers that read slowly would drop each other's snapshots, and none
// would receive a whole one.

const (
	maxHeld  = 32 << 20 // bytes of different snapshots that a session holds; the last of them may exceed it
	heldTime = 5 * time.Second
)

// heldSnapshots are the snapshots that the viewers of a session have not received yet.
type heldSnapshots struct {
	mu      sync.Mutex
	all     []*heldSnapshot
	waiting map[*Attachment]struct{} // viewers that wait for room
	timer   *time.Timer              // wakes waiting; nil if it does not run
}

// heldSnapshot is the snapshot of its holders. Its data must not be changed.
type heldSnapshot struct {
	data    []byte
	holders map[*Attachment]struct{}
	takenAt time.Time // when a holder took a piece last, or began to hold it
}

// hold makes data the snapshot of a. If there is no room, a must begin again. A snapshot that equals the last one is stored
// once: many viewers that attach to the same screen and do not read cost the memory of one snapshot.
func (h *heldSnapshots) hold(a *Attachment, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(a)
	if len(data) == 0 {
		return
	}
	var k *heldSnapshot
	if n := len(h.all); n > 0 && bytes.Equal(h.all[n-1].data, data) {
		k = h.all[n-1]
	} else if h.makeRoom() {
		k = &heldSnapshot{data: data, holders: make(map[*Attachment]struct{})}
		h.all = append(h.all, k)
	} else {
		a.requestRenewal(newSnapshot)
		return
	}
	a.held, k.takenAt = k, time.Now()
	k.holders[a] = struct{}{}
}

// of returns the snapshot of a, of which a is about to take a piece, or nil if it was dropped.
func (h *heldSnapshots) of(a *Attachment) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.held == nil {
		return nil
	}
	a.held.takenAt = time.Now()
	return a.held.data
}

// release ends the need of a for its snapshot.
func (h *heldSnapshots) release(a *Attachment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, a)
	h.remove(a)
}

// awaitRoom reports whether there is room for another snapshot. If not, a is woken later.
func (h *heldSnapshots) awaitRoom(a *Attachment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.makeRoom() {
		return true
	}
	if h.waiting == nil {
		h.waiting = make(map[*Attachment]struct{})
	}
	h.waiting[a] = struct{}{}
	if h.timer == nil {
		h.timer = time.AfterFunc(heldTime-time.Since(h.longest().takenAt), func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.timer = nil
			h.wake()
		})
	}
	return false
}

// makeRoom drops snapshots until there is room for another one, and reports whether there is. h.mu must be held, as for
// the methods below.
func (h *heldSnapshots) makeRoom() bool {
	for h.bytes() >= maxHeld {
		k := h.longest()
		if time.Since(k.takenAt) < heldTime {
			return false
		}
		for a := range k.holders {
			a.requestRenewal(newSnapshot) // before a loses its snapshot, see Attachment.poll
			h.remove(a)
		}
	}
	return true
}

func (h *heldSnapshots) bytes() (n int) {
	for _, k := range h.all {
		n += cap(k.data)
	}
	return n
}

// longest returns the snapshot of which no viewer has taken a piece for the longest time.
func (h *heldSnapshots) longest() *heldSnapshot {
	return slices.MinFunc(h.all, func(a, b *heldSnapshot) int { return a.takenAt.Compare(b.takenAt) })
}

func (h *heldSnapshots) remove(a *Attachment) {
	k := a.held
	if k == nil {
		return
	}
	a.held = nil
	if delete(k.holders, a); len(k.holders) == 0 {
		h.all = slices.DeleteFunc(h.all, func(other *heldSnapshot) bool { return other == k })
		h.wake()
	}
}

func (h *heldSnapshots) wake() {
	for a := range h.waiting {
		a.notify()
	}
	clear(h.waiting)
}
