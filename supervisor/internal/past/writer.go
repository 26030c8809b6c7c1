package past

import (
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"holdfast/protocol"
)

// A Mode tells how much of the output is stored.
type Mode string

// The modes. A life in the mode Screen has the last keyframe and at most CapsuleBytes of output
// after it. Until this keyframe is durable, the life also has the keyframe before it, with its output.
const (
	Full   Mode = "full"
	Screen Mode = "screen"
)

const (
	timeEvery   = 100 * time.Millisecond // at most one time entry in this period
	maxRetired  = 16                     // segments that wait for Sync; Append then syncs by itself
	idleBytes   = 8 << 10                // memory for output that a writer keeps between two syncs
	sparseBlock = maxOutput / 4          // if the blocks of a segment are shorter on average, it is packed when it is closed
)

// Stats are counters of a writer.
type Stats struct {
	Appended uint64 // bytes of output that were appended
	Missing  uint64 // bytes of output that are in no segment: gaps, and the output that the mode Screen drops
	Written  uint64 // bytes that were written to files
	Syncs    uint64 // files and directories that were synced
}

// A Writer writes one life. Its methods may be called by any goroutine. Sync does not block the
// other methods while it waits for the disk.
//
// After an error other than ErrBehind, the caller continues with Append at End, if it still has
// that output, or at a later offset, which leaves a gap. Size changes after End must be passed
// to Resize again. Output that was synced before the error is not affected.
type Writer struct {
	store *Store
	life  Life
	dir   string
	mode  Mode

	syncing sync.Mutex // held during Sync, and locked before mu
	mu      sync.Mutex
	lock    *dirLock
	closed  bool
	key     *dataKey       // nil: the life is not sealed
	meta    []byte         // content of meta.json before it is sealed; nil: unknown
	isStale bool           // meta.json is not sealed, but the life is
	cur     *segmentFile   // nil: flush creates it, at flushed
	retired []*segmentFile // closed by the next Sync

	end         uint64        // where Append continues
	flushed     uint64        // end of the output in segments; the next block begins here
	synced      uint64        // end of the output that is durable
	output      []byte        // pending output, from flushed on
	entries     []byte        // pending entries
	isSkipping  bool          // mode Screen: all output is dropped until the next keyframe
	hasKeyframe bool          // the screen at flushed can be restored
	keyframeAt  uint64        // offset of the last keyframe
	size        protocol.Size // size of the terminal at end
	flushedSize protocol.Size // size of the terminal at flushed
	lastTime    time.Time     // of the last time entry
	created     time.Time     // when the output at flushed was printed, if cur is nil
	isDirty     bool          // there is something to sync
	isDirDirty  bool
	stats       Stats
}

// A segmentFile is a segment that is being written, or waits to be closed.
type segmentFile struct {
	file   file
	cipher cipher.AEAD // nil: payloads are not sealed
	path   string
	start  uint64
	end    uint64
	bytes  int64 // length of the whole blocks
	raw    int   // bytes of output and entries
	blocks int
	early  []byte // entries before the first output
	ending ending
}

// An ending tells whether Sync closes, removes or forgets a retired segment.
type ending int

const (
	endClose  ending = iota // sync it, and rename it to START-END
	endRemove               // delete it when the next keyframe is durable
	endForget               // close the file: it was replaced by another one
)

// OpenWriter opens a life to write it, and creates it if it does not exist. If it exists, the
// writer continues at its end, after it has cut off the torn end of a segment. The caller should
// then pass the size of the terminal to Resize. OpenWriter returns ErrInUse if another writer
// has the life, and ErrLocked if its key, or the key for a new life, cannot be had.
func (s *Store) OpenWriter(l Life, mode Mode) (*Writer, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	if mode != Full && mode != Screen {
		return nil, fmt.Errorf("past: unknown mode %.20q", mode)
	}
	w := &Writer{store: s, life: l, dir: s.path(l), mode: mode, hasKeyframe: true}
	if s.key != nil {
		if _, _, err := s.key.get(); err != nil {
			return nil, err
		}
	}
	err := w.openDir()
	if err == nil {
		if _, metaErr := readMeta(w.dir, nil); errors.Is(metaErr, ErrVersion) { // SetMeta replaces a meta.json that is missing or damaged
			err = metaErr
		}
	}
	if err == nil {
		err = w.openKey()
	}
	if err == nil {
		if err = w.recover(); err == nil {
			s.doubted.Delete(l)
		} else {
			s.Doubt(l)
		}
	}
	if err != nil {
		if w.lock != nil {
			w.lock.Close()
		}
		return nil, fmt.Errorf("past: write %s: %w", l, err)
	}
	return w, nil
}

