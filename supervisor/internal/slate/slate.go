// Package slate holds one content in a memory file. If a process dies, at whatever instant,
// another process that has the file finds either the last content that was written or the one
// before it, and each of them is whole.
//
// Invariant: the word that tells the place of the content changes with one store, and only
// after the whole new content was written.
//
// Not here: the meaning of the content, and the processes that have duplicates of the file.
package slate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"holdfast/shared/machine"
)

// The layout of the file, in bytes. Contents alternate between the two halves. A part that is
// never written to takes no memory, so the halves may be far apart. If the process may not write files
// of that length (RLIMIT_FSIZE), the second half begins in the middle of what it may write, and the
// upper 32 bits of the place tell at which page.
//
//	0         magic
//	8         place of the content: its length * 2 + its half; 0: there is none
//	16        the words
//	4096      first half
//	1<<40     second half
const (
	magic     = "hfslate1"
	currentAt = 8
	wordsAt   = 16
	headBytes = 4096
	otherHalf = 1 << 40
	pageShift = 32 // of the page of the second half in the place

	// wordCount is the number of words.
	wordCount = 8
	// MaxBytes is the limit of a content, in bytes.
	MaxBytes = 1 << 30
	// keepBytes of an old content may stay in memory, because it costs more to release them than
	// to keep them.
	keepBytes = 64 << 10
)

// ErrDamaged is returned by Adopt for a file that no program can adopt.
var ErrDamaged = errors.New("the file is damaged")

// A Slate must be used by one goroutine at a time, except for SetWord.
type Slate struct {
	file    *os.File
	current uint64
	second  int64    // offset of the second half
	used    [2]int64 // bytes of each half that may take memory
}

// New returns an empty slate. The name appears in /proc, for people only.
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
	return &Slate{file: file, second: otherHalf}, nil
}

// Adopt returns the slate of a process that has ended; the caller may write to it, or only read
// it. Adopt owns file, and closes it if it fails.
func Adopt(file *os.File) (*Slate, error) {
	s := &Slate{file: file}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("slate: %w", err), file.Close())
	}
	return s, nil
}

func (s *Slate) load() error {
	head := make([]byte, wordsAt)
	if _, err := s.file.ReadAt(head, 0); errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it is shorter than its head", ErrDamaged)
	} else if err != nil {
		return err
	}
	if string(head[:len(magic)]) != magic {
		if bytes.HasPrefix(head, []byte(magic[:len(magic)-1])) {
			return errors.New("slate of an unknown version")
		}
		return fmt.Errorf("%w: it is no slate", ErrDamaged)
	}
	s.current = binary.LittleEndian.Uint64(head[currentAt:])
	s.second = otherHalf
	if page := s.current >> pageShift; page > 0 {
		s.second = int64(page) * headBytes
	}
	at, n := s.place()
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if n > MaxBytes || at+n > info.Size() || s.half() == 0 && at+n > s.second {
		return fmt.Errorf("%w: content of %d bytes in a file of %d bytes", ErrDamaged, n, info.Size())
	}
	s.used = [2]int64{MaxBytes, MaxBytes} // its writer may have died while it wrote to either half
	return nil
}

// place returns the offset and the length of the content in the file.
func (s *Slate) place() (at, n int64) {
	return s.offset(s.half()), int64(uint32(s.current) >> 1)
}

// offset returns the offset of a half in the file.
func (s *Slate) offset(half int) int64 {
	if half == 1 {
		return s.second
	}
	return headBytes
}

// moveSecond moves the second half, which must not have the content, to where this process may write.
func (s *Slate) moveSecond() {
	second := int64(otherHalf)
	if limit := machine.FileSize(); limit < otherHalf+MaxBytes {
		at, n := s.place()
		second = max(int64(limit/2)/headBytes*headBytes, wholePages(at+n))
	}
	if second != s.second {
		s.free(1)
		s.second = second
	}
}

func (s *Slate) half() int { return int(s.current & 1) }

// Write replaces the content by p. If it fails, the content is unchanged.
func (s *Slate) Write(p []byte) error {
	return s.WriteBy(func(w io.WriterAt) error {
		_, err := w.WriteAt(p, 0)
		return err
	})
}

