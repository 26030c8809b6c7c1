package ring

import (
	"math"
	"sync/atomic"
	"unsafe"

	"holdfast/shared/machine"
	"holdfast/supervisor/internal/packed"
)

// The output is read again only if a viewer reconnects, or if a program asks for it by offset. Pack therefore
// compresses the blocks of a ring to which its writer has not come close, and frees their memory. A block is
// unpacked when a byte of it is read, or when its place is needed for new output.
//
// The packed blocks are in the file, too, between the room and the output:
//
//	0          an entry for each block
//	pageBytes  a slot of blockBytes for the content of each block
//
// An entry says with one store that its block is packed. The store comes after the content of the slot is complete
// and before the memory of the block is freed; another store comes after the block is unpacked and before its
// memory is used otherwise. So whenever the writer dies, the output is in the file.

// blockBytes is the length of a block. The last block of a ring may be shorter. If blocks were shorter, much of
// each packed block's last page would be unused; if they were longer, a read would unpack more than it needs.
const blockBytes = 128 << 10

const (
	// minUsed is the number of bytes in a block from which on it is worth a page for its packed content, and one for the entries.
	minUsed = 16 << 10
	// worth says that the packed content of a block must be at most half as long as the bytes in the block.
	worth = 2
)

// entry is the entry of a block in the file.
type entry struct {
	first  atomic.Uint64 // 1 + offset of the first byte in the packed block, or 0 if the block is not packed
	length atomic.Uint64 // length of the packed content; in the upper 32 bits place.filled
}

// place tells which output is in a block.
type place struct {
	first  uint64 // offset of the first byte
	filled uint64 // if the writer continues in this block, the bytes before its place, otherwise 0
}

// blocks are the blocks of a ring that can be packed. A ring that an earlier release has made has none.
type blocks struct {
	entries  []entry
	slots    []byte
	isPacked []bool // a copy of first > 0, because another process could change the file
	count    int    // packed blocks
}

// packedBytes returns the length of entries and slots for an output of n bytes. A very long output has slots only for a
// part of its blocks.
func packedBytes(n int) int {
	slots := min((n+blockBytes-1)/blockBytes, (maxRoomBytes-RoomBytes-pageBytes)/blockBytes)
	return pageBytes + slots*blockBytes
}

// carve sets entries and slots to their places in mem, for an output of n bytes.
func (b *blocks) carve(mem []byte, n int) {
	slots := (len(mem) - pageBytes) / blockBytes
	slots = min(slots, (n+blockBytes-1)/blockBytes, pageBytes/int(unsafe.Sizeof(entry{})))
	if slots <= 0 {
		return
	}
	b.entries = unsafe.Slice((*entry)(unsafe.Pointer(unsafe.SliceData(mem))), slots)
	b.slots = mem[pageBytes:][:slots*blockBytes]
	b.isPacked = make([]bool, slots)
}

func (b *blocks) slot(i int) []byte { return b.slots[i*blockBytes:][:blockBytes] }

// block returns the memory of block i.
func (r *Ring) block(i int) []byte { return r.buf[i*blockBytes : min((i+1)*blockBytes, len(r.buf))] }

// Pack compresses the output, except for the block in which the writer has reserved memory. The ring's owner should call it
// when the output is seldom read. No memory that View returned may be in use.
func (r *Ring) Pack() {
	if !machine.CanRelease {
		return
	}
	r.disarm()
	for i := range len(r.blocks.isPacked) { // only Close changes it, which the owner calls as well
		plain, is, used := r.plainBlock(i)
		if used < minUsed {
			continue
		}
		if content := packed.Append(nil, plain); len(content) <= used/worth { // without the lock, because it takes a part of a millisecond
			r.packBlock(i, is, content)
		}
	}
}

// disarm frees the memory of the poison behind the last reservation, which was laid for longer ones.
func (r *Ring) disarm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.armed <= r.lent || r.lent < r.end || r.buf == nil {
		return
	}
	from := int(r.lent % uint64(len(r.buf)))
	part := r.buf[from : from+int(r.armed-r.lent)] // it holds no output: Reserve has dropped that
	r.armed = r.lent
	r.head.armed.Store(r.armed) // before the poison is gone
	r.release(part)
}

