package ring

import (
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"holdfast/protocol"
)

// The layout of the file, in bytes. A part that is never written to takes no memory:
//
//	0                      header
//	headerBytes            the room of RoomBytes
//	headerBytes+RoomBytes  packed blocks (pack.go)
//	headerBytes+roomBytes  the output: the byte of offset o is at o mod ringBytes
//
// Earlier releases have no packed blocks, and take roomBytes for the length of the room.
//
// The room and the output begin at whole pages on every known system: Linux has pages of up to
// 64 KiB, macOS of 16 KiB.
const (
	magic       = "holdfast"
	version     = 1 // of the layout, the poison bytes and the order of the poison bytes
	pageBytes   = 64 << 10
	headerBytes = pageBytes
	markSlots   = maxMarks
	sameOrder   = 0x01020304 // has another value on a machine of another byte order
	maxOffset   = 1 << 62    // small enough that sums of offsets and lengths cannot overflow
)

// RoomBytes is the length of the room of a new ring.
const RoomBytes = 192 << 10

// maxRoomBytes bounds the room with the packed blocks.
const maxRoomBytes = 16 << 20

// A preamble is the part of the header that never changes.
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

// A header is the beginning of the file. Its fields change one word at a time, in such an order
// that the file is consistent whenever its writer dies. It has no lock, because a dead process
// could hold that lock for ever.
type header struct {
	preamble

	end      atomic.Uint64 // number of output bytes since the session began
	armed    atomic.Uint64 // [end, armed) holds poison, except for bytes that a read(2) has put there
	finished atomic.Uint64 // 1: end is final
	marked   atomic.Uint64 // number of resize marks ever stored; the newest of them are in marks
	_        [32]byte
	marks    [markSlots]struct{ offset, size atomic.Uint64 }
}

const _ = uint(headerBytes - unsafe.Sizeof(header{})) // does not compile if the header is too long

func newPreamble(keep int) preamble {
	readSize := min(keep/8, maxRead)
	p := preamble{
		order: sameOrder, version: version, headerBytes: headerBytes, markSlots: markSlots,
		readBytes: uint64(readSize),
		// The length of one read is added, so that a reservation never takes the place of bytes
		// that must be kept.
		ringBytes: uint64(keep + readSize),
	}
	p.roomBytes = RoomBytes + uint64(packedBytes(int(p.ringBytes)))
	copy(p.magic[:], magic)
	return p
}

// size returns the length of the whole file. The lengths in p must be valid.
func (p *preamble) size() int { return int(p.headerBytes + p.roomBytes + p.ringBytes) }

// check returns an error if p is not the preamble of a ring in a file of size bytes.
func (p *preamble) check(size int64) error {
	switch {
	case string(p.magic[:]) != magic:
		return fmt.Errorf("%w: it is not a ring", ErrDamaged)
	case p.order != sameOrder:
		return fmt.Errorf("%w: it has another byte order", ErrDamaged)
	case p.version != version:
		return fmt.Errorf("it has layout version %d, this program reads version %d", p.version, version)
	case p.headerBytes != headerBytes || p.markSlots != markSlots,
		p.roomBytes%pageBytes != 0 || p.roomBytes > maxRoomBytes,
		p.readBytes == 0 || p.readBytes > maxRead,
		p.ringBytes < MinBytes || p.ringBytes > MaxBytes+maxRead,
		p.ringBytes < 9*p.readBytes: // ReadSize promises that eight reads fit beside the one that is reserved
		return fmt.Errorf("%w: its header has lengths out of range", ErrDamaged)
	case size != int64(p.size()):
		return fmt.Errorf("%w: it is %d bytes long, its header says %d", ErrDamaged, size, p.size())
	}
	return nil
}

// bytes returns the memory of p, in the order of the file.
func (p *preamble) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)) }

// carve sets the parts of the ring to their places in the mapped file.
func (r *Ring) carve(p preamble, mem []byte) {
	r.mem = mem
	r.head = (*header)(unsafe.Pointer(unsafe.SliceData(mem)))
	bytesAt := p.headerBytes + p.roomBytes
	roomEnd := p.headerBytes + min(p.roomBytes, RoomBytes)
	r.room = mem[p.headerBytes:roomEnd:roomEnd]
	r.buf = mem[bytesAt:]
	r.blocks.carve(mem[roomEnd:bytesAt], len(r.buf))
	r.readSize = int(p.readBytes)
}

// packSize encodes a size as one word: the columns in the low 16 bits, the rows in the next 16.
func packSize(s protocol.Size) uint64 {
	return uint64(clamp16(s.Cols)) | uint64(clamp16(s.Rows))<<16
}

func clamp16(n int) uint16 { return uint16(min(max(n, 0), math.MaxUint16)) }

func unpackSize(w uint64) (protocol.Size, error) {
	if w>>32 != 0 {
		return protocol.Size{}, fmt.Errorf("resize mark has the invalid size %#x", w)
	}
	return protocol.Size{Cols: int(w & 0xffff), Rows: int(w >> 16)}, nil
}
