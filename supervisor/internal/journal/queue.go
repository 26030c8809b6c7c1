package journal

// The queue's file is read and written rather than mapped: then it may be
// shorter than it should be, and where memory runs out there is an error and no
// signal. It is a ring: the byte of input offset n lies at n modulo its size,
// which leaves room for a pipe's worth beside what may wait.

// keepDirty is how much of the file may stay in use while nothing waits, in
// bytes; above it the file is cut.
const keepDirty = 64 << 10

// needQueue makes the queue's file, and has it duplicated before it is used.
func (j *Journal) needQueue() error {
	if j.queue >= 0 {
		return nil
	}
	fd, err := newFile()
	if err != nil {
		return err
	}
	j.queue = fd
	j.at()
	if j.made != nil {
		j.made(j.Files())
	}
	j.at()
	return nil
}

// inFile calls f for p in one or two pieces, with where they lie.
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

// readQueue returns the next n bytes, at most pipeBytes. They are valid until
// the next call.
func (j *Journal) readQueue(n int) ([]byte, error) {
	if j.scratch == nil {
		j.scratch = make([]byte, pipeBytes)
	}
	p := j.scratch[:n]
	return p, j.inFile(readFile, p, j.piped)
}

// trim gives memory back once nothing waits. A file that cannot be cut is as
// good as it was.
func (j *Journal) trim() {
	if j.piped != j.end {
		return
	}
	j.scratch = nil
	if j.dirty > keepDirty && cutFile(j.queue) == nil {
		j.dirty = 0
	}
}
