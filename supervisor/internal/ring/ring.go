// Package ring keeps the last bytes a session printed, addressed by offset.
//
// Offsets count every byte since the session began and never go back, so a
// reader that remembers one number can go on after its proxy was replaced.
// The bytes lie in a mapped memory file, into which the PTY is read directly
// and which can be handed on to another process.
//
// Invariant: end-start <= len(buf), and no byte of [start, end) is written to.
// A reader older than start gets ErrGone and takes a snapshot instead.
//
// Not here: escape sequences (package screen), delivery (package session).
package ring

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"holdfast/protocol"
)

// ErrGone is returned for an offset that the ring has forgotten, and ErrAhead
// for one that was never printed.
var (
	ErrGone  = errors.New("ring: offset no longer kept")
	ErrAhead = errors.New("ring: offset not printed yet")
	errShut  = errors.New("ring: closed")
)

// Sizes, in bytes.
const (
	DefaultBytes = 1 << 20
	MinBytes     = 64 << 10
	MaxBytes     = 64 << 20
	maxRead      = 64 << 10 // a PTY gives about 4 KiB a read(2); this many are worth one wake-up
	maxMarks     = 1024     // resizes remembered; older ones are merged
)

// A Mark says that from Offset on the terminal had this size.
type Mark struct {
	Offset uint64
	Size   protocol.Size
}

// A Ring has one writer and any number of readers, in any goroutines.
type Ring struct {
	file     *os.File
	readSize int

	mu       sync.Mutex
	buf      []byte
	start    uint64 // oldest offset kept
	end      uint64 // bytes printed so far
	marks    []Mark // ascending; the first is the size at start
	finished bool   // end is final
	watchers map[chan struct{}]struct{}
}

// New returns a ring that keeps at least the given number of bytes; it begins
// with the given size. Memory is used as it is written to.
func New(keep int, size protocol.Size) (*Ring, error) {
	keep = min(max(keep, MinBytes), MaxBytes)
	readSize := min(keep/8, maxRead)
	// One read's room on top, so that a reservation never costs kept bytes.
	file, buf, err := mapFile(keep + readSize)
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	return &Ring{
		file: file, buf: buf, readSize: readSize,
		marks:    []Mark{{0, size}},
		watchers: make(map[chan struct{}]struct{}),
	}, nil
}

// ReadSize is how much the writer should reserve at a time: small enough that
// eight reads fit into what is kept.
func (r *Ring) ReadSize() int { return r.readSize }

// Keep is how many bytes are kept at least.
func (r *Ring) Keep() int { return len(r.buf) - r.readSize }

// Reserve returns room for the next bytes, at most ReadSize and at least one.
// Whatever lay there is forgotten now, before it is overwritten. The room is
// the writer's until Commit.
func (r *Ring) Reserve() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		return nil
	}
	at := int(r.end % uint64(len(r.buf)))
	n := min(r.readSize, len(r.buf)-at)
	if oldest := r.end + uint64(n); oldest > uint64(len(r.buf)) {
		r.start = max(r.start, oldest-uint64(len(r.buf)))
		r.dropMarks()
	}
	return r.buf[at : at+n]
}

// Commit makes the first n bytes of the reserved room part of the ring and
// returns the offset of the first. Readers are told by Wake.
func (r *Ring) Commit(n int) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.end
	r.end += uint64(n)
	return from
}

// Wake pokes whoever watches.
func (r *Ring) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake()
}

// MarkSize notes that from the present end on, which it returns, the terminal
// has another size.
func (r *Ring) MarkSize(size protocol.Size) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := &r.marks[len(r.marks)-1]; last.Offset == r.end {
		last.Size = size
	} else {
		r.marks = append(r.marks, Mark{r.end, size})
	}
	if len(r.marks) > maxMarks {
		r.marks = append(r.marks[:0], r.marks[len(r.marks)-maxMarks/2:]...)
	}
	r.wake()
	return r.end
}

// dropMarks forgets marks before start but for the one in force there.
func (r *Ring) dropMarks() {
	for len(r.marks) > 1 && r.marks[1].Offset <= r.start {
		r.marks = r.marks[1:]
	}
}

// Finish says that nothing more will be written.
func (r *Ring) Finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished = true
	r.wake()
}

// Bounds returns the oldest offset kept, the number of bytes printed so far,
// and whether that number is final.
func (r *Ring) Bounds() (start, end uint64, finished bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.start, r.end, r.finished
}

// ReadAt copies bytes from offset on into p. It returns 0 and no error at the
// end, ErrGone before start and ErrAhead behind the end.
func (r *Ring) ReadAt(p []byte, offset uint64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.buf == nil:
		return 0, errShut
	case offset < r.start:
		return 0, ErrGone
	case offset > r.end:
		return 0, ErrAhead
	}
	n := int(min(uint64(len(p)), r.end-offset))
	r.copyAt(p[:n], offset)
	return n, nil
}

// View returns bytes from offset on without a copy, at most n of them, and at
// least one. They have to be there, and stay valid until the writer has
// reserved len(buf)-n further bytes; the writer must not run ahead of whoever
// looks.
func (r *Ring) View(offset uint64, n int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := int(offset % uint64(len(r.buf)))
	return r.buf[at:min(at+n, len(r.buf))]
}

// copyAt fills p with the bytes from offset on, which must be there. mu is
// held.
func (r *Ring) copyAt(p []byte, offset uint64) {
	if len(p) == 0 { // as always once the ring is closed
		return
	}
	at := int(offset % uint64(len(r.buf)))
	k := copy(p, r.buf[at:])
	copy(p[k:], r.buf)
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

// Watch makes every change poke c, which must have room for one. Unwatch ends
// it.
func (r *Ring) Watch(c chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[c] = struct{}{}
}

// Unwatch ends what Watch began.
func (r *Ring) Unwatch(c chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watchers, c)
}

func (r *Ring) wake() {
	for c := range r.watchers {
		select {
		case c <- struct{}{}:
		default: // it has yet to look; it will see this change too
		}
	}
}

// Close gives the memory back. Reads fail from here on; the writer must have
// ended.
func (r *Ring) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		return nil
	}
	r.finished = true
	r.wake()
	buf := r.buf
	r.buf, r.start = nil, r.end // nothing is kept any more
	return errors.Join(unmap(buf), r.file.Close())
}