// plainBlock returns a copy of block i, its place, and how many of its bytes were ever written. There is no copy if the block is
// packed or must not be.
func (r *Ring) plainBlock(i int) (plain []byte, is place, used int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is, ok := r.placeOf(i)
	if !ok || r.blocks.isPacked[i] {
		return nil, is, 0
	}
	used = len(r.block(i))
	if is.filled > 0 && r.end < uint64(len(r.buf)) { // the writer has not come to the remainder yet
		used = int(is.filled)
	}
	if used < minUsed {
		return nil, is, used
	}
	return append([]byte(nil), r.block(i)...), is, used
}

// placeOf returns the place of block i. It returns false if the block has no output that is kept, or if memory in it is
// reserved or has poison. The caller must hold mu.
func (r *Ring) placeOf(i int) (is place, ok bool) {
	if i*blockBytes >= len(r.buf) {
		return is, false
	}
	n := uint64(len(r.buf))
	from, length := uint64(i*blockBytes), uint64(len(r.block(i)))
	at := r.end % n
	switch turn := r.end - at; {
	case from+length <= at:
		is.first = turn + from
	case from >= at+(r.armed-r.end) && turn >= n:
		is.first = turn - n + from
	case from < at && r.armed == r.end:
		is = place{turn + from, at - from}
	default:
		return is, false
	}
	return is, is.first+length > r.start
}

// packBlock replaces block i by its packed content, unless its place has changed meanwhile.
func (r *Ring) packBlock(i int, is place, content []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now, ok := r.placeOf(i); !ok || now != is || r.blocks.isPacked[i] {
		return
	}
	copy(r.blocks.slot(i), content)
	e := &r.blocks.entries[i]
	e.length.Store(uint64(len(content)) | is.filled<<32)
	e.first.Store(is.first + 1)
	r.blocks.isPacked[i] = true
	r.blocks.count++
	r.release(r.block(i))
}

// release frees the memory of a part of the file. If it fails, the part keeps its memory.
func (r *Ring) release(part []byte) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(r.mem)))
	_ = machine.Release(r.file, int64(at), int64(len(part)))
}

// Unpack unpacks all blocks, for a program that may not know packed blocks.
func (r *Ring) Unpack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, is := range r.blocks.isPacked {
		if is {
			r.unpackBlock(i)
		}
	}
}

// unpack unpacks the blocks with the n bytes from offset on. The caller must hold mu.
func (r *Ring) unpack(offset uint64, n int) {
	if r.blocks.count == 0 || n == 0 {
		return
	}
	at := int(offset % uint64(len(r.buf)))
	for n > 0 {
		i := at / blockBytes
		if i < len(r.blocks.isPacked) && r.blocks.isPacked[i] {
			r.unpackBlock(i)
		}
		step := i*blockBytes + len(r.block(i)) - at
		n -= step
		at = (at + step) % len(r.buf)
	}
}

// unpackBlock unpacks block i. If another process has damaged the packed content, the output is lost, and zeros, or a part of
// it, are in its place.
func (r *Ring) unpackBlock(i int) {
	e := &r.blocks.entries[i]
	slot := r.blocks.slot(i)
	_ = packed.Fill(r.block(i), slot[:min(e.length.Load()&math.MaxUint32, uint64(len(slot)))])
	e.first.Store(0)
	r.blocks.isPacked[i] = false
	r.blocks.count--
	r.release(slot)
}

// loadBlocks reads the entries. It drops entries whose block was overwritten by a program that does not know packed
// blocks.
func (r *Ring) loadBlocks() {
	for i := range r.blocks.entries {
		e := &r.blocks.entries[i]
		was := e.first.Load()
		if was == 0 {
			continue
		}
		if is, ok := r.placeOf(i); ok && is.first+1 == was && is.filled == e.length.Load()>>32 {
			r.blocks.isPacked[i] = true
			r.blocks.count++
			continue
		}
		e.first.Store(0)
		r.release(r.blocks.slot(i))
	}
}
