package ring

import (
	"errors"
	"fmt"
	"io"
	"os"

	"holdfast/shared/machine"
)

// Adopt returns the ring of a process that has ended, or of the program that this process ran
// before an exec. rescued is the number of bytes that a read(2) had written and that were not
// committed; Adopt commits them, so they are the last bytes of the ring. No other process may
// write to the ring from here on.
//
// Adopt owns file, and closes it if it fails. It fails for every file that is not a ring made
// by New, such as a file that was truncated or that another program has made, also with
// malicious content. The error matches ErrDamaged if the content is the reason, and neither a
// later version of the ring nor a failure of the system.
func Adopt(file *os.File) (r *Ring, rescued int, err error) {
	if r, err = adopt(file); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("ring: adopt: %w", err), file.Close())
	}
	return r, r.rescue(), nil
}

func adopt(file *os.File) (*Ring, error) {
	p, err := readPreamble(file)
	if err != nil {
		return nil, err
	}
	if err := checkSeals(file); err != nil {
		return nil, err
	}
	mem, err := mapFile(file, p.size())
	if err != nil {
		return nil, err
	}
	r := newUnmapped(file)
	r.carve(p, mem)
	if err := r.load(); err != nil {
		return nil, errors.Join(err, unmap(mem))
	}
	return r, nil
}

// readPreamble reads the preamble from the file. It does not read it from a mapping, because an
// access behind the end of a file that is too short would kill this process with SIGBUS.
func readPreamble(file *os.File) (p preamble, err error) {
	info, err := file.Stat()
	if err != nil {
		return p, err
	}
	_, err = file.ReadAt(p.bytes(), 0)
	switch {
	case errors.Is(err, io.EOF):
		return p, fmt.Errorf("%w: it is shorter than its header", ErrDamaged)
	case err != nil:
		return p, err
	}
	return p, p.check(info.Size())
}

// load copies the fields of the header that change, and checks them. It reads each word once,
// and the ring uses only the copies, so that another process that has the file cannot change
// them after the check.
func (r *Ring) load() error {
	end, armed, finished := r.head.end.Load(), r.head.armed.Load(), r.head.finished.Load()
	if end > maxOffset || armed < end || armed > end+uint64(r.ahead(end)) || finished > 1 {
		return fmt.Errorf("%w: end %d, armed %d and finished %d do not go together", ErrDamaged, end, armed, finished)
	}
	marks, err := r.head.loadMarks(end)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	r.end, r.armed, r.isFinished, r.marks = end, armed, finished == 1, marks
	r.loadBlocks()
	// The writer may have died while it reserved memory for the longest read.
	r.forget(end + uint64(r.ahead(end)))
	return nil
}

// rescue commits the bytes that are not poison any more, and returns their number.
func (r *Ring) rescue() int {
	if r.isFinished {
		return 0
	}
	at := int(r.end % uint64(len(r.buf)))
	n := unpoisonedLen(r.buf[at:at+int(r.armed-r.end)], at)
	r.Commit(n)
	return n
}

// File returns a duplicate of the ring's file for another process. The duplicate is
// close-on-exec.
func (r *Ring) File() (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		return nil, errClosed
	}
	file, err := machine.Duplicate(r.file, r.file.Name())
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	return file, nil
}

// Room returns memory for the owner's use, which the next process adopts together with the
// ring. It is RoomBytes long, or shorter if another version of the program made the ring. It begins as
// zeros, takes no memory before it is written to, and must not be used after the ring is
// closed.
func (r *Ring) Room() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.room
}