// openDir creates the directory if it does not exist, and locks it.
func (w *Writer) openDir() error {
	if err := makeDirs(w.store.disk, w.dir); err != nil {
		return err
	}
	lock, err := lockDir(w.dir)
	if err != nil {
		return err
	}
	if w.lock != nil {
		w.lock.Close()
	}
	w.lock = lock
	return nil
}

// End returns the offset at which Append continues.
func (w *Writer) End() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.end
}

// Stats returns the counters.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// KeyframeDue reports whether the caller should call Keyframe: the output since the last one is
// long, or the screen at End cannot be restored because output is missing.
func (w *Writer) KeyframeDue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isSkipping || !w.hasKeyframe || w.mode == Full && w.end-w.keyframeAt >= segmentBytes
}

// Meta returns the content of meta.json, if it is known.
func (w *Writer) Meta() (Meta, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var m Meta
	return m, w.meta != nil && json.Unmarshal(w.meta, &m) == nil
}

// Capacity returns the offset up to which the output is stored if no keyframe comes before. It has
// no limit in the mode Full.
func (w *Writer) Capacity() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mode == Full {
		return maxOffset
	}
	return w.keyframeAt + CapsuleBytes
}

// Append stores output. offset is that of its first byte. Bytes before End are ignored, because
// they were appended before. If offset is behind End, the bytes between them are a gap.
func (w *Writer) Append(offset uint64, p []byte) error {
	if err := w.begin(); err != nil {
		return err
	}
	defer w.mu.Unlock()
	if offset > maxOffset-uint64(len(p)) {
		return fmt.Errorf("past: append at offset %d: offset overflows", offset)
	}
	if offset < w.end {
		p = p[min(w.end-offset, uint64(len(p))):]
		offset = w.end
	}
	if len(p) == 0 {
		return nil
	}
	if err := w.skipTo(offset); err != nil {
		return err
	}
	w.stats.Appended += uint64(len(p))
	if w.mode == Screen {
		return w.appendCapsule(p)
	}
	w.noteTime()
	for len(p) > 0 {
		n := min(len(p), maxOutput-len(w.output))
		w.output = append(w.output, p[:n]...)
		w.end += uint64(n)
		p = p[n:]
		if len(w.output) == maxOutput {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendCapsule keeps at most CapsuleBytes of output after the last keyframe. It drops further output,
// because the next keyframe will show it. A flood of output therefore costs no work here.
func (w *Writer) appendCapsule(p []byte) error {
	if !w.isSkipping {
		w.noteTime()
		n := min(uint64(len(p)), CapsuleBytes-min(CapsuleBytes, w.end-w.keyframeAt))
		w.output = append(w.output, p[:n]...)
		w.end += n
		p = p[n:]
		w.isSkipping = len(p) > 0
	}
	w.end += uint64(len(p))
	w.stats.Missing += uint64(len(p))
	return nil
}

// begin locks mu for a method that adds something. If many segments wait to be synced, it syncs
// them first: the disk is slower than the output, so the caller must wait.
func (w *Writer) begin() error {
	w.mu.Lock()
	if len(w.retired) >= maxRetired {
		w.mu.Unlock()
		if err := w.Sync(); err != nil {
			return err
		}
		w.mu.Lock()
	}
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}
	return nil
}

// skipTo begins a gap if offset is behind End.
func (w *Writer) skipTo(offset uint64) error {
	if offset == w.end {
		return nil
	}
	if w.mode == Full {
		if err := w.flush(); err != nil {
			return err
		}
		w.retire(endClose)
		w.flushed = offset
	}
	w.stats.Missing += offset - w.end
	w.end, w.hasKeyframe, w.isSkipping = offset, false, w.mode == Screen
	return nil
}

// noteTime adds a time entry if the last one is old.
func (w *Writer) noteTime() {
	now := w.store.now()
	if w.cur == nil && len(w.output) == 0 {
		w.created = now
	}
	if age := now.Sub(w.lastTime); age >= 0 && age < timeEvery || len(w.entries) >= fullBlock {
		return
	}
	w.lastTime = now
	w.entries = entry{kind: entryTime, offset: w.end, time: now}.append(w.entries)
	w.isDirty = true
}

// Resize stores that the terminal has this size from offset on, which must be End or behind it.
func (w *Writer) Resize(offset uint64, size protocol.Size) error {
	if size.Cols < 0 || size.Cols > 0xffff || size.Rows < 0 || size.Rows > 0xffff {
		return fmt.Errorf("past: invalid size %s", size)
	}
	if err := w.begin(); err != nil {
		return err
	}
	defer w.mu.Unlock()
	if offset < w.end {
		return fmt.Errorf("%w: resize at %d, end %d", ErrBehind, offset, w.end)
	}
	if offset > maxOffset {
		return fmt.Errorf("past: resize at offset %d: offset overflows", offset)
	}
	if err := w.skipTo(offset); err != nil {
		return err
	}
	if size == w.size {
		return nil
	}
	w.size = size
	if w.isSkipping {
		return nil
	}
	if w.flushedSize == (protocol.Size{}) && len(w.output) == 0 {
		w.flushedSize = size // the header of the first segment will have it
		return nil
	}
	return w.add(entry{kind: entryResize, offset: w.end, size: size})
}

// Mark stores a shell mark at an offset, which should not be behind End. A text that is longer
// than MaxMark is cut.
func (w *Writer) Mark(offset uint64, kind byte, text string) error {
	if err := w.begin(); err != nil {
		return err
	}
	defer w.mu.Unlock()
	if w.isSkipping {
		return nil
	}
	return w.add(entry{kind: entryMark, offset: offset, time: w.store.now(), mark: kind, text: text[:min(len(text), MaxMark)]})
}

// add adds an entry, and writes the pending entries if they fill a block. In the mode Screen
// it drops them instead if the segment is long, because the next keyframe replaces them.
func (w *Writer) add(e entry) error {
	w.entries = e.append(w.entries)
	w.isDirty = true
	if len(w.entries) < fullBlock {
		return nil
	}
	if w.cur != nil && w.cur.raw >= 2*CapsuleBytes && w.mode == Screen {
		w.isSkipping = true
		w.entries = w.entries[:0]
		return nil
	}
	if w.cur != nil && w.cur.raw >= maxSegment { // there is no output that would close the segment
		w.hasKeyframe = false
		w.entries = w.entries[:0]
		return nil
	}
	return w.flush()
}

// SetMeta replaces meta.json at once, and durably. It writes nothing if meta is unchanged.
func (w *Writer) SetMeta(m Meta) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	w.syncing.Lock()
	defer w.syncing.Unlock()
	w.mu.Lock()
	closed, same, dir := w.closed, slices.Equal(data, w.meta) && !w.isStale, w.lock
	w.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if same && dir.isCurrent() {
		return nil
	}
	if err := w.writeMeta(data); err != nil {
		return fmt.Errorf("past: meta of %s: %w", w.life, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.meta, w.isStale = data, false
	w.stats.Written += uint64(len(data))
	w.stats.Syncs += 2
	return nil
}

// Keyframe stores the screen at an offset, which must be End or behind it, and begins a segment
// there. Output between End and offset is a gap in the mode Full, and not needed in the mode
// Screen.
func (w *Writer) Keyframe(offset uint64, frame []byte) error {
	if err := checkKeyframe(offset, frame); err != nil {
		return err
	}
	if err := w.begin(); err != nil {
		return err
	}
	defer w.mu.Unlock()
	if offset < w.end {
		return fmt.Errorf("%w: keyframe at %d, end %d", ErrBehind, offset, w.end)
	}
	if w.mode == Full {
		if err := w.flush(); err != nil {
			return err
		}
	}
	return w.beginKeyframe(offset, frame)
}

func checkKeyframe(offset uint64, frame []byte) error {
	if len(frame) == 0 || len(frame) > maxKeyframe {
		return fmt.Errorf("past: keyframe of %d bytes; it must have 1 to %d", len(frame), maxKeyframe)
	}
	if offset > maxOffset {
		return fmt.Errorf("past: keyframe at offset %d: offset overflows", offset)
	}
	return nil
}

func (w *Writer) beginKeyframe(offset uint64, frame []byte) error {
	replaced := w.cur != nil && w.cur.start == offset
	var early []byte
	if replaced {
		early = marksOf(w.cur.early) // they would be lost with the segment
	}
	now := w.store.now()
	s, err := w.create(head{start: offset, created: now, size: w.size}, frame, early)
	if err != nil {
		if replaced {
			w.abandon() // the file may have been replaced all the same
		}
		return fmt.Errorf("past: keyframe of %s: %w", w.life, err)
	}
	w.stats.Missing += offset - w.end
	switch {
	case replaced:
		w.retire(endForget)
	case w.mode == Screen:
		w.stats.Missing += uint64(len(w.output))
		w.retire(endRemove)
	default:
		w.retire(endClose)
	}
	w.cur, w.output, w.entries = s, nil, nil
	w.end, w.flushed, w.keyframeAt = offset, offset, offset
	w.flushedSize, w.lastTime, w.created = w.size, now, now
	w.hasKeyframe, w.isSkipping = true, false
	return nil
}
