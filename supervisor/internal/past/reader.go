package past

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"time"

	"holdfast/protocol"
)

// A Reader reads one life, which a writer of this or of another process may be writing. Each
// call sees the life as it is then. A Reader holds no file, and any goroutine may use it.
type Reader struct {
	dir string
	key *dataKey // nil: the life is not sealed
}

// Open returns a reader of a life. It returns an error that matches fs.ErrNotExist if the
// store does not have the life, and ErrLocked if its key cannot be had.
func (s *Store) Open(l Life) (*Reader, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	if _, err := listSegments(s.path(l)); err != nil {
		return nil, err
	}
	key, err := s.dataKey(s.path(l))
	if err != nil {
		return nil, err
	}
	return &Reader{s.path(l), key}, nil
}

// Meta returns the content of meta.json.
func (r *Reader) Meta() (Meta, error) { return readMeta(r.dir, r.key) }

// Extent returns the offset of the first byte that is stored, and the offset behind the last one.
// They are both zero if there is none. It reads no keyframe, as Bounds does.
func (r *Reader) Extent() (start, end uint64, err error) {
	segments, err := loadSegments(r.dir, r.key)
	if err != nil || len(segments) == 0 {
		return 0, 0, err
	}
	return segments[0].start, endOf(segments), nil
}

// Bounds are the ends of the output that is stored.
type Bounds struct {
	Start uint64 // offset of the first byte
	End   uint64 // offset behind the last byte
	Exact uint64 // the last offset at which the screen can be restored exactly; if there is none, Start
}

// Bounds returns the ends of the output that is stored. They are all zero if there is none.
func (r *Reader) Bounds() (Bounds, error) {
	segments, err := loadSegments(r.dir, r.key)
	if err != nil || len(segments) == 0 {
		return Bounds{}, err
	}
	b := Bounds{segments[0].start, segments[len(segments)-1].end, segments[0].start}
	for i := len(segments) - 1; i >= 0; i-- {
		frame, err := r.keyframe(segments[i])
		if err != nil && !errors.Is(err, ErrDamaged) {
			return Bounds{}, err
		}
		if frame != nil || segments[i].start == 0 {
			b.Exact = endOfRun(segments[i:])
			break
		}
	}
	return b, nil
}

// endOfRun returns the offset at which the output that begins with the first segment ends,
// because output is missing there or no more is stored.
func endOfRun(segments []segment) uint64 {
	end := segments[0].end
	for _, s := range segments[1:] {
		if s.start > end {
			break
		}
		end = s.end
	}
	return end
}

// keyframe returns the keyframe of a segment, or nil if the segment has none.
func (r *Reader) keyframe(s segment) ([]byte, error) {
	w, err := r.walk(s)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return w.keyframe()
}

func readKeyframe(path string, key *dataKey) ([]byte, error) {
	w, err := openWalk(path, key, true)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return w.keyframe()
}

