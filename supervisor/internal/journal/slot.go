package journal

import (
	"sync/atomic"

	"holdfast/protocol"
)

const maxName = protocol.MaxIDLen

// A slot is a writer in the room: four words and its name. It is made and
// forgotten by one store, of the name's length.
type slot struct {
	room room
	n    int // from 0; noSlot for input without a writer
}

const noSlot = -1

const (
	slotLength   = 8 * iota // of the name; 0 is a free slot
	slotAccepted            // bytes accepted from this writer
	slotUsed                // the clock of the table when it last wrote or attached
	slotAttempt             // the caller's
	slotName
)

func (s slot) at(field int) *uint64 { return s.room.at(headBytes + s.n*slotBytes + field) }

func (s slot) load(field int) uint64     { return atomic.LoadUint64(s.at(field)) }
func (s slot) store(field int, v uint64) { atomic.StoreUint64(s.at(field), v) }

func (s slot) bytes() []byte {
	at := headBytes + s.n*slotBytes + slotName
	return s.room[at : at+maxName]
}

// name returns "" for a free slot, and false for one that cannot be.
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
