package past

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// recover prepares a directory, which a process may have left at any instant, for a writer.
func (w *Writer) recover() error {
	if err := w.removeDrafts(); err != nil {
		return err
	}
	segments, err := listSegments(w.dir)
	if err != nil {
		return err
	}
	for i := range segments {
		if err := w.inspect(segments[i:]); err != nil {
			return err
		}
	}
	if segments, err = w.dropEmpty(segments); err != nil || len(segments) == 0 {
		return err
	}
	last := segments[len(segments)-1]
	if err := w.continueAfter(last); err != nil {
		return err
	}
	if err := w.findKeyframe(); err != nil {
		return err
	}
	isKept := slices.ContainsFunc(segments, func(s segment) bool { return s.isKept && s.start >= w.keyframeAt })
	w.hasKeyframe = w.hasKeyframe && !isKept // output between that keyframe and the end may be damaged
	// The writer before may have been killed before it synced its last changes of the directory.
	// A segment may be deleted only after the newer one is durable.
	if err := w.store.disk.SyncDir(w.dir); err != nil {
		return err
	}
	w.stats.Syncs++
	w.isDirDirty = false
	w.synced = w.end
	if file, err := readMetaFile(filepath.Join(w.dir, metaName)); err == nil { // otherwise SetMeta replaces it
		meta, isSealed, err := unsealMeta(file, w.key)
		if err == nil {
			w.meta, w.isStale = meta, !isSealed && w.key != nil
		}
	}
	for _, s := range segments[:len(segments)-1] {
		if !s.isClosed {
			w.isDirDirty = true
			if err := w.closeLeft(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// inspect finds the whole part of the first segment if it is open. If the disk does not return a part of it, the file is not changed: the
// segment ends at the next one, or before that part if it is the last one, because the writer continues there. If whole blocks with output follow a damaged part, the file
// was not torn by the end of a process but damaged, or a power cut has left later blocks, and all of it must stay. inspect then closes the segment, so
// that readers see the damage as a gap, and the writer continues at the end that hiddenEnd returns. In the mode Screen the segment
// keeps its name, because a newer keyframe replaces it.
func (w *Writer) inspect(segments []segment) (err error) {
	s := &segments[0]
	if s.isClosed {
		return nil
	}
	path := filepath.Join(w.dir, s.name)
	s.found, err = scan(path, w.key, false)
	if err == nil && s.found != nil {
		if err = s.found.torn; err == nil {
			return nil
		}
	}
	if err == nil || errors.Is(err, ErrDamaged) {
		s.end, s.isKept, err = hiddenEnd(path, s.start, w.key)
	}
	if errors.Is(err, errUnread) {
		s.isKept, s.end, err = true, max(s.end, s.start), nil
		switch {
		case len(segments) > 1:
			s.end = min(segments[1].start, s.start+maxRaw)
		case s.found != nil:
			s.end = max(s.end, s.found.end)
		}
	}
	if err != nil || !s.isKept || w.mode == Screen {
		return err
	}
	return w.closeKept(s)
}

// closeKept closes a segment without a change of its file. If nothing of it can be read, its name
// has one byte all the same, because no other segment can then have the same name.
func (w *Writer) closeKept(s *segment) error {
	path := filepath.Join(w.dir, s.name)
	f, err := w.store.disk.OpenToWrite(path)
	if err != nil {
		return err
	}
	w.stats.Syncs++
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	s.end = max(s.end, s.start+1)
	s.name, s.isClosed = closedName(s.start, s.end), true
	w.isDirDirty = true
	return w.store.disk.Rename(path, filepath.Join(w.dir, s.name))
}

// hiddenEnd reports whether whole blocks with output, or behind output, follow the damaged part of a segment, and where a writer continues
// then: behind the last whole block, or before the header of a block, or entries, that are damaged, because no reader reads on there. If the
// header of a block tells that its payload reaches behind the end of the file, the segment ends there: blocks within
// that payload are output, such as a segment that a user has printed.
func hiddenEnd(path string, start uint64, key *dataKey) (end uint64, isHidden bool, err error) {
	f, err := openFile(path)
	if err != nil {
		return start, false, ignoreDamage(asUnread(err))
	}
	w := &walk{path: path, file: f, key: key}
	defer w.Close()
	if err := w.begin(); err != nil {
		if err := ignoreDamage(w.name(err)); err != nil {
			return start, false, err
		}
		w.head = head{start: start, isSealed: key != nil}
		isHidden, err = w.blockFollows(headBytes, start)
		return start, isHidden, err
	}
	end = w.start
	for isDamaged := false; ; {
		at := w.at
		b, err := w.next()
		if err == io.EOF || errors.Is(err, errCut) {
			return end, isHidden, nil
		}
		if err == nil && b.kind == kindEntries {
			_, err = w.entries()
		} else if err == nil {
			_, err = w.stored()
		}
		switch {
		case err == nil:
			end = w.end
			isHidden = isHidden || isDamaged && end > w.start
		case !errors.Is(err, ErrDamaged):
			return end, isHidden, err
		case b.kind == kindOutput || b.kind == kindKeyframe:
			isDamaged = true
		default:
			follows, err := w.blockFollows(at+1, end)
			return end, isHidden || follows, err
		}
	}
}

func ignoreDamage(err error) error {
	if errors.Is(err, ErrDamaged) {
		return nil
	}
	return err
}

// removeDrafts removes the files that a crash has left behind before they were renamed.
func (w *Writer) removeDrafts() error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), draftSuffix) {
			if err := w.store.disk.Remove(filepath.Join(w.dir, e.Name())); err != nil {
				return err
			}
			w.isDirDirty = true
		}
	}
	return nil
}

