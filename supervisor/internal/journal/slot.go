package journal

import (
	"sync/atomic"

	"holdfast/protocol"
)

const maxName = protocol.MaxIDLen

// A slot is the place of one writer in the room: four words and its name. One store to the
// length of the name makes the slot used or free.
type slot struct {
	room room
	n    int // index from 0; noSlot for input without a writer
}

const noSlot = -1

const (
	slotLength   = 8 * iota // length of the name; 0: the slot is free
	slotAccepted            // bytes accepted from this writer
	slotUsed                // the table's clock when the writer last wrote or was attached
	slotAttempt             // number given by SetAttempt
	slotName
)

func (s slot) at(field int) *uint64 { return s.room.at(headBytes + s.n*slotBytes + field) }

func (s slot) load(field int) uint64     { return atomic.LoadUint64(s.at(field)) }
func (s slot) store(field int, v uint64) { atomic.StoreUint64(s.at(field), v) }

func (s slot) bytes() []byte {
	at := headBytes + s.n*slotBytes + slotName
	return s.room[at : at+maxName]
}

// name returns the writer's name, or "" for a free slot. It returns false if the slot holds an
// invalid name.
func (s slot) name() (string, bool) {
	n := s.load(slotLength)
	if n == 0 {
		return "", true
	}
	if n > maxName {
		return "", false
	}
	name := string(s.bytes()[:n])
	return name, protocol.ValidID(name)
}
