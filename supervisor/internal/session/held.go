package session

import (
	"bytes"
	"slices"
	"sync"
	"time"
)

// maxHeld is how many bytes of snapshots a session holds for viewers that have not received them yet, besides the last one.
// A snapshot has at most 8 MiB.
const maxHeld = 64 << 20

// heldSnapshots are the snapshots that the viewers of a session have not received yet. If there is no room for another one,
// that one is dropped of which no viewer has received a piece for the longest time. Its viewers begin again with a new one
// when they read, as if the ring had overtaken them. So no viewer waits for another one, however slowly that one reads.
type heldSnapshots struct {
	mu  sync.Mutex
	all []*heldSnapshot // in the order in which they were taken
}

// heldSnapshot is the snapshot of its holders. Its data must not be changed.
type heldSnapshot struct {
	data    []byte
	holders map[*Attachment]struct{}
	usedAt  time.Time // when a holder received a piece last, or began to hold it
}

// hold makes data the snapshot of a. A snapshot that equals the last one is stored once: many viewers that attach to the same
// screen and do not read cost the memory of one snapshot.
func (h *heldSnapshots) hold(a *Attachment, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(a, data)
}

// replace makes data the snapshot of a, unless a has none any more: it was dropped, or a has ended.
func (h *heldSnapshots) replace(a *Attachment, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.held != nil {
		h.put(a, data)
	}
}

func (h *heldSnapshots) put(a *Attachment, data []byte) {
	h.remove(a)
	if len(data) == 0 {
		return
	}
	if n := len(h.all); n > 0 && bytes.Equal(h.all[n-1].data, data) {
		a.held = h.all[n-1]
	} else {
		h.makeRoom()
		a.held = &heldSnapshot{data: data, holders: make(map[*Attachment]struct{})}
		h.all = append(h.all, a.held)
	}
	a.held.usedAt = time.Now()
	a.held.holders[a] = struct{}{}
}

// use returns the snapshot of a, which is about to receive a piece of it, or nil if it was dropped.
func (h *heldSnapshots) use(a *Attachment) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.held == nil {
		return nil
	}
	a.held.usedAt = time.Now()
	return a.held.data
}

// release ends the need of a for its snapshot.
func (h *heldSnapshots) release(a *Attachment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(a)
}

// makeRoom drops snapshots until there is room for another one. h.mu must be held, as for put and remove.
func (h *heldSnapshots) makeRoom() {
	size := 0
	for _, k := range h.all {
		size += cap(k.data)
	}
	for size >= maxHeld {
		k := slices.MinFunc(h.all, func(a, b *heldSnapshot) int { return a.usedAt.Compare(b.usedAt) })
		size -= cap(k.data)
		for a := range k.holders {
			a.requestRenewal(newSnapshot) // before a loses its snapshot, see Attachment.poll
			h.remove(a)
		}
	}
}

func (h *heldSnapshots) remove(a *Attachment) {
	k := a.held
	if k == nil {
		return
	}
	a.held = nil
	if delete(k.holders, a); len(k.holders) == 0 {
		h.all = slices.DeleteFunc(h.all, func(other *heldSnapshot) bool { return other == k })
	}
}
