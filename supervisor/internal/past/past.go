// Package past stores the output of sessions on disk, so that the screen of a session at any
// offset can be restored after the machine lost power.
//
// A life is one instance of a session. Each life has a directory with meta.json and segments
// of output. A segment begins with a keyframe, which is the saved screen at its first offset;
// a screen at a later offset is the keyframe and the output after it. README.md describes the
// files byte by byte.
//
// Invariant: all that a reader returns was appended at that offset. A file that was torn by a
// power cut ends at its last whole block, and everything before the last successful Sync is
// whole.
//
// Invariant: a segment never changes after it was closed, except that it may be packed into
// fewer blocks and deleted as a whole.
//
// Not here: the meaning of output and keyframes (package screen), the ring from which the
// output comes (package ring), the decision when to sync, to trim and to forget.
package past

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/shared/machine"
)

// clockName is the name of the file of machine.AgeClock in the store.
const clockName = "clock"

// Errors of this package. Errors of the file system are wrapped and match those of package fs
// and syscall.
var (
	ErrGone       = errors.New("past: offset or time is before the output that is stored")
	ErrAhead      = errors.New("past: offset is behind the output that is stored")
	ErrNoKeyframe = errors.New("past: no keyframe is stored at or before this offset")
	ErrBehind     = errors.New("past: offset is before the end of the output that was appended")
	ErrInUse      = errors.New("past: another writer has this life")
	ErrDamaged    = errors.New("past: file is damaged")
	ErrVersion    = errors.New("past: file was written by a newer program")
	ErrRemoved    = errors.New("past: the directory of this life was removed")
	ErrClosed     = errors.New("past: writer is closed")
)

// A Life is one instance of a session.
type Life struct {
	ID       protocol.SessionID `json:"id"`
	Instance protocol.Instance  `json:"instance"`
}

// String returns the name of the life's directory: ID@INSTANCE.
func (l Life) String() string { return string(l.ID) + "@" + string(l.Instance) }

func (l Life) validate() error {
	if !protocol.ValidID(string(l.ID)) || !protocol.ValidID(string(l.Instance)) {
		return fmt.Errorf("past: invalid life %.140q: id and instance must each be 1 to %d of [a-zA-Z0-9_-]", l, protocol.MaxIDLen)
	}
	return nil
}

// ParseLife returns the life from the name of its directory.
func ParseLife(name string) (Life, error) {
	id, instance, _ := strings.Cut(name, "@")
	l := Life{protocol.SessionID(id), protocol.Instance(instance)}
	return l, l.validate()
}

// A Store is the directory in which each life has its own directory. Its methods may be called
// by any goroutine, and other processes may have a Store of the same directory.
type Store struct {
	dir  string
	key  *Key // nil: new lives are not sealed
	disk disk
	now  func() time.Time
	age  *machine.AgeClock

	// doubted are the lives that could not be synced. A kernel reports once that it could not write a part of a file. Afterwards
	// it returns that part from its memory and syncs the file without an error, although the disk does not have it.
	doubted sync.Map // of Life
}

// New returns the store in a directory, which is created when the first writer is opened. New files are encrypted with key.
// If key is nil, new lives are not sealed, and sealed lives cannot be read.
func New(dir string, key *Key) *Store {
	return &Store{dir: dir, key: key, disk: systemDisk{}, now: time.Now, age: &machine.AgeClock{Path: filepath.Join(dir, clockName), Data: dir}}
}

// AwaitKey waits until the key is read, or could not be read.
func (s *Store) AwaitKey() { s.key.Await() }

func (s *Store) path(l Life) string { return filepath.Join(s.dir, l.String()) }

// An Entry is a life in the list of a store.
type Entry struct {
	Life
	Meta     Meta
	Locked   error     // why the life, which is sealed, cannot be read; Meta then has only the fields that are not sealed
	Bytes    int64     // bytes of all files
	Modified time.Time // when a file of the life was last written to
	Err      error     // why Meta is missing: meta.json is missing or damaged
}

