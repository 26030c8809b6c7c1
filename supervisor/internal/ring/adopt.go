package ring

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Adopt goes on with the ring of a process that has ended, or of the program
// that this process ran before it changed its program, and returns how many
// bytes it rescued: those that a read(2) had put there and nobody committed.
// They end at the ring's end. Nobody else may write to the ring from here on.
//
// The file is the ring's, and closed if this fails: with an error for whatever
// is not a ring that New has made, be it cut, another's, or made to do harm.
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
	r := over(file)
	r.carve(p, mem)
	if err := r.load(); err != nil {
		return nil, errors.Join(err, unmap(mem))
	}
	return r, nil
}

// readPreamble reads it from the file, not from a mapping: behind the end of a
// file that is too short that would kill us.
func readPreamble(file *os.File) (p preamble, err error) {
	info, err := file.Stat()
	if err != nil {
		return p, err
	}
	_, err = file.ReadAt(p.bytes(), 0)
	switch {
	case errors.Is(err, io.EOF):
		return p, errors.New("shorter than its header")
	case err != nil:
		return p, err
	}
	return p, p.check(info.Size())
}

// load takes over what changes, each word once and then from our own memory:
// whoever has the file too cannot make us believe something else later.
func (r *Ring) load() error {
	end, armed, finished := r.head.end.Load(), r.head.armed.Load(), r.head.finished.Load()
	if end > maxOffset || armed < end || armed > end+uint64(r.ahead(end)) || finished > 1 {
		return fmt.Errorf("end %d, armed %d, finished %d do not go together", end, armed, finished)
	}
	marks, err := r.head.loadMarks(end)
	if err != nil {
		return err
	}
	r.end, r.armed, r.finished, r.marks = end, armed, finished == 1, marks
	// Its writer may have died while it made room for the longest read.
	r.forget(end + uint64(r.ahead(end)))
	return nil
}

// rescue commits what lies where poison was.
func (r *Ring) rescue() int {
	if r.finished {
		return 0
	}
	at := int(r.end % uint64(len(r.buf)))
	n := spoilt(r.buf[at:at+int(r.armed-r.end)], at)
	r.Commit(n)
	return n
}

// File returns a duplicate of the ring's file, to hand on. It is close-on-exec.
func (r *Ring) File() (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		return nil, errShut
	}
	file, err := duplicate(r.file)
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	return file, nil
}

// Room returns memory at the owner's disposal that goes with the ring to
// whoever adopts it: RoomBytes long, or what the program that made the ring
// gave it. It begins as zeros, takes no memory before it is written to, and may
// not be touched once the ring is closed.
func (r *Ring) Room() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.room
}