func (w *walk) keyframe() ([]byte, error) {
	b, err := w.next()
	if err == io.EOF || err == nil && b.kind != kindKeyframe {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	frame, err := w.payload()
	if b.encoding == encodingPlain {
		frame = slices.Clone(frame) // it is a part of the window
	}
	return frame, err
}

// walk opens a segment. If the segment was closed since it was listed, it has another name.
func (r *Reader) walk(s segment) (*walk, error) {
	w, err := openWalk(filepath.Join(r.dir, s.name), r.key, true)
	if errors.Is(err, fs.ErrNotExist) {
		listed, listErr := listSegments(r.dir)
		i := slices.IndexFunc(listed, func(l segment) bool { return l.start == s.start })
		if listErr != nil || i < 0 {
			return nil, errors.Join(err, listErr)
		}
		w, err = openWalk(filepath.Join(r.dir, listed[i].name), r.key, true)
	}
	if err == nil && w.start != s.start {
		w.Close()
		err = fmt.Errorf("%w: %s has offset %d in its header", ErrDamaged, w.path, w.start)
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// A View is the screen at an offset: the keyframe, and the output after it.
type View struct {
	Offset     uint64                  // the offset of the view
	KeyframeAt uint64                  // the offset of the keyframe
	Keyframe   []byte                  // nil: a blank screen, at offset 0
	Size       protocol.Size           // size of the terminal at the keyframe; zero: unknown
	Exact      bool                    // no output is missing between KeyframeAt and Offset
	Replay     iter.Seq2[Piece, error] // the output and the size changes from KeyframeAt to Offset
}

// A Piece is output, a size change or a gap.
type Piece struct {
	Offset  uint64
	Output  []byte        // valid until the next piece
	Time    time.Time     // when the output was printed, to 100 ms
	Size    protocol.Size // not zero: the terminal has this size from Offset on
	Missing uint64        // not zero: so many bytes are missing from Offset on
	Damage  error         // why they cannot be read, although they were stored; nil if they were not stored
}

// At returns the view of an offset, with all size changes at that offset. It returns ErrGone,
// ErrAhead or ErrNoKeyframe if the screen there cannot be restored.
func (r *Reader) At(offset uint64) (*View, error) {
	segments, err := loadSegments(r.dir, r.key)
	if err != nil {
		return nil, err
	}
	if len(segments) == 0 || offset > segments[len(segments)-1].end {
		return nil, fmt.Errorf("%w: offset %d, end %d", ErrAhead, offset, endOf(segments))
	}
	if offset < segments[0].start {
		return nil, fmt.Errorf("%w: offset %d, start %d", ErrGone, offset, segments[0].start)
	}
	last := lastBefore(segments, offset)
	var damage error
	for i := last; i >= 0; i-- {
		v, err := r.view(segments[i])
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: offset %d was deleted by a budget", ErrGone, offset)
		}
		if err != nil && !errors.Is(err, ErrDamaged) {
			return nil, err
		}
		damage = errors.Join(damage, err)
		if v == nil {
			continue
		}
		v.Offset, v.Exact = offset, offset <= endOfRun(segments[i:])
		v.Replay = r.pieces(segments[i:], v.KeyframeAt, offset, v.Size)
		return v, nil
	}
	return nil, errors.Join(fmt.Errorf("%w: offset %d, start %d", ErrNoKeyframe, offset, segments[0].start), damage)
}

// view returns the view of the first offset of a segment, or nil if it has no keyframe.
func (r *Reader) view(s segment) (*View, error) {
	w, err := r.walk(s)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	frame, err := w.keyframe()
	if err != nil || frame == nil && s.start > 0 {
		return nil, err
	}
	return &View{KeyframeAt: s.start, Keyframe: frame, Size: w.size}, nil
}

func endOf(segments []segment) uint64 {
	if len(segments) == 0 {
		return 0
	}
	return segments[len(segments)-1].end
}

// lastBefore returns the index of the last segment that begins at or before offset, or -1.
func lastBefore(segments []segment, offset uint64) int {
	i, found := slices.BinarySearchFunc(segments, offset, func(s segment, o uint64) int {
		switch {
		case s.start < o:
			return -1
		case s.start > o:
			return 1
		}
		return 0
	})
	if found {
		return i
	}
	return i - 1
}

// Range returns the output from one offset to another, with the size changes and gaps. The
// first piece is the size of the terminal at from, if it is known. Range ends where the stored
// output ends; output before the first segment is a gap.
func (r *Reader) Range(from, to uint64) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		segments, err := loadSegments(r.dir, r.key)
		if err != nil {
			yield(Piece{}, err)
			return
		}
		r.pieces(segments, from, min(to, endOf(segments)), protocol.Size{})(yield)
	}
}

// A Gap is a range of output that is missing because it could not be stored.
type Gap struct{ From, To uint64 }

// Gaps returns the gaps in ascending order.
func (r *Reader) Gaps() ([]Gap, error) {
	segments, err := loadSegments(r.dir, r.key)
	if err != nil {
		return nil, err
	}
	var gaps []Gap
	for i := 1; i < len(segments); i++ {
		if g := (Gap{segments[i-1].end, segments[i].start}); g.From < g.To {
			gaps = append(gaps, g)
		}
	}
	return gaps, nil
}