// List returns all lives, ordered by the names of their directories. Other files in the store
// are ignored. It returns no lives and no error if the store does not exist yet.
func (s *Store) List() ([]Entry, error) {
	dirs, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("past: %w", err)
	}
	var entries []Entry
	for _, d := range dirs {
		l, err := ParseLife(d.Name())
		if err != nil || !d.IsDir() {
			continue
		}
		e := Entry{Life: l}
		e.readMeta(s)
		files, err := os.ReadDir(s.path(l))
		if errors.Is(err, fs.ErrNotExist) { // forgotten since the first listing
			continue
		}
		e.Err = errors.Join(e.Err, err)
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				e.Bytes += info.Size()
				if info.ModTime().After(e.Modified) {
					e.Modified = info.ModTime()
				}
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (e *Entry) readMeta(s *Store) {
	var key *dataKey
	key, e.Locked = s.dataKey(s.path(e.Life))
	e.Meta, e.Err = readMeta(s.path(e.Life), key)
	if errors.Is(e.Err, ErrLocked) {
		e.Locked, e.Err = cmp.Or(e.Locked, e.Err), nil
	}
}

// forgottenSuffix ends the name of the directory of a life that was forgotten. It can be in no
// valid name of a life.
const forgottenSuffix = "~"

// Forget makes the store forget a life, also after a loss of power: List does not return it, and
// Sweep erases its files. Forget returns ErrInUse if a writer has the life, and no error if the
// life does not exist.
func (s *Store) Forget(l Life) error {
	if err := l.validate(); err != nil {
		return err
	}
	dir := s.path(l)
	lock, err := lockDir(dir)
	if errors.Is(err, fs.ErrNotExist) { // perhaps because an earlier call has failed after the rename
		return ignoreMissing(s.disk.SyncDir(s.dir))
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	err = s.disk.Rename(dir, dir+forgottenSuffix)
	if errors.Is(err, fs.ErrExist) { // the life was forgotten, and written again before Sweep
		if err = s.erase(dir + forgottenSuffix); err == nil {
			err = s.disk.Rename(dir, dir+forgottenSuffix)
		}
	}
	if err == nil {
		err = s.disk.SyncDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("past: forget %s: %w", l, err)
	}
	s.doubted.Delete(l)
	return nil
}

// Doubt notes that a life could not be synced by an earlier process, whose IsDoubted was true. The next writer writes the
// segment that it continues again.
func (s *Store) Doubt(l Life) { s.doubted.Store(l, nil) }

// IsDoubted reports whether a life could not be synced, and was not written again since. A caller that is replaced must
// pass that to Doubt of its successor, because the kernel does not report it again.
func (s *Store) IsDoubted(l Life) bool {
	_, isDoubted := s.doubted.Load(l)
	return isDoubted
}

// ChangeMeta changes the Meta of a life durably. Entry.Modified stays, because it says when the session was stored.
// ChangeMeta returns ErrInUse if a writer has the life, ErrLocked if its key cannot be had, and an error that wraps
// fs.ErrNotExist if the life does not exist.
func (s *Store) ChangeMeta(l Life, change func(*Meta)) error {
	if err := l.validate(); err != nil {
		return err
	}
	w := &Writer{store: s, life: l, dir: s.path(l)}
	lock, err := lockDir(w.dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := w.changeMeta(change); err != nil {
		return fmt.Errorf("past: meta of %s: %w", l, err)
	}
	return nil
}

func (w *Writer) changeMeta(change func(*Meta)) (err error) {
	if w.key, err = w.store.dataKey(w.dir); err != nil {
		return err
	}
	m, err := readMeta(w.dir, w.key)
	if err != nil {
		return err
	}
	path := filepath.Join(w.dir, metaName)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	change(&m)
	data, err := m.encode()
	if err == nil {
		err = w.writeMeta(data)
	}
	return cmp.Or(err, os.Chtimes(path, time.Time{}, info.ModTime()))
}

// Sweep erases the files of the lives that were forgotten, also by a process that has ended
// before it erased them.
func (s *Store) Sweep() error {
	dirs, err := os.ReadDir(s.dir)
	if ignoreMissing(err) != nil {
		return fmt.Errorf("past: %w", err)
	}
	var errs []error
	for _, d := range dirs {
		name, isForgotten := strings.CutSuffix(d.Name(), forgottenSuffix)
		if _, err := ParseLife(name); isForgotten && err == nil && d.IsDir() {
			errs = append(errs, s.erase(filepath.Join(s.dir, d.Name())))
		}
	}
	return errors.Join(errs...)
}

// DiscardUnbegun removes the directory of a life of which nothing was stored yet when the machine lost its power, or the
// supervisor was killed, and reports whether it has done so. It removes nothing if a writer has the life.
func (s *Store) DiscardUnbegun(l Life) (bool, error) {
	dir := s.path(l)
	lock, err := lockDir(dir)
	if errors.Is(err, ErrInUse) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	files, err := os.ReadDir(dir)
	if err != nil {
		return false, fmt.Errorf("past: %w", err)
	}
	for _, f := range files {
		if f.Name() != keyName && !strings.HasSuffix(f.Name(), draftSuffix) {
			return false, nil
		}
	}
	err = s.erase(dir)
	return err == nil, err
}

// erase removes a directory and its files. Another goroutine may do the same.
func (s *Store) erase(dir string) error {
	files, err := os.ReadDir(dir)
	errs := []error{ignoreMissing(err)}
	for _, f := range files {
		errs = append(errs, ignoreMissing(s.disk.Remove(filepath.Join(dir, f.Name()))))
	}
	if err := errors.Join(append(errs, ignoreMissing(s.disk.Remove(dir)))...); err != nil {
		return fmt.Errorf("past: erase %s: %w", dir, err)
	}
	return nil
}

// ignoreMissing returns nil instead of the error that a file does not exist.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
