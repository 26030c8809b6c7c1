package past

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// marksOf returns the marks among entries. A size change must not follow a keyframe that
// contains it.
func marksOf(entries []byte) (marks []byte) {
	all, err := parseEntries(entries)
	if err != nil {
		return nil // entries are those that were written, or that recover has parsed
	}
	for _, e := range all {
		if e.kind == entryMark {
			marks = e.append(marks)
		}
	}
	return marks
}

// create creates a segment with its header, a keyframe if frame is not empty, and entries.
func (w *Writer) create(h head, frame, early []byte) (*segmentFile, error) {
	h.isSealed = w.key != nil
	content := h.append(nil)
	s := &segmentFile{path: filepath.Join(w.dir, openName(h.start)), start: h.start, end: h.start, raw: len(early), cipher: w.key.forSegment(content)}
	if len(frame) > 0 {
		content = appendBlock(content, s.cipher, kindKeyframe, h.start, frame)
	}
	if len(early) > 0 {
		content = appendBlock(content, s.cipher, kindEntries, h.start, early)
		s.early, s.blocks = early, 1
	}
	s.bytes = int64(len(content))
	err := w.createFile(s, content)
	if errors.Is(err, fs.ErrNotExist) { // the directory was removed: create it again
		if err = w.restoreDir(); err == nil {
			err = w.createFile(s, content)
		}
	}
	if err != nil {
		return nil, err
	}
	w.isDirty, w.isDirDirty = true, true
	w.stats.Written += uint64(len(content))
	return s, nil
}

// createFile creates the file of a segment. If there is a segment without output of the same
// offset, the new file replaces it, so that after a crash one of the two is whole.
func (w *Writer) createFile(s *segmentFile, content []byte) error {
	f, err := w.store.disk.Create(s.path)
	if errors.Is(err, fs.ErrExist) {
		if s.file, err = writeDraft(w.store.disk, s.path, content); err != nil {
			return err
		}
		// Otherwise the file that was replaced might be renamed when the segment is closed.
		if err := w.store.disk.SyncDir(w.dir); err != nil {
			return errors.Join(err, s.file.Close())
		}
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		return errors.Join(err, f.Close(), w.store.disk.Remove(s.path))
	}
	s.file = f
	return nil
}

// restoreDir creates the directory, the key and meta.json again after they were removed.
func (w *Writer) restoreDir() error {
	if err := w.openDir(); err != nil {
		return err
	}
	if err := w.writeKey(); err != nil || w.meta == nil {
		return err
	}
	return w.writeMeta(w.meta)
}

// retire gives the current segment to Sync.
func (w *Writer) retire(e ending) {
	if w.cur != nil {
		w.cur.ending = e
		w.retired = append(w.retired, w.cur)
		w.cur = nil
		w.isDirty = true
	}
}

// abandon gives up the current segment, because its file may lack blocks or end with a part of one.
// The whole blocks stay in the file, and no other block follows them.
func (w *Writer) abandon() {
	w.retire(endForget)
	w.hasKeyframe = false
	if w.mode == Screen {
		w.isSkipping = true
		w.output, w.entries = nil, nil // a segment without a keyframe must not replace that one
	}
}

// flush writes the pending entries and output as blocks. Entries come before the output of
// their offsets, so that no crash can leave output without its size.
func (w *Writer) flush() error {
	if len(w.output) == 0 && len(w.entries) == 0 {
		return nil
	}
	err := w.writeBlocks()
	if err == nil {
		return nil
	}
	if w.mode == Screen {
		w.stats.Missing += uint64(len(w.output))
		w.isSkipping = true
	} else {
		w.stats.Missing += w.end - w.flushed
		w.end, w.size = w.flushed, w.flushedSize
	}
	w.output, w.entries = nil, nil
	return fmt.Errorf("past: write output of %s: %w", w.life, err)
}

func (w *Writer) writeBlocks() error {
	if w.cur == nil {
		if w.created.IsZero() { // there are entries alone
			w.created = w.store.now()
		}
		s, err := w.create(head{start: w.flushed, created: w.created, size: w.flushedSize}, nil, nil)
		if err != nil {
			return err
		}
		w.cur = s
	}
	s := w.cur
	var p []byte
	blocks := 0
	if len(w.entries) > 0 {
		p = appendBlock(p, s.cipher, kindEntries, w.flushed, w.entries)
		blocks++
	}
	end := w.flushed
	for out := w.output; len(out) > 0; blocks++ {
		n := min(len(out), maxOutput)
		p = appendBlock(p, s.cipher, kindOutput, end, out[:n])
		end += uint64(n)
		out = out[n:]
	}
	if _, err := s.file.WriteAt(p, s.bytes); err != nil {
		if cut := s.file.Truncate(s.bytes); cut != nil {
			w.abandon() // the file may end with a part of a block
			err = errors.Join(err, cut)
		}
		return err
	}
	if s.end == s.start && len(s.early)+len(w.entries) <= maxEntries {
		s.early = append(s.early, w.entries...)
	}
	if end > s.start {
		s.early = nil
	}
	s.bytes += int64(len(p))
	s.raw += len(w.entries) + len(w.output)
	s.blocks += blocks
	s.end, w.flushed, w.flushedSize = end, end, w.size
	w.output, w.entries = w.output[:0], w.entries[:0]
	w.isDirty = true
	w.stats.Written += uint64(len(p))
	if w.mode == Full && s.raw >= maxSegment && s.end > s.start {
		w.retire(endClose) // no keyframe came
		w.created = w.store.now()
		w.lastTime = time.Time{}
	}
	return nil
}
