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
// when the last byte was printed. It returns ErrDamaged if the time is in a part of a file that cannot be read.
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
	read, err := r.entries(segments[i], func(w *walk, e entry) bool {
		if e.kind == entryTime && e.offset <= offset {
			at = e.time
		}
		return e.kind != entryTime || e.offset <= offset
	}, func(w *walk) { at = w.created })
	if errors.Is(err, ErrDamaged) && offset < read {
		err = nil
	}
	return at, err
}

// OffsetAt returns the end of the output that was printed up to a time. It returns ErrGone for a
// time before the first output that is stored. If the clock was set back, there may be several
// such offsets, and OffsetAt returns one of them. Output behind damage in a segment counts as printed after the time.
func (r *Reader) OffsetAt(t time.Time) (uint64, error) {
	segments, err := loadSegments(r.dir, r.key)
	if err != nil {
		return 0, err
	}
	for i := len(segments) - 1; i >= 0; i-- {
		offset, began, err := r.offsetIn(segments[i], t)
		if err != nil && !IsMissing(err) {
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
	read, err := r.entries(s, func(_ *walk, e entry) bool {
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
	if errors.Is(err, ErrDamaged) {
		offset = min(offset, read)
	}
	return min(offset, s.end), began, err
}

// entries calls begin when it has read the header of a segment, and then each with the entries in
// their order, until each returns false. It returns the end of the output of which it has read the entries.
func (r *Reader) entries(s segment, each func(*walk, entry) bool, begin func(*walk)) (end uint64, err error) {
	w, err := r.walk(s)
	if err != nil {
		return s.start, err
	}
	defer w.Close()
	begin(w)
	for {
		b, err := w.next()
		var entries []entry
		if err == nil && b.kind == kindEntries {
			entries, err = w.entries()
		}
		if err == io.EOF && w.end < s.end {
			err = w.endsBefore(s.end)
		}
		if err == io.EOF || errors.Is(err, ErrDamaged) && w.end >= s.end {
			return w.end, nil
		}
		if err != nil {
			return w.end, err
		}
		for _, e := range entries {
			if !each(w, e) {
				return w.end, nil
			}
		}
	}
}

// A Note is a fact about the output at an offset: when it was printed, a shell mark, or damage.
type Note struct {
	Offset  uint64
	Time    time.Time // when the output from Offset on was printed, or when the mark was stored
	Kind    byte      // kind of the shell mark; 0: the note is a time or damage
	Text    string    // of the mark
	Missing uint64    // not zero: the notes about so many bytes from Offset on cannot be read
	Damage  error     // why they cannot be read
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
			read, err := r.entries(s, func(_ *walk, e entry) bool {
				if e.kind != entryResize {
					n.add(Note{Offset: e.offset, Time: e.time, Kind: e.mark, Text: e.text})
				}
				return !n.isStopped
			}, func(w *walk) { n.add(Note{Offset: w.start, Time: w.created}) })
			switch {
			case n.isStopped || err == nil || errors.Is(err, fs.ErrNotExist):
			case errors.Is(err, ErrDamaged):
				n.damaged(max(from, read), min(n.to, s.end), err)
			default:
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

func (n *notes) damaged(from, to uint64, why error) {
	if from < to {
		n.isStopped = !n.yield(Note{Offset: from, Missing: to - from, Damage: why}, nil)
	}
}