// WriteBy replaces the content by the bytes that write writes, so that a long content need not
// be in memory as a whole. The content ends with the last byte that was written. If WriteBy
// fails, the content is unchanged.
func (s *Slate) WriteBy(write func(w io.WriterAt) error) error {
	old := s.half()
	d := draft{file: s.file, limit: MaxBytes}
	next := uint64(1 - old)
	if next == 1 {
		s.moveSecond()
	} else {
		d.limit = min(d.limit, s.second-headBytes)
	}
	d.at = s.offset(1 - old)
	err := write(&d)
	s.used[1-old] = max(s.used[1-old], d.n)
	if err != nil {
		return fmt.Errorf("slate: %w", err)
	}
	next |= uint64(d.n) << 1
	if s.second != otherHalf {
		next |= uint64(s.second/headBytes) << pageShift
	}
	if err := s.store(currentAt, next); err != nil {
		return err
	}
	s.current = next
	if s.used[old] > keepBytes {
		s.free(old)
	}
	return nil
}

// Clear deletes the content and frees its memory.
func (s *Slate) Clear() error {
	err := s.Write(nil)
	if err == nil {
		s.Trim()
		s.free(s.half())
	}
	return err
}

// Trim frees the memory of the content before the last one, if it was kept because it is short.
func (s *Slate) Trim() { s.free(1 - s.half()) }

// free frees the memory of a half. If it fails, the half keeps its memory.
func (s *Slate) free(half int) {
	n := wholePages(s.used[half]) // a part of a page would only become zeros
	if half == 0 {
		n = min(n, s.second-headBytes)
	}
	if n > 0 && machine.Release(s.file, s.offset(half), n) == nil {
		s.used[half] = 0
	}
}

// wholePages rounds a length up to whole pages.
func wholePages(n int64) int64 { return (n + headBytes - 1) / headBytes * headBytes }

// A draft is a new content that is being written.
type draft struct {
	file  *os.File
	at    int64 // offset of its first byte in the file
	n     int64 // length up to the last byte that was written
	limit int64 // of n
}

func (d *draft) WriteAt(p []byte, off int64) (int, error) {
	end := off + int64(len(p))
	if off < 0 || end > d.limit {
		return 0, fmt.Errorf("content of %d bytes is too long, the limit is %d", end, d.limit)
	}
	d.n = max(d.n, end)
	return d.file.WriteAt(p, d.at+off)
}

// Read returns the content; it is empty if none was written.
func (s *Slate) Read() ([]byte, error) {
	at, n := s.place()
	p := make([]byte, n)
	if _, err := s.file.ReadAt(p, at); err != nil && !(n == 0 && errors.Is(err, io.EOF)) {
		return nil, fmt.Errorf("slate: %w", err)
	}
	return p, nil
}

// ReadFirst returns the first n bytes of the content, or all of it if it is shorter.
func (s *Slate) ReadFirst(n int) ([]byte, error) {
	at, all := s.place()
	p := make([]byte, min(int64(n), all))
	if _, err := s.file.ReadAt(p, at); err != nil && len(p) > 0 {
		return nil, fmt.Errorf("slate: %w", err)
	}
	return p, nil
}

// SetWord stores word n, which must be less than wordCount. Words do not belong to the content.
// SetWord may be called by any goroutine.
func (s *Slate) SetWord(n int, v uint64) error { return s.store(wordsAt+8*int64(n), v) }

// Word returns word n; it is 0 until it is stored.
func (s *Slate) Word(n int) (uint64, error) {
	var b [8]byte
	if _, err := s.file.ReadAt(b[:], wordsAt+8*int64(n)); err != nil {
		return 0, fmt.Errorf("slate: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// store writes eight bytes of the first page. The kernel writes either all or none of them.
func (s *Slate) store(at int64, v uint64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	if _, err := s.file.WriteAt(b[:], at); err != nil {
		return fmt.Errorf("slate: %w", err)
	}
	return nil
}

// File returns the slate's own file, so that the caller can duplicate it.
func (s *Slate) File() *os.File { return s.file }

// Duplicate returns another descriptor of the file, with which a caller can read the file while
// the slate is written to, or after it was closed. If the slate was closed before, the error is
// os.ErrClosed.
func (s *Slate) Duplicate() (*os.File, error) {
	f, err := machine.Duplicate(s.file, s.file.Name())
	if err != nil {
		return nil, fmt.Errorf("slate: %w", err)
	}
	return f, nil
}

// ReadLive returns the content of a slate that another goroutine or process may write to. If it
// is written to during the call, the returned content may be a mixture of two contents. The
// file stays open and belongs to the caller.
func ReadLive(file *os.File) ([]byte, error) {
	s := &Slate{file: file}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("slate: %w", err)
	}
	return s.Read()
}

// Close closes the file.
func (s *Slate) Close() error { return s.file.Close() }
