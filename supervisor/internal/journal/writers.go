package journal

import (
	"fmt"

	"holdfast/protocol"
)

// maxIdle is the number of writers without an attachment that are kept. Beyond it, the one that
// has been idle for the longest time is forgotten.
const maxIdle = 1024

// writers is the table of writers; it finds slots by name.
type writers struct {
	byName    map[string]*writer
	free      []int // free slots below usedCount
	usedCount int   // number of slots that were ever used; the memory behind them was never written to
	clock     uint64
}

type writer struct {
	slot
	attached int    // number of attachments of this name; 0 after a crash, because clients attach again
	move     uint64 // move number of its last attachment, see SetAttempt; 0 after a crash
}

// newWriters reads the table of writers from a room.
func newWriters(r room) (writers, error) {
	t := writers{byName: map[string]*writer{}}
	if n := r.load(wordSlots); n <= slots {
		t.usedCount = int(n)
	} else {
		return t, fmt.Errorf("%w: invalid number of slots: %d", ErrDamaged, n)
	}
	for n := range t.usedCount {
		s := slot{r, n}
		name, ok := s.name()
		switch {
		case !ok || name != "" && t.byName[name] != nil:
			return t, fmt.Errorf("%w: slot %d has an invalid or repeated name", ErrDamaged, n)
		case name == "":
			t.free = append(t.free, n)
		default:
			t.byName[name] = &writer{slot: s}
			t.clock = max(t.clock, s.load(slotUsed))
		}
	}
	return t, nil
}

// writer returns the writer of that name. A new writer begins at offset 0.
func (j *Journal) writer(name string) (*writer, error) {
	t := &j.writers
	w := t.byName[name]
	if w == nil {
		var err error
		if w, err = j.newWriter(name); err != nil {
			return nil, err
		}
	}
	t.clock++
	w.store(slotUsed, t.clock)
	return w, nil
}

func (j *Journal) newWriter(name string) (*writer, error) {
	if !protocol.ValidID(name) {
		return nil, fmt.Errorf("%w: %.80q", ErrName, name)
	}
	t := &j.writers
	if len(t.byName) >= maxIdle {
		j.forgetOldest()
	}
	if len(t.free) == 0 && t.usedCount == slots {
		return nil, ErrWriters
	}
	w := &writer{slot: slot{j.room, j.freeSlot()}}
	copy(w.bytes(), name)
	w.store(slotAccepted, 0)
	w.store(slotUsed, t.clock)
	w.store(slotAttempt, 0)
	j.mayDie()
	w.store(slotLength, uint64(len(name)))
	j.mayDie()
	t.byName[name] = w
	return w, nil
}

func (j *Journal) freeSlot() int {
	t := &j.writers
	if last := len(t.free) - 1; last >= 0 {
		n := t.free[last]
		t.free = t.free[:last]
		return n
	}
	t.usedCount++
	j.room.store(wordSlots, uint64(t.usedCount))
	j.mayDie()
	return t.usedCount - 1
}

// forgetOldest frees the slot of the writer that has been idle for the longest time, if there
// are maxIdle idle writers or the table is full. It never frees the slot of an attached writer,
// because its client continues at an offset.
func (j *Journal) forgetOldest() {
	t := &j.writers
	idleCount, oldest, at := 0, "", ^uint64(0)
	for name, w := range t.byName {
		if w.attached > 0 {
			continue
		}
		idleCount++
		if used := w.load(slotUsed); used <= at {
			oldest, at = name, used
		}
	}
	if idleCount == 0 || idleCount < maxIdle && (len(t.free) > 0 || t.usedCount < slots) {
		return
	}
	w := t.byName[oldest]
	w.store(slotLength, 0)
	j.mayDie()
	t.free = append(t.free, w.n)
	delete(t.byName, oldest)
}

// Writer returns the offset up to which the named writer's input is accepted, and the number
// that SetAttempt last gave it. An unknown name becomes a writer at offset 0. The error matches
// ErrName or ErrWriters.
func (j *Journal) Writer(name string) (accepted, attempt uint64, err error) {
	w, err := j.writer(name)
	if err != nil {
		return 0, 0, err
	}
	return w.load(slotAccepted), w.load(slotAttempt), nil
}

// Known returns the number of writers in the table.
func (j *Journal) Known() int { return len(j.writers.byName) }

// SetAttempt stores two numbers for a writer. n outlives the process. move, which counts how
// often the attachment of that number was moved to another connection, does not.
func (j *Journal) SetAttempt(name string, n, move uint64) error {
	w, err := j.writer(name)
	if err == nil {
		w.store(slotAttempt, n)
		w.move = move
	}
	return err
}

// Move returns the move number that SetAttempt last stored, or 0 for an unknown writer.
func (j *Journal) Move(name string) uint64 {
	if w := j.writers.byName[name]; w != nil {
		return w.move
	}
	return 0
}

// Attach protects a writer from being forgotten until Detach is called as often. The count is
// not in the room, so it ends with this process.
func (j *Journal) Attach(name string) error {
	w, err := j.writer(name)
	if err == nil {
		w.attached++
	}
	return err
}

// Detach cancels one Attach.
func (j *Journal) Detach(name string) {
	if w := j.writers.byName[name]; w != nil && w.attached > 0 {
		w.attached--
	}
}
