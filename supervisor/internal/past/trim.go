package past

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A Policy limits the output that a store keeps. A zero field is no limit.
type Policy struct {
	PerLife int64         // bytes of the files of one life
	Total   int64         // bytes of all files
	Age     time.Duration // time since a segment was written, by a machine.AgeClock
}

// Trimmed is the result of Trim.
type Trimmed struct {
	Segments int   // segments that were deleted
	Bytes    int64 // bytes that were freed
	Left     int64 // bytes of the files that stay
}

// Trim deletes closed segments, the oldest first, until the policy is met. Each life keeps
// meta.json, its last closed segment with a whole keyframe, and all later segments; these may
// exceed the policy. Trim may be called while lives are written and read.
func (s *Store) Trim(p Policy) (Trimmed, error) {
	dirs, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Trimmed{}, fmt.Errorf("past: %w", err)
	}
	t := trim{store: s, now: s.age.Time(), changed: make(map[string]bool)}
	var errs []error
	var all []*closedFile
	for _, d := range dirs {
		if l, err := ParseLife(d.Name()); err == nil && d.IsDir() {
			files, err := t.life(s.path(l), p)
			all = append(all, files...)
			errs = append(errs, ignoreMissing(err))
		}
	}
	slices.SortStableFunc(all, func(a, b *closedFile) int { return a.modified.Compare(b.modified) })
	for _, f := range all {
		if p.Total > 0 && t.result.Left > p.Total {
			errs = append(errs, t.remove(f))
		}
	}
	for dir := range t.changed {
		errs = append(errs, ignoreMissing(s.disk.SyncDir(dir)))
	}
	if err := errors.Join(errs...); err != nil {
		return t.result, fmt.Errorf("past: trim: %w", err)
	}
	return t.result, nil
}

// A trim is one execution of Trim.
type trim struct {
	store   *Store
	now     time.Time
	changed map[string]bool // directories
	result  Trimmed
}

// closedFiles are the closed segments of a life, in ascending order.
type closedFiles struct {
	dir     string
	files   []*closedFile
	removed int
	needed  int // files from this one on stay; -1: not determined yet
}

// A closedFile is a closed segment.
type closedFile struct {
	life     *closedFiles
	name     string
	bytes    int64
	modified time.Time // not before that of the file before it
}

// life deletes the segments of a life that exceed its own limits, and returns the others.
func (t *trim) life(dir string, p Policy) ([]*closedFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	l := &closedFiles{dir: dir, needed: -1}
	var total int64
	var last time.Time
	for _, e := range entries { // in the order of their offsets
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		total += info.Size()
		if s, ok := parseSegment(e.Name()); ok && s.isClosed {
			if info.ModTime().After(last) {
				last = info.ModTime()
			}
			l.files = append(l.files, &closedFile{l, e.Name(), info.Size(), last})
		}
	}
	t.result.Left += total
	for i, f := range l.files {
		isOld := p.Age > 0 && t.now.Sub(f.modified) > p.Age
		if !isOld && (p.PerLife == 0 || total <= p.PerLife) {
			return l.files[i:], nil
		}
		before := t.result.Bytes
		if err := t.remove(f); err != nil {
			return nil, err
		}
		total -= t.result.Bytes - before
	}
	return nil, nil
}

// remove deletes the oldest segment of a life, unless it is needed.
func (t *trim) remove(f *closedFile) error {
	l := f.life
	if l.needed < 0 {
		l.needed = needed(l)
	}
	if l.removed >= l.needed {
		return nil
	}
	if err := ignoreMissing(t.store.disk.Remove(filepath.Join(l.dir, f.name))); err != nil {
		return err
	}
	l.removed++
	t.result.Segments++
	t.result.Bytes += f.bytes
	t.result.Left -= f.bytes
	t.changed[l.dir] = true
	return nil
}

// needed returns the index of the last segment that has a whole keyframe.
func needed(l *closedFiles) int {
	for i := len(l.files) - 1; i > 0; i-- {
		if hasKeyframe(filepath.Join(l.dir, l.files[i].name)) {
			return i
		}
	}
	return 0
}

// hasKeyframe reports whether a segment begins with a whole keyframe. It needs no key.
func hasKeyframe(path string) bool {
	w, err := openWalk(path, nil, true)
	if err != nil {
		return false
	}
	defer w.Close()
	b, err := w.next()
	if err != nil || b.kind != kindKeyframe {
		return false
	}
	_, err = w.stored()
	return err == nil
}