// dropEmpty removes the open segments that are empty. It leaves out a file if its header has another offset than
// its name.
func (w *Writer) dropEmpty(segments []segment) (left []segment, err error) {
	for _, s := range segments {
		if s.found != nil && s.found.start != s.start && !s.isClosed {
			continue
		}
		if !s.isClosed && !s.isKept && (s.found == nil || s.found.isEmpty()) {
			if err := w.store.disk.Remove(filepath.Join(w.dir, s.name)); err != nil {
				return nil, err
			}
			w.isDirDirty = true
			continue
		}
		if !s.isClosed && !s.isKept {
			s.end = s.found.end
		}
		left = append(left, s)
	}
	return left, nil
}

// openAgain opens an open segment, and cuts off its torn end.
func (w *Writer) openAgain(s segment) (*segmentFile, error) {
	path := filepath.Join(w.dir, s.name)
	f, err := w.store.disk.OpenToWrite(path)
	if err != nil {
		return nil, err
	}
	if s.found.torn != nil {
		err = f.Truncate(s.found.bytes)
	}
	if err == nil {
		w.stats.Syncs++
		err = f.Sync() // a reader may have seen more than was durable
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if w.store.IsDoubted(w.life) || w.key != nil && !s.found.isSealed {
		_ = f.Close() // it is replaced
		if f, err = w.rewrite(path, &s); err != nil {
			return nil, err
		}
	}
	early := s.found.early
	if s.found.end > s.start || len(early) > maxEntries {
		early = nil
	}
	return &segmentFile{
		file: f, cipher: s.found.cipher, path: path, start: s.start, end: s.end, bytes: s.found.bytes, raw: s.found.raw,
		blocks: s.found.blocks, early: early,
	}, nil
}

// rewrite replaces an open segment that was begun before the life had a key by a sealed one, and one that could not be synced
// by a file that is durable.
func (w *Writer) rewrite(path string, s *segment) (file, error) {
	f, written, err := pack(w.store.disk, path, w.key, s.found.end)
	if err != nil {
		return nil, err
	}
	w.isDirDirty = true
	w.stats.Written += uint64(written)
	if s.found, err = scan(path, w.key, false); err == nil && s.found == nil {
		err = fmt.Errorf("past: %s, which was just written, has no header", path)
	} else if err == nil {
		err = s.found.torn
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// closeLeft closes a segment that a crash has left open before a newer one. It is deleted instead
// if it has no output, or in the mode Screen, as Sync would have done. The newer one must be durable. In the mode Screen it stays
// until a writer can read the keyframe of the newer one, and without output, until there is one.
func (w *Writer) closeLeft(s segment) error {
	if w.mode == Screen && (w.cur == nil || w.keyframeAt != w.cur.start) || s.end == s.start && !w.hasKeyframe {
		return nil
	}
	if w.mode == Screen || s.end == s.start {
		return w.store.disk.Remove(filepath.Join(w.dir, s.name))
	}
	f, err := w.openAgain(s)
	if err != nil {
		return err
	}
	if err := f.file.Close(); err != nil {
		return err
	}
	return w.store.disk.Rename(f.path, filepath.Join(w.dir, closedName(s.start, s.end)))
}

// continueAfter makes the writer continue at the end of the last segment.
func (w *Writer) continueAfter(last segment) (err error) {
	f := last.found
	if last.isClosed {
		if f, err = scan(filepath.Join(w.dir, last.name), w.key, true); err != nil {
			return err
		}
	} else if last.isKept {
		return w.replaceDamaged(last)
	} else if w.cur, err = w.openAgain(last); err != nil {
		return err
	}
	if f != nil {
		w.size, w.flushedSize = f.sizeAtEnd, f.sizeAtEnd
	}
	w.end, w.flushed = last.end, last.end
	return nil
}

// replaceDamaged makes the writer continue behind a segment in the mode Screen, and does not change its file. The file is deleted
// when the next keyframe is durable.
func (w *Writer) replaceDamaged(s segment) error {
	path := filepath.Join(w.dir, s.name)
	f, err := w.store.disk.OpenToWrite(path)
	if err != nil {
		return err
	}
	w.cur = &segmentFile{file: f, path: path, start: s.start, end: s.end}
	w.retire(endRemove)
	w.end, w.flushed, w.isSkipping = s.end, s.end, true
	return nil
}

// findKeyframe finds the keyframe with which the screen at the end can be restored.
func (w *Writer) findKeyframe() error {
	segments, err := loadSegments(w.dir, w.key)
	if err != nil {
		return err
	}
	w.hasKeyframe = false
	for i := len(segments) - 1; i >= 0; i-- {
		s := segments[i]
		if i+1 < len(segments) && s.end < segments[i+1].start {
			return nil // output is missing after this segment
		}
		frame, err := readKeyframe(filepath.Join(w.dir, s.name), w.key)
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if frame != nil || s.start == 0 {
			w.hasKeyframe, w.keyframeAt = true, s.start
			return nil
		}
	}
	return nil
}
