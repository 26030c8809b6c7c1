package journal

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// RoomBytes is the length of a room. It holds a few words and the table of writers, which has
// slots for 1024 idle writers (maxIdle) and as many attached ones. A page without a writer is
// never written to, so it takes no memory in a shared file.
const RoomBytes = 192 << 10

// The words of a room, 8 bytes each, in the machine's byte order.
const (
	wordVersion   = iota
	wordSize      // bytes of the queue's file
	wordOperation // the operation in progress, and above operationBits the slot of its writer + 1, or 0 without a writer
	wordPiped     // bytes that were written into the pipe
	wordEnd       // bytes that were accepted
	wordSlots     // number of slots that were ever used
	// The intent, valid while an operation is in progress.
	wordDelivered // bytes that were delivered to the terminal
	wordBase      // wordPiped before the operation; for queueing, wordEnd
	wordLength    // bytes that the operation moves
	wordAccepted  // the writer's offset before the operation
	wordCount     // bytes by which the writer's offset is to advance
	wordsUsed
)

// The bytes between the words and headBytes are reserved for later versions.
const (
	headBytes = 128
	slotBytes = 32 + maxName
	slots     = (RoomBytes - headBytes) / slotBytes
)

// version is 0x484f4c446a000000 ("HOLDj") + the number of the layout. A zero room has version
// 0: it was never used.
const version = 0x484f4c446a000001

// An operation is a change of several words that was in progress when the process died.
//
//	idle ⇄ filling    queue to pipe
//	idle ⇄ pouring    a writer's bytes directly to the pipe
//	idle ⇄ queueing   a writer's bytes into the queue, whose file holds them already
type operation uint64

const (
	idle operation = iota
	filling
	pouring
	queueing
	operationCount

	operationBits = 8
)

// A room is written by one goroutine. Stores are atomic, so that each word becomes visible
// whole and in order, which is all that a process leaves when it dies.
type room []byte

func asRoom(b []byte) (room, error) {
	if len(b) < RoomBytes || uintptr(unsafe.Pointer(&b[0]))%8 != 0 {
		return nil, fmt.Errorf("journal: room has %d bytes, want %d at an address that is a multiple of 8", len(b), RoomBytes)
	}
	return b[:RoomBytes:RoomBytes], nil
}

func (r room) at(byteOffset int) *uint64 { return (*uint64)(unsafe.Pointer(&r[byteOffset])) }

func (r room) load(word int) uint64     { return atomic.LoadUint64(r.at(8 * word)) }
func (r room) store(word int, v uint64) { atomic.StoreUint64(r.at(8*word), v) }
