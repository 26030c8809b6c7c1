// Package ring holds the last bytes of a session's output, addressed by offset.
//
// An offset counts every byte of output since the session began and never decreases. A reader
// that remembers this one number can therefore continue after its proxy was replaced. The whole
// ring is in a mapped memory file, and output is read from the PTY directly into that file.
// Another process can adopt the file when this process has ended, at whatever instant that was:
// no byte that was read is lost, and no byte appears twice.
//
// Invariant: end-start <= len(buf), and a byte is overwritten only after start has moved behind
// it. If a reader's offset is before start, it gets ErrGone and must request a snapshot instead.
//
// Invariant: a read(2) in progress writes only to [end, armed), which held poison before. A
// byte there that differs from the poison was read.
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

// ErrGone is returned for an offset that the ring does not hold any more, and ErrAhead for an
// offset behind the end of the output.
var (
	ErrGone   = errors.New("ring: offset no longer kept")
	ErrAhead  = errors.New("ring: offset not printed yet")
	errClosed = errors.New("ring: closed")

	// ErrDamaged is returned by Adopt for a file that no program can adopt.
	ErrDamaged = errors.New("the file is damaged")
)

// Lengths in bytes.
const (
	DefaultBytes = 1 << 20
	MinBytes     = 64 << 10
	MaxBytes     = 64 << 20
	maxRead      = 64 << 10 // a PTY returns about 4 KiB for each read(2); this many bytes are worth one wake-up
	firstRead    = 2 << 10  // length of the first reservations, and of those of a session that prints little, so that they have poison in one page
)

// A Ring has one writer and any number of readers. Each may be in its own goroutine.
type Ring struct {
	file     *os.File
	readSize int // bytes that the writer reserves at a time; eight times as many fit into the bytes that are kept

	mu         sync.Mutex
	mem        []byte // the mapped file; head, room and buf are parts of it
	head       *header
	room       []byte
	buf        []byte
	blocks     blocks
	window     int    // length of the next reservation
	reserved   uint64 // end at the time of the last reservation
	lent       uint64 // end of that reservation
	start      uint64 // oldest offset that is kept
	end        uint64 // end, armed, marks and finished are copies of the fields in head
	armed      uint64
	marks      []ResizeMark // ascending; the first one has the size at start
	isFinished bool
	watchers   map[chan struct{}]struct{}
}

// New returns a ring that keeps at least the last keep bytes, within MinBytes and MaxBytes.
// size is the terminal's size at offset 0. The file takes memory only as it is written to.
func New(keep int, size protocol.Size) (*Ring, error) {
	r, err := create(newPreamble(min(max(keep, MinBytes), MaxBytes)))
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	r.addMark(ResizeMark{0, size})
	return r, nil
}

// NewAt returns a ring whose first byte will have the given offset. It is for a
// session with earlier output that is kept elsewhere.
func NewAt(keep int, size protocol.Size, offset uint64) (*Ring, error) {
	if offset > maxOffset {
		return nil, fmt.Errorf("ring: offset %d overflows", offset)
	}
	r, err := New(keep, size)
	if err != nil {
		return nil, err
	}
	r.start, r.end, r.armed, r.reserved = offset, offset, offset, offset
	r.marks[0].Offset = offset
	r.head.marks[0].offset.Store(offset)
	r.head.armed.Store(offset)
	r.head.end.Store(offset)
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
	r := newUnmapped(file)
	r.carve(p, mem)
	r.head.preamble = p
	return r, nil
}

// newUnmapped returns a ring without a mapping of its file.
func newUnmapped(file *os.File) *Ring {
	return &Ring{file: file, watchers: make(map[chan struct{}]struct{})}
}

// Keep returns how many bytes the ring keeps at least.
func (r *Ring) Keep() int { return len(r.buf) - r.readSize }

// Reserve returns memory for the next bytes, at least one and at most ReadSize, or nil if the
// ring is closed. The reservation is short for a session that prints little, because all of it
// must be poisoned, and becomes longer while reservations are filled. The ring drops the
// older bytes in that memory before they are overwritten. The memory belongs to the writer
// until Commit or Withdraw.
func (r *Ring) Reserve() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		return nil
	}
	if r.end != r.reserved || r.window == 0 { // otherwise the last reservation was withdrawn
		r.widen()
	}
	n := min(r.window, r.ahead(r.end))
	r.unpack(r.end, n)
	r.forget(r.end + uint64(n))
	r.arm(r.end + uint64(n))
	r.lent = r.end + uint64(n)
	at := int(r.end % uint64(len(r.buf)))
	return r.buf[at : at+n]
}

