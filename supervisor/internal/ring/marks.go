package ring

import (
	"fmt"
	"slices"

	"holdfast/protocol"
)

// maxMarks bounds the number of resize marks; the ring drops older ones.
const maxMarks = 1024

// A ResizeMark says that the terminal has had this size since Offset.
type ResizeMark struct {
	Offset uint64
	Size   protocol.Size
}

// MarkSize adds a resize mark at the end of the output, and returns that offset. If the newest
// mark has the same offset, its size changes.
func (r *Ring) MarkSize(size protocol.Size) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := &r.marks[len(r.marks)-1]; last.Offset == r.end {
		last.Size = size
		r.storeSize(size)
	} else {
		r.addMark(ResizeMark{r.end, size})
	}
	if len(r.marks) > maxMarks {
		r.marks = append(r.marks[:0], r.marks[len(r.marks)-maxMarks/2:]...)
	}
	r.wake()
	return r.end
}

// addMark stores a mark in the file, in the slot of the oldest one, and then increments the
// count. If the writer dies between the two, that slot is half written; so a program that
// adopts the ring never reads the slot before the oldest mark.
func (r *Ring) addMark(m ResizeMark) {
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

// storeSize changes the size of the newest mark in the file.
func (r *Ring) storeSize(size protocol.Size) {
	if r.buf != nil {
		r.head.marks[(r.head.marked.Load()-1)%markSlots].size.Store(packSize(size))
	}
}

// loadMarks returns the marks of a file. The file may have been made by any program, so each
// mark is checked.
func (h *header) loadMarks(end uint64) ([]ResizeMark, error) {
	n := h.marked.Load()
	if n == 0 || n > maxOffset {
		return nil, fmt.Errorf("invalid number of resize marks: %d", n)
	}
	kept := min(n, markSlots-1) // the slot before these may be half overwritten
	marks := make([]ResizeMark, 0, kept)
	for i := n - kept; i < n; i++ {
		slot := &h.marks[i%markSlots]
		size, err := unpackSize(slot.size.Load())
		if err != nil {
			return nil, err
		}
		m := ResizeMark{slot.offset.Load(), size}
		if m.Offset > end || len(marks) > 0 && m.Offset <= marks[len(marks)-1].Offset {
			return nil, fmt.Errorf("resize mark at offset %d is out of order", m.Offset)
		}
		marks = append(marks, m)
	}
	return marks, nil
}

// dropMarks drops the marks before start, except the last of them, whose size is valid at
// start.
func (r *Ring) dropMarks() {
	for len(r.marks) > 1 && r.marks[1].Offset <= r.start {
		r.marks = r.marks[1:]
	}
}

// NextMark returns the first resize mark behind offset, and whether there is one.
func (r *Ring) NextMark(offset uint64) (ResizeMark, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.marks {
		if m.Offset > offset {
			return m, true
		}
	}
	return ResizeMark{}, false
}

// SizeAt returns the terminal's size when the byte at offset was printed. If the mark for
// offset was dropped, it returns the size of the oldest mark.
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

// WidthChanged reports whether the terminal's width changed behind offset, as far as the marks
// are still kept.
func (r *Ring) WidthChanged(offset uint64) bool {
	cols := r.SizeAt(offset).Cols
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.marks, func(m ResizeMark) bool { return m.Offset > offset && m.Size.Cols != cols })
}
