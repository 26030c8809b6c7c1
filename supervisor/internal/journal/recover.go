package journal

import (
	"fmt"
	"math"
)

// Adopt returns the journal of another process. That process must have ended with all its
// threads, which is certain when its parent has reaped it. If Adopt succeeds, the journal owns
// the files. If the room b is zero, the journal is new and empty.
//
// The error matches ErrVersion, or ErrDamaged if the room and the files do not belong together.
func Adopt(b []byte, files Files, cfg Config) (*Journal, error) {
	r, err := asRoom(b)
	if err != nil {
		return nil, err
	}
	limit := min(max(cfg.Max, 0), maxMax)
	if limit == 0 {
		limit = defaultMax
	}
	switch r.load(wordVersion) {
	case 0:
		r.store(wordSize, uint64(limit)+pipeBytes)
		r.store(wordVersion, version)
	case version:
	default:
		if r.load(wordVersion)>>8 != version>>8 {
			return nil, fmt.Errorf("%w: the room has no version", ErrDamaged)
		}
		return nil, ErrVersion
	}
	j := &Journal{room: r, made: cfg.Made, step: cfg.step, pipe: files.Pipe, queue: files.Queue, size: r.load(wordSize)}
	if j.size <= pipeBytes || j.size > maxMax+pipeBytes {
		return nil, fmt.Errorf("%w: invalid queue size of %d bytes", ErrDamaged, j.size)
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

// recover finishes the operation that was in progress, as far as the pipe's length shows that
// it happened, and corrects the counters in the room. It computes every value from the intent
// and the pipe alone. If this process dies as well, the next one therefore computes the same
// values.
func (j *Journal) recover() error {
	var err error
	if j.writers, err = newWriters(j.room); err != nil {
		return err
	}
	r := j.room
	j.piped, j.end = r.load(wordPiped), r.load(wordEnd)
	word := r.load(wordOperation)
	d, w := operation(word&(1<<operationBits-1)), word>>operationBits
	if d >= operationCount || w > uint64(j.writers.usedCount) {
		return fmt.Errorf("%w: invalid operation %#x", ErrDamaged, word)
	}
	if d != idle {
		if err := j.finish(d, slot{r, int(w) - 1}); err != nil {
			return err
		}
	}
	if err := j.check(); err != nil {
		return err
	}
	r.store(wordPiped, j.piped)
	j.mayDie()
	r.store(wordEnd, j.end)
	j.settle()
	return nil
}

func (j *Journal) finish(d operation, w slot) error {
	r := j.room
	base, length, count := r.load(wordBase), r.load(wordLength), r.load(wordCount)
	if length > maxMax || count > math.MaxInt32 || base > maxOffset {
		return fmt.Errorf("%w: invalid intent of %d bytes from offset %d on", ErrDamaged, length, base)
	}
	n := length
	if d != queueing { // wordPiped may be stale; wordDelivered is right
		j.piped = r.load(wordDelivered) + uint64(j.inPipe)
		if n = j.piped - base; n > length {
			return fmt.Errorf("%w: %d bytes were written into the pipe, but the operation had %d", ErrDamaged, n, length)
		}
	}
	if d == filling {
		return nil
	}
	j.end = base + n
	if w.n != noSlot {
		w.store(slotAccepted, r.load(wordAccepted)+advanced(int(n), int(length), int(count)))
		j.mayDie()
	}
	return nil
}

// maxOffset is far more than a session ever receives, and so small that sums cannot overflow.
const maxOffset = 1 << 62

// check compares the counters with each other and with the files.
func (j *Journal) check() error {
	switch {
	case j.end > maxOffset || j.piped > j.end || j.end-j.piped > j.size-pipeBytes:
		return fmt.Errorf("%w: %d bytes accepted, %d piped", ErrDamaged, j.end, j.piped)
	case uint64(j.inPipe) > j.piped || j.inPipe > pipeBytes:
		return fmt.Errorf("%w: the pipe holds %d bytes, but %d were written into it", ErrDamaged, j.inPipe, j.piped)
	case j.queue < 0 && j.piped == j.end:
		return nil
	}
	size, err := fileSize(j.queue)
	if err != nil {
		return fmt.Errorf("%w: cannot read the size of the queue's file: %w", ErrDamaged, err)
	}
	j.dirty = int(min(max(size, 0), maxMax))
	return nil
}
