package journal

import "math"

// Accept takes what there is room for of a writer's input, whose first byte has
// the given offset, and returns how far the writer's input is accepted now and
// how many bytes of p that took. What was accepted before is skipped, so sending
// again after a doubt is harmless.
//
// Fewer bytes without an error mean that the queue is full. Errors: ErrGap,
// ErrOverflow, ErrName, ErrWriters, and the system's where the queue's file
// cannot be made or written; accepted and n hold with each of them.
func (j *Journal) Accept(name string, offset uint64, p []byte) (accepted uint64, n int, err error) {
	w, err := j.writer(name)
	if err != nil {
		return 0, 0, err
	}
	accepted = w.load(slotAccepted)
	end := offset + uint64(len(p))
	switch {
	case end < offset:
		return accepted, 0, ErrOverflow
	case offset > accepted:
		return accepted, 0, ErrGap
	case end <= accepted:
		return accepted, 0, nil
	}
	n, err = j.take(w.slot, p[accepted-offset:])
	return accepted + uint64(n), n, err
}

// Append takes input without a writer, as much as there is room for. All that
// Room says is taken, unless the queue's file cannot be made or written.
func (j *Journal) Append(p []byte) (n int, err error) {
	return j.take(slot{j.room, noSlot}, p)
}

// Replace takes the next count bytes of a writer's input for read, with p typed
// in their place: both or neither, as it returns. p may be empty. A pipe takes up
// to 4096 bytes whole or not at all (PIPE_BUF); more go by way of the queue.
func (j *Journal) Replace(name string, count int, p []byte) (bool, error) {
	w, err := j.writer(name)
	switch {
	case err != nil:
		return false, err
	case count < 0 || count > math.MaxInt32 || w.load(slotAccepted)+uint64(count) < w.load(slotAccepted):
		return false, ErrOverflow
	case len(p) == 0:
		w.store(slotAccepted, w.load(slotAccepted)+uint64(count))
		return true, nil
	}
	if len(p) <= atomicWrite && j.mayPour() && len(p) <= pipeBytes-j.inPipe {
		if n, err := j.pour(w.slot, p, count); n > 0 || err != nil {
			return n > 0, err
		}
	}
	if len(p) > j.Room() {
		return false, nil
	}
	err = j.enqueue(w.slot, p, count)
	return err == nil, err
}

const atomicWrite = 4096 // PIPE_BUF

// Refuse takes back that the last n bytes of a writer's input were accepted, for
// one that was not told so, after Drop has forgotten them: a terminal that takes
// none now may take them when they come again.
func (j *Journal) Refuse(name string, n int) error {
	w, err := j.writer(name)
	switch {
	case err != nil:
		return err
	case n < 0 || uint64(n) > w.load(slotAccepted):
		return ErrOverflow
	}
	w.store(slotAccepted, w.load(slotAccepted)-uint64(n))
	return nil
}

// take pours what fits and queues the rest.
func (j *Journal) take(w slot, p []byte) (n int, err error) {
	if j.mayPour() {
		fits := p[:min(len(p), pipeBytes-j.inPipe)] // the system may round its size up
		if n, err = j.pour(w, fits, len(fits)); err != nil {
			return n, err
		}
		p = p[n:]
	}
	p = p[:min(len(p), j.Room())]
	if len(p) == 0 {
		return n, nil
	}
	if err := j.enqueue(w, p, len(p)); err != nil {
		return n, err
	}
	return n + len(p), nil
}

// mayPour reports whether a writer's bytes are the next to go into the pipe, and
// it has room.
func (j *Journal) mayPour() bool { return j.pipe >= 0 && j.piped == j.end && j.inPipe < pipeBytes }

// pour puts what the pipe takes of p into it. The pipe's length tells a
// successor how much that was.
func (j *Journal) pour(w slot, p []byte, count int) (int, error) {
	j.begin(pouring, w, j.piped, len(p), count)
	n, err := writePipe(j.pipe, p)
	j.at()
	if n > 0 {
		j.inPipe += n
		j.piped += uint64(n)
		j.end = j.piped
		j.advance(w, advanced(n, len(p), count))
		j.room.store(wordPiped, j.piped)
		j.at()
		j.room.store(wordEnd, j.end)
	}
	j.rest()
	return n, err
}

// advanced is how far a writer has come when n of length bytes stand for count
// of its own: where the numbers differ, n is length or 0.
func advanced(n, length, count int) uint64 {
	if n == length {
		return uint64(count)
	}
	return uint64(min(n, count))
}

// enqueue copies all of p behind the queue's end, for which there is room, and
// only then makes it part of the queue.
func (j *Journal) enqueue(w slot, p []byte, count int) error {
	if err := j.needQueue(); err != nil {
		return err
	}
	if err := j.writeQueue(p, j.end); err != nil {
		return err
	}
	j.at()
	j.begin(queueing, w, j.end, len(p), count)
	j.end += uint64(len(p))
	j.advance(w, uint64(count))
	j.room.store(wordEnd, j.end)
	j.rest()
	return nil
}

// begin writes an intent, of length bytes from base on that stand for count of
// the writer's, and makes it so with one store.
func (j *Journal) begin(d doing, w slot, base uint64, length, count int) {
	r := j.room
	r.store(wordTyped, j.piped-uint64(j.inPipe))
	r.store(wordBase, base)
	r.store(wordLength, uint64(length))
	r.store(wordCount, uint64(count))
	if w.n != noSlot {
		r.store(wordAccepted, w.load(slotAccepted))
	}
	j.at()
	r.store(wordDoing, uint64(d)|uint64(w.n+1)<<doingBits)
	j.at()
}

// rest says that all counters are right.
func (j *Journal) rest() {
	j.at()
	j.room.store(wordDoing, uint64(resting))
	j.at()
}

func (j *Journal) advance(w slot, n uint64) {
	if w.n != noSlot {
		w.store(slotAccepted, w.load(slotAccepted)+n)
		j.at()
	}
}
