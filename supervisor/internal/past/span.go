package past

import (
	"errors"
	"io"
	"io/fs"
	"time"
)

// A Span is the output of one segment.
type Span struct {
	Start, End uint64
	reader     *Reader
	segment    segment
}

// Spans returns the output that is stored, in ascending order. Output is missing where a span
// does not begin at the end of the one before it.
func (r *Reader) Spans() ([]Span, error) {
	segments, err := loadSegments(r.dir, r.key)
	if err != nil {
		return nil, err
	}
	spans := make([]Span, 0, len(segments))
	for _, s := range segments {
		if s.start < s.end {
			spans = append(spans, Span{s.start, s.end, r, s})
		}
	}
	return spans, nil
}

// A Stamp is the time at which the output from an offset on was printed.
type Stamp struct {
	Offset uint64
	Time   time.Time
}

// Append appends the first n bytes of the span to p, or all of it if it is shorter. times are the
// times of the output, in ascending order of their offsets. If the segment was deleted meanwhile, the
// error matches fs.ErrNotExist.
func (s Span) Append(p []byte, n int) (out []byte, times []Stamp, err error) {
	w, err := s.reader.walk(s.segment)
	if err != nil {
		return p, nil, err
	}
	defer w.Close()
	times = []Stamp{{w.start, w.created}}
	want := len(p) + int(min(uint64(max(n, 0)), s.End-s.Start))
	for len(p) < want {
		b, err := w.next()
		if err == io.EOF {
			return p, times, nil
		}
		if err != nil {
			return p, times, err
		}
		switch b.kind {
		case kindOutput:
			payload, err := w.payload()
			if err != nil {
				return p, times, err
			}
			p = append(p, payload[:min(len(payload), want-len(p))]...)
		case kindEntries:
			entries, err := w.entries()
			if err != nil {
				return p, times, err
			}
			for _, e := range entries {
				if e.kind == entryTime {
					times = append(times, Stamp{e.offset, e.time})
				}
			}
		}
	}
	return p, times, nil
}

// IsMissing reports whether a part of the store cannot be read because it was deleted meanwhile or
// is damaged, so that the remaining parts are still of use.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDamaged) }
