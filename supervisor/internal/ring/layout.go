package ring

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"holdfast/protocol"
)

// The file, by bytes; what is never written to takes no memory:
//
//	0                      header
//	headerBytes            the room of RoomBytes
//	headerBytes+RoomBytes  what was printed: offset o lies at o mod ringBytes
//
// Whole pages of every system we know come before the bytes: Linux has pages of
// up to 64 KiB, macOS of 16.
const (
	magic       = "holdfast"
	version     = 1 // of the layout, of the poison, and of their order
	pageBytes   = 64 << 10
	headerBytes = pageBytes
	markSlots   = maxMarks
	sameOrder   = 0x01020304 // reads otherwise on a machine of another byte order
	maxOffset   = 1 << 62    // sums of offsets and lengths cannot overflow
)

// RoomBytes is how long the room is in a new ring.
const RoomBytes = 192 << 10

// maxRoomBytes bounds the room of a ring that another version has made.
const maxRoomBytes = 16 << 20

// A preamble is what never changes in a file.
type preamble struct {
	magic       [8]byte
	order       uint32
	version     uint32
	headerBytes uint64
	markSlots   uint64
	roomBytes   uint64
	ringBytes   uint64
	readBytes   uint64
	_           uint64
}

// A header is how a file begins. What changes does so one word at a time, in an
// order such that the file is whole whenever its writer dies: no lock in it
// could be held by a dead process.
type header struct {
	preamble

	end      atomic.Uint64 // bytes printed
	armed    atomic.Uint64 // [end, armed) is poison, but for what a read(2) has put there
	finished atomic.Uint64 // 1: end is final
	marked   atomic.Uint64 // marks so far; the newest of them are in marks
	_        [32]byte
	marks    [markSlots]struct{ offset, size atomic.Uint64 }
}

const _ = uint(headerBytes - unsafe.Sizeof(header{})) // it fits

func newPreamble(keep int) preamble {
	readSize := min(keep/8, maxRead)
	p := preamble{
		order: sameOrder, version: version, headerBytes: headerBytes, markSlots: markSlots,
		roomBytes: RoomBytes, readBytes: uint64(readSize),
		// One read's room on top, so that a reservation never costs kept bytes.
		ringBytes: uint64(keep + readSize),
	}
	copy(p.magic[:], magic)
	return p
}

// size is the whole file's. The lengths have been checked, or are our own.
func (p *preamble) size() int { return int(p.headerBytes + p.roomBytes + p.ringBytes) }

// check returns an error unless a file of that many bytes can be what p says.
func (p *preamble) check(size int64) error {
	switch {
	case string(p.magic[:]) != magic:
		return errors.New("not a ring")
	case p.order != sameOrder:
		return errors.New("made on a machine of another byte order")
	case p.version != version:
		return fmt.Errorf("layout version %d, this program knows %d", p.version, version)
	case p.headerBytes != headerBytes || p.markSlots != markSlots,
		p.roomBytes%pageBytes != 0 || p.roomBytes > maxRoomBytes,
		p.readBytes == 0 || p.readBytes > maxRead,
		p.ringBytes < MinBytes || p.ringBytes > MaxBytes+maxRead,
		p.ringBytes < 9*p.readBytes: // as ReadSize promises
		return errors.New("lengths out of range")
	case size != int64(p.size()):
		return fmt.Errorf("%d bytes long, its header says %d", size, p.size())
	}
	return nil
}

// bytes is p as it lies in the file.
func (p *preamble) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)) }

// carve makes the mapped file the ring's.
func (r *Ring) carve(p preamble, mem []byte) {
	r.mem = mem
	r.head = (*header)(unsafe.Pointer(unsafe.SliceData(mem)))
	bytesAt := p.headerBytes + p.roomBytes
	r.room = mem[p.headerBytes:bytesAt:bytesAt]
	r.buf = mem[bytesAt:]
	r.readSize = int(p.readBytes)
}

// packSize makes a size one word: cols in the low 16 bits, rows in the next.
func packSize(s protocol.Size) uint64 {
	return uint64(clamp16(s.Cols)) | uint64(clamp16(s.Rows))<<16
}

func clamp16(n int) uint16 { return uint16(min(max(n, 0), math.MaxUint16)) }

func unpackSize(w uint64) (protocol.Size, error) {
	if w>>32 != 0 {
		return protocol.Size{}, fmt.Errorf("a size of %#x", w)
	}
	return protocol.Size{Cols: int(w & 0xffff), Rows: int(w >> 16)}, nil
}
