package journal

import (
	"fmt"

	"holdfast/protocol"
)

// maxIdle is how many writers that are not attached are remembered; the longest
// silent goes first.
const maxIdle = 1024

// writers finds the slots by name.
type writers struct {
	byName map[string]*writer
	free   []int // slots below used
	used   int   // slots that ever were: pages behind them were never touched
	clock  uint64
}

type writer struct {
	slot
	attached int    // attachments of this name; after a crash they attach again
	move     uint64 // of its last attachment, see SetAttempt; after a crash it is 0
}

// newWriters reads the table that a room holds.
func newWriters(r room) (writers, error) {
	t := writers{byName: map[string]*writer{}}
	if n := r.load(wordSlots); n <= slots {
		t.used = int(n)
	} else {
		return t, fmt.Errorf("%w: %d writers", ErrDamaged, n)
	}
	for n := range t.used {
		s := slot{r, n}
		name, ok := s.name()
		switch {
		case !ok || name != "" && t.byName[name] != nil:
			return t, fmt.Errorf("%w: writer %d", ErrDamaged, n)
		case name == "":
			t.free = append(t.free, n)
		default:
			t.byName[name] = &writer{slot: s}
			t.clock = max(t.clock, s.load(slotUsed))
		}
	}
	return t, nil
}

// writer returns the named writer, a new one beginning at 0.
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
	if len(t.free) == 0 && t.used == slots {
		return nil, ErrWriters
	}
	w := &writer{slot: slot{j.room, j.freeSlot()}}
	copy(w.bytes(), name)
	w.store(slotAccepted, 0)
	w.store(slotUsed, t.clock)
	w.store(slotAttempt, 0)
	j.at()
	w.store(slotLength, uint64(len(name)))
	j.at()
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
	t.used++
	j.room.store(wordSlots, uint64(t.used))
	j.at()
	return t.used - 1
}

// forgetOldest spares the attached ones: their clients go on from an offset. It
// takes one of fewer than maxIdle only where the table is full.
func (j *Journal) forgetOldest() {
	t := &j.writers
	idle, oldest, at := 0, "", ^uint64(0)
	for name, w := range t.byName {
		if w.attached > 0 {
			continue
		}
		idle++
		if used := w.load(slotUsed); used <= at {
			oldest, at = name, used
		}
	}
	if idle == 0 || idle < maxIdle && (len(t.free) > 0 || t.used < slots) {
		return
	}
	w := t.byName[oldest]
	w.store(slotLength, 0)
	j.at()
	t.free = append(t.free, w.n)
	delete(t.byName, oldest)
}

// Writer returns how far the named writer's input is accepted, and the number
// it was last given by SetAttempt. A writer that is not known begins at 0, and
// is known from then on. Errors: ErrName, ErrWriters.
func (j *Journal) Writer(name string) (accepted, attempt uint64, err error) {
	w, err := j.writer(name)
	if err != nil {
		return 0, 0, err
	}
	return w.load(slotAccepted), w.load(slotAttempt), nil
}

// Known is how many writers are.
func (j *Journal) Known() int { return len(j.writers.byName) }

// SetAttempt keeps a number for a writer, which outlives the process, and how often the
// attachment of that number was moved, which does not.
func (j *Journal) SetAttempt(name string, n, move uint64) error {
	w, err := j.writer(name)
	if err == nil {
		w.store(slotAttempt, n)
		w.move = move
	}
	return err
}

// Move returns the second number that SetAttempt was given last, 0 for a writer that is not
// known.
func (j *Journal) Move(name string) uint64 {
	if w := j.writers.byName[name]; w != nil {
		return w.move
	}
	return 0
}

// Attach keeps a writer from being forgotten until as many calls of Detach. The
// count is this process's alone.
func (j *Journal) Attach(name string) error {
	w, err := j.writer(name)
	if err == nil {
		w.attached++
	}
	return err
}

// Detach undoes one Attach.
func (j *Journal) Detach(name string) {
	if w := j.writers.byName[name]; w != nil && w.attached > 0 {
		w.attached--
	}
}
