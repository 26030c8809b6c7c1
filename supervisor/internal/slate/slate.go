// Package slate keeps one content in a memory file. Another process that has the
// file finds, when this one has died at whatever instant, the last content that
// was written or the one before, and each of them whole.
//
// Invariant: the word that says where the content is changes with one store, and
// only when all of the new content is there.
//
// Not here: what is written, and who has duplicates of the file.
package slate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"holdfast/shared/machine"
)

// The file, by bytes. Contents take turns in the halves; what is never written
// to takes no memory, so that a half may be as long as it likes.
//
//	0         magic
//	8         where the content is: its length * 2 + its half; 0 is none
//	16        the words
//	4096      one half
//	1<<40     the other
const (
	magic     = "hfslate1"
	currentAt = 8
	wordsAt   = 16
	headBytes = 4096
	otherHalf = 1 << 40

	// Words is how many there are.
	Words = 8
	// MaxBytes bounds a content.
	MaxBytes = 1 << 30
	// keepBytes of an old content may stay: to give them back costs more.
	keepBytes = 64 << 10
)

// A Slate belongs to one goroutine at a time.
type Slate struct {
	file    *os.File
	current uint64
	used    [2]int64 // bytes of a half that may take memory
}

// New returns an empty slate. The name is for people, in /proc.
func New(name string) (*Slate, error) {
	file, err := machine.MemoryFile(name)
	if err != nil {
		return nil, fmt.Errorf("slate: %w", err)
	}
	head := make([]byte, headBytes)
	copy(head, magic)
	if _, err := file.WriteAt(head, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("slate: %w", err), file.Close())
	}
	return &Slate{file: file}, nil
}

// Adopt goes on with the file of a slate whose process has ended, or only reads
// what is there. The file is the slate's, and closed if this fails.
func Adopt(file *os.File) (*Slate, error) {
	s := &Slate{file: file}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("slate: %w", err), file.Close())
	}
	return s, nil
}

func (s *Slate) load() error {
	head := make([]byte, wordsAt)
	if _, err := s.file.ReadAt(head, 0); err != nil {
		return err
	}
	if string(head[:len(magic)]) != magic {
		return errors.New("not a slate, or of a version that is not known")
	}
	s.current = binary.LittleEndian.Uint64(head[currentAt:])
	at, n := s.place()
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if n > MaxBytes || at+n > info.Size() {
		return fmt.Errorf("a content of %d bytes in a file of %d", n, info.Size())
	}
	s.used = [2]int64{MaxBytes, MaxBytes} // its writer may have died in either
	return nil
}

// place is where the content is.
func (s *Slate) place() (at, n int64) {
	at, n = headBytes, int64(s.current>>1)
	if s.half() == 1 {
		at = otherHalf
	}
	return at, n
}

func (s *Slate) half() int { return int(s.current & 1) }

// Write puts p in place of the content. After an error that is as it was.
func (s *Slate) Write(p []byte) error {
	if len(p) > MaxBytes {
		return fmt.Errorf("slate: %d bytes, at most %d", len(p), MaxBytes)
	}
	old := s.half()
	next := Slate{current: uint64(len(p))<<1 | uint64(1-old)}
	at, n := next.place()
	if _, err := s.file.WriteAt(p, at); err != nil {
		return fmt.Errorf("slate: %w", err)
	}
	s.used[1-old] = max(s.used[1-old], n)
	if err := s.store(currentAt, next.current); err != nil {
		return err
	}
	oldAt, _ := s.place()
	s.current = next.current
	if s.used[old] > keepBytes && release(s.file, oldAt, s.used[old]) == nil {
		s.used[old] = 0
	}
	return nil
}

// Read returns the content, empty where there is none.
func (s *Slate) Read() ([]byte, error) {
	at, n := s.place()
	p := make([]byte, n)
	if _, err := s.file.ReadAt(p, at); err != nil && !(n == 0 && errors.Is(err, io.EOF)) {
		return nil, fmt.Errorf("slate: %w", err)
	}
	return p, nil
}

// ReadFirst returns the first bytes of the content, n of them or all.
func (s *Slate) ReadFirst(n int) ([]byte, error) {
	at, all := s.place()
	p := make([]byte, min(int64(n), all))
	if _, err := s.file.ReadAt(p, at); err != nil && len(p) > 0 {
		return nil, fmt.Errorf("slate: %w", err)
	}
	return p, nil
}

// SetWord stores the n-th of Words numbers beside the content. It may be called
// by any goroutine.
func (s *Slate) SetWord(n int, v uint64) error { return s.store(wordsAt+8*int64(n), v) }

// Word returns the n-th number, 0 until it is stored.
func (s *Slate) Word(n int) (uint64, error) {
	var b [8]byte
	if _, err := s.file.ReadAt(b[:], wordsAt+8*int64(n)); err != nil {
		return 0, fmt.Errorf("slate: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// store writes eight bytes within a page: none of them without the others.
func (s *Slate) store(at int64, v uint64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	if _, err := s.file.WriteAt(b[:], at); err != nil {
		return fmt.Errorf("slate: %w", err)
	}
	return nil
}

// File is the slate's own, for who duplicates it.
func (s *Slate) File() *os.File { return s.file }

// Duplicate returns another descriptor of the file, for who reads it while the
// slate is written to, or closed.
func (s *Slate) Duplicate() (*os.File, error) {
	f, err := duplicate(s.file)
	if err != nil {
		return nil, fmt.Errorf("slate: %w", err)
	}
	return f, nil
}

// Look returns the content of a slate that goes on to be written, which it may
// have been meanwhile: then what is returned is not whole. The file is the caller's.
func Look(file *os.File) ([]byte, error) {
	s := &Slate{file: file}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("slate: %w", err)
	}
	return s.Read()
}

// Close closes the file.
func (s *Slate) Close() error { return s.file.Close() }
