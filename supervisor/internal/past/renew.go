package past

import (
	"errors"
	"fmt"
	"path/filepath"

	"holdfast/protocol"
)

// Renew stores the screen at an offset durably, and then deletes all older output, keyframes and
// marks, also those that are pending. The offset must be End or behind it. size is the size of the terminal
// at the offset. If Renew fails, the caller must repeat it, because older output may be left.
func (w *Writer) Renew(offset uint64, size protocol.Size, frame []byte) error {
	if err := checkKeyframe(offset, frame); err != nil {
		return err
	}
	w.syncing.Lock()
	defer w.syncing.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	if offset < w.end {
		return fmt.Errorf("%w: renewal at %d, end %d", ErrBehind, offset, w.end)
	}
	if w.mode == Full {
		w.stats.Missing += uint64(len(w.output))
	}
	w.size = size
	if w.cur != nil {
		w.cur.early = nil
	}
	if err := w.beginKeyframe(offset, frame); err != nil {
		return err
	}
	for _, s := range w.retired {
		if s.ending == endClose {
			s.ending = endRemove
		}
	}
	if err := w.sync(); err != nil {
		return err
	}
	return w.dropBefore(offset)
}

// dropBefore deletes the segments that begin before an offset.
func (w *Writer) dropBefore(offset uint64) error {
	segments, err := segmentNames(w.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range segments {
		if s, _ := parseSegment(name); s.start < offset || s.isClosed {
			errs = append(errs, ignoreMissing(w.store.disk.Remove(filepath.Join(w.dir, name))))
		}
	}
	errs = append(errs, w.store.disk.SyncDir(w.dir))
	w.stats.Syncs++
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("past: renew %s: %w", w.life, err)
	}
	return nil
}