// Withdraw returns reserved memory to which nothing was written. The writer should call it before it waits, so that Pack can
// compress the memory around it.
func (r *Ring) Withdraw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent = r.end
}

// widen doubles the next reservation if more than half of the last one was used, and otherwise halves it.
func (r *Ring) widen() {
	if r.end-r.reserved > uint64(r.window/2) {
		r.window *= 2
	} else {
		r.window /= 2
	}
	r.window = min(max(r.window, firstRead), r.readSize)
	r.reserved = r.end
}

// ahead returns how many bytes can be reserved at offset at most: up to ReadSize, and not
// beyond the end of the buffer.
func (r *Ring) ahead(offset uint64) int {
	return min(r.readSize, len(r.buf)-int(offset%uint64(len(r.buf))))
}

// forget drops the oldest bytes if their places are needed for bytes up to offset.
func (r *Ring) forget(offset uint64) {
	if n := uint64(len(r.buf)); offset > n {
		r.start = max(r.start, offset-n)
		r.dropMarks()
	}
}

// arm writes poison up to offset. Poison that an earlier reservation left over is not written
// again, so each byte is poisoned once in each turn of the ring.
func (r *Ring) arm(offset uint64) {
	if from := max(r.armed, r.end); from < offset {
		at := int(from % uint64(len(r.buf)))
		layPoison(r.buf[at:at+int(offset-from)], at)
		r.armed = offset
		r.head.armed.Store(offset) // only now, because there was no poison before
	}
}

// Commit makes the first n bytes of the reserved memory part of the ring, and returns the
// offset of the first of them. It does not notify readers: the writer must call Wake.
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

// Wake notifies every watcher.
func (r *Ring) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake()
}

// Finish marks the output as complete: no byte may be written after it.
func (r *Ring) Finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isFinished = true
	if r.buf != nil {
		r.head.finished.Store(1)
	}
	r.wake()
}

// Bounds returns the oldest offset that is kept, the number of output bytes so far, and whether
// that number is final.
func (r *Ring) Bounds() (start, end uint64, finished bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.start, r.end, r.isFinished
}

// ReadAt copies bytes from offset on into p, and returns their number. It returns 0 and no
// error at the end, ErrGone before start, and ErrAhead behind the end.
func (r *Ring) ReadAt(p []byte, offset uint64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.buf == nil:
		return 0, errClosed
	case offset < r.start:
		return 0, ErrGone
	case offset > r.end:
		return 0, ErrAhead
	}
	n := int(min(uint64(len(p)), r.end-offset))
	r.copyAt(p[:n], offset)
	return n, nil
}

// View returns between 1 and n bytes from offset on, without a copy. The ring must hold these
// bytes. They stay valid until the writer has reserved len(buf)-n further bytes, so the caller
// must keep the writer from getting so far ahead.
func (r *Ring) View(offset uint64, n int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := int(offset % uint64(len(r.buf)))
	n = min(n, len(r.buf)-at)
	r.unpack(offset, n)
	return r.buf[at : at+n]
}

// copyAt fills p with the bytes from offset on, which the ring must hold. The caller must hold
// mu.
func (r *Ring) copyAt(p []byte, offset uint64) {
	if len(p) == 0 { // always true after the ring was closed
		return
	}
	r.unpack(offset, len(p))
	at := int(offset % uint64(len(r.buf)))
	k := copy(p, r.buf[at:])
	copy(p[k:], r.buf)
}

// Watch sends to c after every change, until Unwatch. c must have room for one value, because a
// notification is dropped if c is full.
func (r *Ring) Watch(c chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[c] = struct{}{}
}

// Unwatch removes a channel that was given to Watch.
func (r *Ring) Unwatch(c chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watchers, c)
}

func (r *Ring) wake() {
	for c := range r.watchers {
		select {
		case c <- struct{}{}:
		default: // c holds a notification that was not received yet; it covers this change, too
		}
	}
}

// Close unmaps and closes the file. Its memory is freed if no other process has the file. The
// writer must have ended before; reads fail afterwards.
func (r *Ring) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		return nil
	}
	r.isFinished = true
	r.wake()
	mem := r.mem
	r.mem, r.head, r.room, r.buf, r.blocks = nil, nil, nil, nil, blocks{}
	r.start = r.end // no byte is kept any more
	return errors.Join(unmap(mem), r.file.Close())
}
