package journal

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// RoomBytes is how much memory a journal is given: a few words and the table of
// writers, of which 1024 may be idle (maxIdle) and as many again attached. A
// page that no writer lies in is never touched, which in a shared file would
// make it take memory.
const RoomBytes = 192 << 10

// The words of a room, 8 bytes each, in the machine's order.
const (
	wordVersion = iota
	wordSize    // bytes of the queue's file
	wordDoing   // what is under way: a doing, and above doingBits the slot of its writer + 1, or 0
	wordPiped   // bytes that went into the pipe
	wordEnd     // bytes accepted
	wordSlots   // writers there ever were at a time
	// The intent, valid while something is under way.
	wordTyped    // bytes typed
	wordBase     // piped, or for queueing end, before it
	wordLength   // bytes that are to come
	wordAccepted // the writer's offset before it
	wordCount    // and how far that is to go
	wordsUsed
)

// The rest of headBytes is for later versions.
const (
	headBytes = 128
	slotBytes = 32 + maxName
	slots     = (RoomBytes - headBytes) / slotBytes
)

// version is 0x484f4c446a000000 ("HOLDj") + the layout's number. A zero room is
// one where nothing has happened.
const version = 0x484f4c446a000001

// A doing is what the process that died was about.
//
//	resting ⇄ filling    queue to pipe
//	resting ⇄ pouring    a writer's bytes straight to the pipe
//	resting ⇄ queueing   a writer's bytes into the queue: they are there
type doing uint64

const (
	resting doing = iota
	filling
	pouring
	queueing
	doings

	doingBits = 8
)

// A room's words are written by one goroutine; stores are atomic so that they
// become visible whole and in order, which is all that a death leaves.
type room []byte

func asRoom(b []byte) (room, error) {
	if len(b) < RoomBytes || uintptr(unsafe.Pointer(&b[0]))%8 != 0 {
		return nil, fmt.Errorf("journal: a room of %d bytes, want %d on a multiple of 8", len(b), RoomBytes)
	}
	return b[:RoomBytes:RoomBytes], nil
}

func (r room) at(byteOffset int) *uint64 { return (*uint64)(unsafe.Pointer(&r[byteOffset])) }

func (r room) load(word int) uint64     { return atomic.LoadUint64(r.at(8 * word)) }
func (r room) store(word int, v uint64) { atomic.StoreUint64(r.at(8*word), v) }
