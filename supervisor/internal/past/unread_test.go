//go:build unix

package past

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// An unreadDisk refuses to read segments: to open them, or a part of them.
type unreadDisk struct {
	*rand.Rand
	way   int // 0: the read number first alone; 1: that and all later ones; 2: some pages of the files; 3: some reads
	first int
	reads int
	files map[string]bool // of which something was not returned
	pages map[string]bool // way 2: whether a page is returned
}

const page = 512

// unreadAtRandom refuses reads until the returned function is called.
func unreadAtRandom(r *rand.Rand) (d *unreadDisk, end func()) {
	d = &unreadDisk{Rand: r, way: r.IntN(4), first: r.IntN(12), files: make(map[string]bool), pages: make(map[string]bool)}
	beforeRead, beforeOpen := readAt, openToRead
	readAt = func(f *os.File, p []byte, at int64) (int, error) {
		if d.refuses(f.Name(), at, len(p)) {
			return 0, &os.PathError{Op: "read", Path: f.Name(), Err: syscall.EIO}
		}
		return beforeRead(f, p, at)
	}
	openToRead = func(path string) (*os.File, error) {
		if _, ok := parseSegment(filepath.Base(path)); ok && d.way != 2 && d.refuses(path, 0, 0) {
			return nil, &os.PathError{Op: "open", Path: path, Err: syscall.ESTALE}
		}
		return beforeOpen(path)
	}
	return d, func() { readAt, openToRead = beforeRead, beforeOpen }
}

func (d *unreadDisk) refuses(path string, at int64, length int) (isRefused bool) {
	d.reads++
	switch d.way {
	case 0:
		isRefused = d.reads == d.first
	case 1:
		isRefused = d.reads >= d.first
	case 2:
		for i := at / page; i*page < at+int64(length); i++ {
			name := fmt.Sprint(path, i)
			if _, ok := d.pages[name]; !ok {
				d.pages[name] = d.IntN(6) == 0
			}
			isRefused = isRefused || d.pages[name]
		}
	default:
		isRefused = d.IntN(4) == 0
	}
	if isRefused {
		d.files[path] = true
	}
	return isRefused
}

// isUnread reports whether an error is one of an unreadDisk.
func isUnread(err error) bool { return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ESTALE) }

// Wherever the disk refuses to return a part of the segments, a reader returns nothing that is wrong, and all that was
// returned. A writer that continues the life changes and removes no file of which a part was refused, continues, and loses nothing.
func TestUnreadAtRandom(t *testing.T) {
	seeds := uint64(8)
	if os.Getenv("HOLDFAST_LONG") != "" {
		seeds = 200
	}
	for _, mode := range []Mode{Full, Screen} {
		for seed := range seeds {
			if err := unreadLife(t, mode, seed); err != nil {
				t.Errorf("%s, seed %d: %v", mode, seed, err)
			}
		}
	}
}

func unreadLife(t *testing.T, mode Mode, seed uint64) error {
	sim := newSimulation(t, seed, mode, func(d disk) disk { return d })
	if err := sim.write(); err != nil {
		return err
	}
	changes := sim.recorder.changes
	for _, n := range []int{len(changes), sim.IntN(len(changes) + 1)} { // with what a power cut has left as well
		dir := t.TempDir()
		if err := cut(changes[:n], sim.Rand, sim.store.dir, dir); err != nil {
			return err
		}
		s := New(dir, sim.keys[2])
		s.disk = quickDisk{s.disk}
		r, err := s.Open(aLife)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrLocked) { // the power was cut before the life or its key was durable
			continue
		}
		if err != nil {
			return err
		}
		for range 5 {
			if err := sim.readUnread(r); err != nil {
				return fmt.Errorf("power cut after change %d: %w; files %s", n, err, listing(dir))
			}
		}
		if err := sim.writeUnread(s, r); err != nil {
			return fmt.Errorf("power cut after change %d: %w; files %s", n, err, listing(dir))
		}
	}
	return nil
}

// missing returns the bytes that a reader does not return, and the reason for each.
func missing(r *Reader, from, to uint64) (map[uint64]error, error) {
	lacks, at := make(map[uint64]error), from
	for p, err := range r.Range(from, to) {
		if err != nil {
			return nil, err
		}
		if p.Offset != at || string(p.Output) != string(textAt(p.Offset, len(p.Output))) {
			return nil, fmt.Errorf("wrong output at %d, expected at %d", p.Offset, at)
		}
		for i := range p.Missing {
			lacks[at+i] = p.Damage
		}
		at += p.Missing + uint64(len(p.Output))
	}
	for ; at < to; at++ {
		lacks[at] = nil
	}
	return lacks, nil
}

