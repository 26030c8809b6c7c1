package journal

import (
	"fmt"
	"math"
)

// Adopt goes on with what a process left that has ended, all its threads
// included, as it has when its parent has collected it. The files become the
// journal's if there is no error; a zero room is a new one.
//
// Errors: ErrVersion, and ErrDamaged where room and files do not belong together.
func Adopt(b []byte, files Files, cfg Config) (*Journal, error) {
	r, err := asRoom(b)
	if err != nil {
		return nil, err
	}
	limit := min(max(cfg.Max, 0), maxMax)
	if limit == 0 {
		limit = DefaultMax
	}
	switch r.load(wordVersion) {
	case 0:
		r.store(wordSize, uint64(limit)+pipeBytes)
		r.store(wordVersion, version)
	case version:
	default:
		return nil, ErrVersion
	}
	j := &Journal{room: r, made: cfg.Made, step: cfg.step, pipe: files.Pipe, queue: files.Queue, size: r.load(wordSize)}
	if j.size <= pipeBytes || j.size > maxMax+pipeBytes {
		return nil, fmt.Errorf("%w: a queue of %d bytes", ErrDamaged, j.size)
	}
	j.max = min(limit, int(j.size)-pipeBytes)
	if j.inPipe, err = setUpPipe(files.Pipe); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	closeOnExec(files.Queue)
	if err := j.recover(); err != nil {
		return nil, err
	}
	return j, nil
}

// recover makes the room right: it finishes what was under way, as far as the
// pipe says that it happened. All stores are of values that follow from the
// intent and the pipe, so dying here as well is harmless.
func (j *Journal) recover() error {
	var err error
	if j.writers, err = newWriters(j.room); err != nil {
		return err
	}
	r := j.room
	j.piped, j.end = r.load(wordPiped), r.load(wordEnd)
	word := r.load(wordDoing)
	d, w := doing(word&(1<<doingBits-1)), word>>doingBits
	if d >= doings || w > uint64(j.writers.used) {
		return fmt.Errorf("%w: doing %#x", ErrDamaged, word)
	}
	if d != resting {
		if err := j.finish(d, slot{r, int(w) - 1}); err != nil {
			return err
		}
	}
	if err := j.check(); err != nil {
		return err
	}
	r.store(wordPiped, j.piped)
	j.at()
	r.store(wordEnd, j.end)
	j.rest()
	return nil
}

func (j *Journal) finish(d doing, w slot) error {
	r := j.room
	base, length, count := r.load(wordBase), r.load(wordLength), r.load(wordCount)
	if length > maxMax || count > math.MaxInt32 || base > maxOffset {
		return fmt.Errorf("%w: an intent of %d bytes from %d on", ErrDamaged, length, base)
	}
	n := length
	if d != queueing { // piped is the counter that may be stale, typed is right
		j.piped = r.load(wordTyped) + uint64(j.inPipe)
		if n = j.piped - base; n > length {
			return fmt.Errorf("%w: %d of %d bytes went into the pipe", ErrDamaged, n, length)
		}
	}
	if d == filling {
		return nil
	}
	j.end = base + n
	if w.n != noSlot {
		w.store(slotAccepted, r.load(wordAccepted)+advanced(int(n), int(length), int(count)))
		j.at()
	}
	return nil
}

// maxOffset is far beyond what is ever typed, and far from an overflow.
const maxOffset = 1 << 62

// check holds the counters to each other and to the files.
func (j *Journal) check() error {
	switch {
	case j.end > maxOffset || j.piped > j.end || j.end-j.piped > j.size-pipeBytes:
		return fmt.Errorf("%w: %d bytes accepted, %d piped", ErrDamaged, j.end, j.piped)
	case uint64(j.inPipe) > j.piped || j.inPipe > pipeBytes:
		return fmt.Errorf("%w: %d bytes in the pipe, %d went into it", ErrDamaged, j.inPipe, j.piped)
	case j.queue < 0 && j.piped == j.end:
		return nil
	}
	size, err := fileSize(j.queue)
	if err != nil {
		return fmt.Errorf("%w: the queue's file: %w", ErrDamaged, err)
	}
	j.dirty = int(min(max(size, 0), maxMax))
	return nil
}
