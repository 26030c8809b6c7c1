package journal

import "math"

// Accept accepts as much of a writer's input as there is room for. offset is the writer's
// offset of the first byte of p. accepted is the writer's new offset, and n is the number of
// bytes of p that this call accepted. Bytes before the writer's present offset are skipped, so
// a client may send input again if it does not know whether the input was accepted.
//
// If fewer bytes than p were accepted and err is nil, the queue is full. The error is ErrGap,
// ErrOverflow, ErrName or ErrWriters, or the system's error if the queue's file cannot be
// created or written. accepted and n are valid with every error.
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
	n, err = j.accept(w.slot, p[accepted-offset:])
	return accepted + uint64(n), n, err
}

// Append accepts as much of p as there is room for, without a writer. It accepts at least as
// many bytes as Room returns, unless the queue's file cannot be created or written.
func (j *Journal) Append(p []byte) (n int, err error) {
	return j.accept(slot{j.room, noSlot}, p)
}

// Replace advances a writer's offset by count bytes, and accepts p as input in their place. It
// does both or neither, and reports whether it did. p may be empty. A pipe accepts up to 4096
// bytes whole or not at all (PIPE_BUF); a longer p goes through the queue.
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
	if len(p) <= atomicWrite && j.canPour() && len(p) <= pipeBytes-j.inPipe {
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

// Refuse decreases a writer's offset by n. It must be called only after Drop, and only for
// bytes that were not reported to the writer as accepted. The writer's client will send these
// bytes again, and the terminal may accept them then.
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

// accept writes as much of p as fits into the pipe, and puts the remainder into the queue.
func (j *Journal) accept(w slot, p []byte) (n int, err error) {
	if j.canPour() {
		fits := p[:min(len(p), pipeBytes-j.inPipe)] // the system may round the size of the pipe up
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

// canPour reports whether a writer's bytes may go directly into the pipe: the queue is empty
// and the pipe has room.
func (j *Journal) canPour() bool { return j.pipe >= 0 && j.piped == j.end && j.inPipe < pipeBytes }

// pour writes as much of p into the pipe as the pipe accepts. If this process dies, its
// successor computes that number from the pipe's length.
func (j *Journal) pour(w slot, p []byte, count int) (int, error) {
	j.begin(pouring, w, j.piped, len(p), count)
	n, err := writePipe(j.pipe, p)
	j.mayDie()
	if n > 0 {
		j.inPipe += n
		j.piped += uint64(n)
		j.end = j.piped
		j.advance(w, advanced(n, len(p), count))
		j.room.store(wordPiped, j.piped)
		j.mayDie()
		j.room.store(wordEnd, j.end)
	}
	j.settle()
	return n, err
}

// advanced returns how far a writer's offset advances if n of length bytes were accepted and
// all of them stand for count bytes of the writer. If length and count differ, n is length or
// 0.
func advanced(n, length, count int) uint64 {
	if n == length {
		return uint64(count)
	}
	return uint64(min(n, count))
}

// enqueue copies all of p behind the end of the queue, and only then makes it part of the
// queue. The queue must have room for it.
func (j *Journal) enqueue(w slot, p []byte, count int) error {
	if err := j.needQueue(); err != nil {
		return err
	}
	if err := j.writeQueue(p, j.end); err != nil {
		return err
	}
	j.mayDie()
	j.begin(queueing, w, j.end, len(p), count)
	j.end += uint64(len(p))
	j.advance(w, uint64(count))
	j.room.store(wordEnd, j.end)
	j.settle()
	return nil
}

// begin writes an intent to the room: length bytes follow the offset base, and stand for count
// bytes of the writer. One store to wordOperation makes the intent valid.
func (j *Journal) begin(d operation, w slot, base uint64, length, count int) {
	r := j.room
	r.store(wordDelivered, j.piped-uint64(j.inPipe))
	r.store(wordBase, base)
	r.store(wordLength, uint64(length))
	r.store(wordCount, uint64(count))
	if w.n != noSlot {
		r.store(wordAccepted, w.load(slotAccepted))
	}
	j.mayDie()
	r.store(wordOperation, uint64(d)|uint64(w.n+1)<<operationBits)
	j.mayDie()
}

// settle marks the end of an operation: all counters in the room are right.
func (j *Journal) settle() {
	j.mayDie()
	j.room.store(wordOperation, uint64(idle))
	j.mayDie()
}

func (j *Journal) advance(w slot, n uint64) {
	if w.n != noSlot {
		w.store(slotAccepted, w.load(slotAccepted)+n)
		j.mayDie()
	}
}
