package ring

import (
	"fmt"
	"slices"

	"holdfast/protocol"
)

// maxMarks bounds the resizes that are remembered; older ones are merged.
const maxMarks = 1024

// A Mark says that from Offset on the terminal had this size.
type Mark struct {
	Offset uint64
	Size   protocol.Size
}

// MarkSize notes that from the present end on, which it returns, the terminal
// has another size.
func (r *Ring) MarkSize(size protocol.Size) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := &r.marks[len(r.marks)-1]; last.Offset == r.end {
		last.Size = size
		r.storeSize(size)
	} else {
		r.addMark(Mark{r.end, size})
	}
	if len(r.marks) > maxMarks {
		r.marks = append(r.marks[:0], r.marks[len(r.marks)-maxMarks/2:]...)
	}
	r.wake()
	return r.end
}

// addMark stores the mark, in the oldest one's slot, before it counts it: whoever
// adopts the ring never looks at that slot.
func (r *Ring) addMark(m Mark) {
	r.marks = append(r.marks, m)
	if r.buf == nil {
		return
	}
	n := r.head.marked.Load()
	slot := &r.head.marks[n%markSlots]
	slot.offset.Store(m.Offset)
	slot.size.Store(packSize(m.Size))
	r.head.marked.Store(n + 1)
}

// storeSize changes the newest mark's size.
func (r *Ring) storeSize(size protocol.Size) {
	if r.buf != nil {
		r.head.marks[(r.head.marked.Load()-1)%markSlots].size.Store(packSize(size))
	}
}

// loadMarks returns the marks of a file, which may be anybody's.
func (h *header) loadMarks(end uint64) ([]Mark, error) {
	n := h.marked.Load()
	if n == 0 || n > maxOffset {
		return nil, fmt.Errorf("%d marks", n)
	}
	kept := min(n, markSlots-1) // the one before may be half overwritten
	marks := make([]Mark, 0, kept)
	for i := n - kept; i < n; i++ {
		slot := &h.marks[i%markSlots]
		size, err := unpackSize(slot.size.Load())
		if err != nil {
			return nil, err
		}
		m := Mark{slot.offset.Load(), size}
		if m.Offset > end || len(marks) > 0 && m.Offset <= marks[len(marks)-1].Offset {
			return nil, fmt.Errorf("a mark at offset %d out of order", m.Offset)
		}
		marks = append(marks, m)
	}
	return marks, nil
}

// dropMarks forgets marks before start but for the one in force there.
func (r *Ring) dropMarks() {
	for len(r.marks) > 1 && r.marks[1].Offset <= r.start {
		r.marks = r.marks[1:]
	}
}

// NextMark returns the first mark behind offset, if there is one.
func (r *Ring) NextMark(offset uint64) (Mark, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.marks {
		if m.Offset > offset {
			return m, true
		}
	}
	return Mark{}, false
}

// SizeAt returns the terminal's size when the byte at offset was printed, as
// far as it is still known.
func (r *Ring) SizeAt(offset uint64) protocol.Size {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := r.marks[0].Size
	for _, m := range r.marks {
		if m.Offset > offset {
			break
		}
		size = m.Size
	}
	return size
}

// WidthChanged reports whether the terminal's width changed behind offset, as
// far as it is still known.
func (r *Ring) WidthChanged(offset uint64) bool {
	cols := r.SizeAt(offset).Cols
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.marks, func(m Mark) bool { return m.Offset > offset && m.Size.Cols != cols })
}
