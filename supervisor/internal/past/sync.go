package past

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Sync makes all that was appended durable. It does nothing if nothing was appended since the
// last Sync. The other methods do not wait for it, unless the disk is much slower than the
// output. If Sync fails, the output since the last Sync that succeeded is in doubt.
func (w *Writer) Sync() error {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}
	err := w.sync()
	w.mu.Unlock()
	return err
}

// sync is called with syncing and mu locked. It unlocks mu while it waits for the disk.
func (w *Writer) sync() error {
	if !w.isDirty && len(w.output) == 0 && len(w.entries) == 0 {
		return nil
	}
	flushed := w.flush()
	r := round{w: w, cur: w.cur, retired: w.retired, isDirDirty: w.isDirDirty, hasKeyframe: w.hasKeyframe}
	end, lock := w.flushed, w.lock
	w.retired, w.isDirty, w.isDirDirty = nil, false, false
	if cap(w.output) > idleBytes {
		w.output = nil
	}
	w.mu.Unlock()
	err := r.run(lock)
	w.mu.Lock()
	w.stats.Syncs += r.syncs
	w.stats.Written += r.written
	w.retired = append(r.left, w.retired...)
	w.isDirDirty = w.isDirDirty || r.isDirDirty
	if err != nil {
		if r.cur != nil && w.cur == r.cur {
			w.abandon()
		}
		w.isDirty = true
		w.store.Doubt(w.life)
		return errors.Join(flushed, fmt.Errorf("past: sync %s: %w", w.life, err))
	}
	w.synced = max(w.synced, end)
	return errors.Join(flushed, r.notRemoved)
}

// A round is one execution of Sync. It runs without mu.
type round struct {
	w          *Writer
	cur        *segmentFile
	retired    []*segmentFile
	left       []*segmentFile // for the next round
	notRemoved error          // why an older keyframe could not be deleted
	isDirDirty bool
	syncs      uint64
	written    uint64

	hasKeyframe bool // the screen at the end can be restored, from cur or a segment that has output
}

func (r *round) run(lock *dirLock) error {
	if !lock.isCurrent() {
		for _, s := range r.retired {
			_ = s.file.Close() // the file is deleted
		}
		return ErrRemoved
	}
	var errs []error
	for _, s := range r.retired {
		switch {
		case s.ending != endClose:
		case s.end == s.start: // output is missing behind its keyframe
			s.ending = endRemove
		default:
			errs = append(errs, r.finish(s))
		}
	}
	if r.cur != nil {
		errs = append(errs, r.cur.file.Sync())
		r.syncs++
	}
	if r.isDirDirty {
		errs = append(errs, r.w.store.disk.SyncDir(r.w.dir))
		r.syncs++
	}
	err := errors.Join(errs...)
	r.isDirDirty = r.isDirDirty && err != nil
	for _, s := range r.retired {
		switch {
		case s.ending == endRemove && (err != nil || r.cur == nil || !r.hasKeyframe):
			r.left = append(r.left, s) // the newer keyframe may not be durable
		case s.ending == endRemove:
			r.remove(s)
		case s.ending == endForget:
			_ = s.file.Close() // its content is given up
		}
	}
	return err
}

// remove deletes an older keyframe. If that fails, the next round tries again.
func (r *round) remove(s *segmentFile) {
	if s.path == r.cur.path { // the newer one has replaced it
		_ = s.file.Close()
		return
	}
	if err := ignoreMissing(r.w.store.disk.Remove(s.path)); err != nil {
		r.notRemoved = errors.Join(r.notRemoved, fmt.Errorf("past: older keyframe of %s: %w", r.w.life, err))
		r.left = append(r.left, s)
		return
	}
	_ = s.file.Close() // it is deleted
	r.isDirDirty = true
}

// finish syncs a segment, which has output, and renames it to START-END.
func (r *round) finish(s *segmentFile) error {
	d := r.w.store.disk
	r.isDirDirty = true
	// The file must be whole before it is packed: a power cut may leave the second of the two
	// renames that follow, without the first.
	r.syncs++
	if err := s.file.Sync(); err != nil {
		return errors.Join(err, s.file.Close())
	}
	if s.blocks > 2 && s.raw/s.blocks < sparseBlock {
		if packed, written, err := pack(d, s.path, r.w.key, s.end); err == nil {
			r.written += uint64(written)
			r.syncs++
			_ = s.file.Close() // it is durable, and was replaced
			s.file = packed
		}
	}
	if err := s.file.Close(); err != nil {
		return err
	}
	return d.Rename(s.path, filepath.Join(r.w.dir, closedName(s.start, s.end)))
}

// Close syncs and closes the writer. A later writer of the same life continues the segment.
// Close returns the error of the sync; the writer is closed all the same.
func (w *Writer) Close() error { return w.close(w.sync) }

// Abandon closes the writer without a sync, because the life will be forgotten.
func (w *Writer) Abandon() {
	_ = w.close(func() error { return nil }) // the output that was not synced is given up
}

func (w *Writer) close(sync func() error) error {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	err := sync()
	if w.cur != nil {
		err = errors.Join(err, w.cur.file.Close())
	}
	for _, s := range w.retired {
		_ = s.file.Close() // sync has returned the error that matters
	}
	w.cur, w.retired = nil, nil
	w.lock.Close()
	return err
}
