package journal

// The queue's file is read and written by system calls and not mapped. If the file is too short
// or memory runs out, the result is an error and not a signal. The file is a ring: the byte of
// input offset n is at n modulo the file's size. That size is the limit of the queue plus the
// length of a pipe, so that the bytes of a pipe can be put back.

// keepDirty is how many bytes of the file may stay in use while no input waits. If more are in
// use, the file is truncated.
const keepDirty = 64 << 10

// needQueue creates the queue's file if there is none, and lets the owner duplicate it before
// it is used.
func (j *Journal) needQueue() error {
	if j.queue >= 0 {
		return nil
	}
	fd, err := newFile()
	if err != nil {
		return err
	}
	j.queue = fd
	j.mayDie()
	if j.made != nil {
		j.made(j.Files())
	}
	j.mayDie()
	return nil
}

// inFile calls f for p in one or two pieces, each with its place in the file.
func (j *Journal) inFile(f func(fd int, p []byte, at int64) error, p []byte, offset uint64) error {
	for len(p) > 0 {
		at := offset % j.size
		n := int(min(uint64(len(p)), j.size-at))
		if err := f(j.queue, p[:n], int64(at)); err != nil {
			return err
		}
		offset, p = offset+uint64(n), p[n:]
	}
	return nil
}

func (j *Journal) writeQueue(p []byte, offset uint64) error {
	j.dirty += len(p)
	return j.inFile(writeFile, p, offset)
}

// readQueue returns the next n bytes of the queue, at most pipeBytes. They are valid until the
// next call.
func (j *Journal) readQueue(n int) ([]byte, error) {
	if j.scratch == nil {
		j.scratch = make([]byte, pipeBytes)
	}
	p := j.scratch[:n]
	return p, j.inFile(readFile, p, j.piped)
}

// trim frees memory if no input waits. An error of cutFile is ignored, because the file can
// still be used.
func (j *Journal) trim() {
	if j.piped != j.end {
		return
	}
	j.scratch = nil
	if j.dirty > keepDirty && cutFile(j.queue) == nil {
		j.dirty = 0
	}
}
