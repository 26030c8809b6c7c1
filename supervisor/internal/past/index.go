package past

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"time"
)

// TimeAt returns when the byte at an offset was printed, to 100 ms; for the end of the output,
// when the last byte was printed.
func (r *Reader) TimeAt(offset uint64) (time.Time, error) {
	segments, err := loadSegments(r.dir, r.key)
	if err != nil {
		return time.Time{}, err
	}
	if offset > endOf(segments) || len(segments) == 0 {
		return time.Time{}, fmt.Errorf("%w: offset %d, end %d", ErrAhead, offset, endOf(segments))
	}
	i := lastBefore(segments, offset)
	if i < 0 {
		return time.Time{}, fmt.Errorf("%w: offset %d, start %d", ErrGone, offset, segments[0].start)
	}
	var at time.Time
	err = r.entries(segments[i], func(w *walk, e entry) bool {
		if e.kind == entryTime && e.offset <= offset {
			at = e.time
		}
		return e.kind != entryTime || e.offset <= offset
	}, func(w *walk) { at = w.created })
	return at, err
}

// OffsetAt returns the end of the output that was printed up to a time. It returns ErrGone for a
// time before the first output that is stored. If the clock was set back, there may be several
// such offsets, and OffsetAt returns one of them.
func (r *Reader) OffsetAt(t time.Time) (uint64, error) {
	segments, err := loadSegments(r.dir, r.key)
	if err != nil {
		return 0, err
	}
	for i := len(segments) - 1; i >= 0; i-- {
		offset, began, err := r.offsetIn(segments[i], t)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		if began {
			return offset, nil
		}
	}
	return 0, fmt.Errorf("%w: %s", ErrGone, t.Format(time.RFC3339Nano))
}

// offsetIn returns the end of the output of a segment that was printed up to t, and whether the
// segment began before t.
func (r *Reader) offsetIn(s segment, t time.Time) (offset uint64, began bool, err error) {
	isAfter := false // the last entry was printed after t, and offset is that of the first such entry
	err = r.entries(s, func(_ *walk, e entry) bool {
		switch {
		case e.kind != entryTime:
		case !e.time.After(t):
			offset, isAfter = s.end, false
		case !isAfter:
			offset, isAfter = e.offset, true
		}
		return began
	}, func(w *walk) {
		offset, began = s.end, !w.created.After(t)
	})
	return min(offset, s.end), began, err
}

// entries calls begin when it has read the header of a segment, and then each with the entries in
// their order, until each returns false.
func (r *Reader) entries(s segment, each func(*walk, entry) bool, begin func(*walk)) error {
	w, err := r.walk(s)
	if err != nil {
		return err
	}
	defer w.Close()
	begin(w)
	for {
		b, err := w.next()
		if err == io.EOF || errors.Is(err, ErrDamaged) && !s.isClosed {
			return nil
		}
		if err != nil {
			return err
		}
		if b.kind != kindEntries {
			continue
		}
		entries, err := w.entries()
		if errors.Is(err, ErrDamaged) && !s.isClosed {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !each(w, e) {
				return nil
			}
		}
	}
}

// A Note is a fact about the output at an offset: when it was printed, or a shell mark.
type Note struct {
	Offset uint64
	Time   time.Time // when the output from Offset on was printed, or when the mark was stored
	Kind   byte      // kind of the shell mark; 0: the note is a time
	Text   string    // of the mark
}

// Notes returns the notes from one offset to another, in the order in which they were stored. The
// first note of each segment is the time of its first output.
func (r *Reader) Notes(from, to uint64) iter.Seq2[Note, error] {
	return func(yield func(Note, error) bool) {
		segments, err := loadSegments(r.dir, r.key)
		if err != nil {
			yield(Note{}, err)
			return
		}
		n := notes{from: from, to: min(to, endOf(segments)), yield: yield}
		for _, s := range segments {
			if s.end < from || n.isStopped {
				continue
			}
			err := r.entries(s, func(_ *walk, e entry) bool {
				if e.kind != entryResize {
					n.add(Note{e.offset, e.time, e.mark, e.text})
				}
				return !n.isStopped
			}, func(w *walk) { n.add(Note{Offset: w.start, Time: w.created}) })
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !n.isStopped {
				n.isStopped = !yield(Note{}, err)
			}
		}
	}
}

// notes is one iteration of Notes.
type notes struct {
	from, to  uint64
	yield     func(Note, error) bool
	isStopped bool
}

func (n *notes) add(e Note) {
	if !n.isStopped && e.Offset >= n.from && e.Offset <= n.to {
		n.isStopped = !n.yield(e, nil)
	}
}