// readUnread compares the answers of a reader while reads are refused with those while none is.
func (s *simulation) readUnread(r *Reader) error {
	b, err := r.Bounds()
	if err != nil {
		return err
	}
	lacked, err := missing(r, b.Start, b.End)
	if err != nil {
		return err
	}
	segments, err := loadSegments(r.dir, r.key)
	if err != nil {
		return err
	}
	offsets := make(map[uint64]string) // and the exact screen there
	for range 5 {
		offset := b.Start + s.Uint64N(b.End-b.Start+1)
		offsets[offset], _ = exactScreen(r, offset)
	}
	d, end := unreadAtRandom(s.Rand)
	defer end()
	lacks, err := missing(r, b.Start, b.End)
	if err != nil {
		return err
	}
	for at, why := range lacks {
		_, ok := lacked[at]
		isClosed := slices.ContainsFunc(segments, func(s segment) bool { return s.isClosed && s.start <= at && at < s.end })
		if !ok && (len(d.files) == 0 || isClosed && !isUnread(why)) {
			return fmt.Errorf("offset %d is missing because of %v; not returned: %v", at, why, d.files)
		}
	}
	again := func() { d.first = d.reads + s.IntN(5) }
	again()
	now, err := r.Bounds()
	if err != nil || now.End > b.End || now.Exact > now.End {
		return fmt.Errorf("bounds are %+v instead of %+v, %w", now, b, err)
	}
	for offset, want := range offsets {
		again()
		got, err := exactScreen(r, offset)
		if err != nil && !isEnd(err) && !errors.Is(err, errMissing) || got != "" && want != "" && got != want {
			return fmt.Errorf("the screen at %d is %s instead of %s, %w", offset, got, want, err)
		}
		again()
		at, err := r.TimeAt(offset)
		if err == nil {
			_, err = r.OffsetAt(at)
		}
		if err != nil && !isEnd(err) && !errors.Is(err, ErrDamaged) {
			return fmt.Errorf("the time at %d: %w", offset, err)
		}
	}
	again()
	for _, err := range r.Notes(0, maxOffset) {
		if err != nil {
			return fmt.Errorf("notes: %w", err)
		}
	}
	again()
	spans, err := r.Spans()
	for _, span := range spans {
		if _, _, e := span.Append(nil, maxRaw); e != nil && !IsMissing(e) {
			err = errors.Join(err, e)
		}
	}
	again()
	_, gaps := r.Gaps()
	return errors.Join(err, gaps)
}

// isEnd reports whether an error of a reader means that it has nothing there.
func isEnd(err error) bool {
	return errors.Is(err, ErrNoKeyframe) || errors.Is(err, ErrAhead) || errors.Is(err, ErrGone)
}

// exactScreen returns the screen at an offset, or nothing if it is not exact.
func exactScreen(r *Reader, offset uint64) (string, error) {
	v, err := r.At(offset)
	if err != nil || !v.Exact {
		return "", err
	}
	sc, err := restore(v)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(sc), nil
}

// writeUnread opens writers while reads are refused. Each continues the life with the output of the session's ring, and is killed.
func (s *simulation) writeUnread(store *Store, r *Reader) error {
	for range 4 {
		b, err := r.Bounds()
		if err != nil {
			return err
		}
		lacked, err := missing(r, b.Start, b.End)
		if err != nil {
			return err
		}
		was, err := wholeParts(r)
		if err != nil {
			return err
		}
		names, err := segmentNames(r.dir)
		if err != nil {
			return err
		}
		last := append([]string{""}, names...)[len(names)]
		d, end := unreadAtRandom(s.Rand)
		w, err := store.OpenWriter(aLife, s.mode)
		for i := 0; err != nil && isUnread(err) && s.keys[0] == nil && s.keys[2] != nil && i < 100; i++ {
			w, err = store.OpenWriter(aLife, s.mode) // a segment could not be sealed, and was not changed
		}
		end()
		if err != nil {
			return fmt.Errorf("not returned: %v: %w", d.files, err)
		}
		isSealing := r.key == nil && w.key != nil
		r.key = w.key
		kept, err := wholeParts(r)
		if err != nil {
			return err
		}
		for path := range d.files {
			name := filepath.Base(path)
			isReplaced := isSealing || was[name] == "" || s.mode == Screen && last != name && !w.KeyframeDue() // sealed, or by a newer keyframe
			if !isReplaced && !slices.ContainsFunc(slices.Collect(maps.Values(kept)), func(now string) bool { return strings.HasPrefix(now, was[name]) }) {
				return fmt.Errorf("the file %s, which was not returned, was changed", name)
			}
		}
		at := w.End()
		if d.files == nil && at < b.End {
			return fmt.Errorf("the writer continues at %d instead of %d", at, b.End)
		}
		s.truth.end = max(s.truth.end, at) + 1000
		from := s.truth.end - 500
		if s.mode == Full {
			err = w.Append(at, textAt(at, int(from-at)))
		}
		if err := errors.Join(err, w.Keyframe(from, terminal{}.keyframe(from)), w.Append(from, textAt(from, 500)), w.Sync()); err != nil {
			return err
		}
		w.lock.Close() // the process was killed
		if _, err := exactScreen(r, s.truth.end); err != nil {
			return fmt.Errorf("the screen at the end: %w; not returned: %v", err, d.files)
		}
		if s.mode == Screen {
			continue
		}
		lacks, err := missing(r, b.Start, s.truth.end)
		if err != nil {
			return err
		}
		for offset := range lacks {
			if _, ok := lacked[offset]; !ok && (offset < b.End || offset >= at) {
				return fmt.Errorf("offset %d is missing after a writer has continued at %d behind %d; not returned: %v", offset, at, b.End, d.files)
			}
		}
	}
	return nil
}

// wholeParts returns the whole blocks of each segment of a life that a writer must not change.
func wholeParts(r *Reader) (map[string]string, error) {
	names, err := segmentNames(r.dir)
	if err != nil {
		return nil, err
	}
	parts := make(map[string]string)
	for _, name := range names {
		path := filepath.Join(r.dir, name)
		f, err := scan(path, r.key, true)
		if err != nil {
			return nil, err
		}
		if f == nil || f.end == f.start || f.isSealed != (r.key != nil) { // the writer deletes or seals it
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		parts[name] = string(content[:f.bytes])
	}
	return parts, nil
}
