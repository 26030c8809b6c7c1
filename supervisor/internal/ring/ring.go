// Package ring keeps the last bytes a session printed, addressed by offset.
//
// Offsets count every byte since the session began and never go back, so a
// reader that remembers one number can go on after its proxy was replaced.
// All of it lies in a mapped memory file, into which the PTY is read directly.
// Another process can adopt that file when this one has ended, at whatever
// instant it did: no byte that was read is lost, and none comes twice.
//
// Invariant: end-start <= len(buf), and no byte of [start, end) is written to.
// A reader older than start gets ErrGone and takes a snapshot instead.
//
// Invariant: what a read(2) may be writing to is [end, armed), and was poison
// before; what differs from that was read.
//
// Not here: escape sequences (package screen), delivery (package session).
package ring

import (
	"errors"
	"fmt"
	"os"
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
	firstRead    = 8 << 10  // two of them: what a session that prints little has poisoned ahead of it
)

// A Ring has one writer and any number of readers, in any goroutines.
type Ring struct {
	file     *os.File
	readSize int

	mu       sync.Mutex
	mem      []byte // the mapped file: head, room and buf
	head     *header
	room     []byte
	buf      []byte
	window   int    // how much is reserved at a time
	reserved uint64 // from which offset on, the last time
	start    uint64 // oldest offset kept
	end      uint64 // this and what follows is in head too
	armed    uint64
	marks    []Mark // ascending; the first is the size at start
	finished bool
	watchers map[chan struct{}]struct{}
}

// New returns a ring that keeps at least the given number of bytes; it begins
// with the given size. Memory is used as it is written to.
func New(keep int, size protocol.Size) (*Ring, error) {
	r, err := create(newPreamble(min(max(keep, MinBytes), MaxBytes)))
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	r.addMark(Mark{0, size})
	return r, nil
}

func create(p preamble) (*Ring, error) {
	file, err := newFile(p.size())
	if err != nil {
		return nil, err
	}
	mem, err := mapFile(file, p.size())
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	r := over(file)
	r.carve(p, mem)
	r.head.preamble = p
	return r, nil
}

// over returns a ring that is not mapped yet.
func over(file *os.File) *Ring {
	return &Ring{file: file, watchers: make(map[chan struct{}]struct{})}
}

// ReadSize is how much the writer should reserve at a time: small enough that
// eight reads fit into what is kept.
func (r *Ring) ReadSize() int { return r.readSize }

// Keep is how many bytes are kept at least.
func (r *Ring) Keep() int { return len(r.buf) - r.readSize }

// Reserve returns room for the next bytes, at most ReadSize and at least one:
// little for a session that prints little, as all of it is poisoned, and more
// for one that fills it. Whatever lay there is forgotten now, before it is
// overwritten. The room is the writer's until Commit.
func (r *Ring) Reserve() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		return nil
	}
	r.widen()
	n := min(r.window, r.ahead(r.end))
	r.forget(r.end + uint64(n))
	r.arm(r.end + uint64(n))
	at := int(r.end % uint64(len(r.buf)))
	return r.buf[at : at+n]
}

// widen lets the next reservation be longer if most of the last was used.
func (r *Ring) widen() {
	if r.end-r.reserved > uint64(r.window/2) {
		r.window *= 2
	}
	r.window = min(max(r.window, firstRead), r.readSize)
	r.reserved = r.end
}

// ahead is how much can be reserved at offset at most: to the end of the buffer
// and no further.
func (r *Ring) ahead(offset uint64) int {
	return min(r.readSize, len(r.buf)-int(offset%uint64(len(r.buf))))
}

// forget lets go of what lies where bytes up to offset will.
func (r *Ring) forget(offset uint64) {
	if n := uint64(len(r.buf)); offset > n {
		r.start = max(r.start, offset-n)
		r.dropMarks()
	}
}

// arm lays poison up to offset. What an earlier reservation left over is poison
// still; so each byte is poisoned once each time the ring goes round.
func (r *Ring) arm(offset uint64) {
	if from := max(r.armed, r.end); from < offset {
		at := int(from % uint64(len(r.buf)))
		lay(r.buf[at:at+int(offset-from)], at)
		r.armed = offset
		r.head.armed.Store(offset) // only now: before, there is no poison
	}
}

// Commit makes the first n bytes of the reserved room part of the ring and
// returns the offset of the first. Readers are told by Wake.
func (r *Ring) Commit(n int) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.end
	r.end += uint64(n)
	if r.buf != nil {
		r.head.end.Store(r.end)
	}
	return from
}

// Wake pokes whoever watches.
func (r *Ring) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake()
}

// Finish says that nothing more will be written.
func (r *Ring) Finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished = true
	if r.buf != nil {
		r.head.finished.Store(1)
	}
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

// Close gives the memory back, but for who has the file too. Reads fail from here
// on; the writer must have ended.
func (r *Ring) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		return nil
	}
	r.finished = true
	r.wake()
	mem := r.mem
	r.mem, r.head, r.room, r.buf = nil, nil, nil, nil
	r.start = r.end // nothing is kept any more
	return errors.Join(unmap(mem), r.file.Close())
}
