package past

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"holdfast/protocol"
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
// error matches fs.ErrNotExist. Output that is damaged is zeros, and the error then matches ErrDamaged.
func (s Span) Append(p []byte, n int) (out []byte, times []Stamp, err error) {
	to := s.Start + min(uint64(max(n, 0)), s.End-s.Start)
	var damage error
	for piece, err := range s.reader.pieces([]segment{s.segment}, s.Start, to, protocol.Size{}) {
		if err != nil {
			return p, times, err
		}
		if damage = cmp.Or(damage, piece.Damage); piece.Missing > 0 && piece.Damage == nil {
			return p, times, fmt.Errorf("past: offset %d: %w", piece.Offset, fs.ErrNotExist)
		}
		p = append(append(p, piece.Output...), make([]byte, piece.Missing)...)
		if k := len(times); !piece.Time.IsZero() && (k == 0 || !times[k-1].Time.Equal(piece.Time)) {
			times = append(times, Stamp{piece.Offset, piece.Time})
		}
	}
	return p, times, damage
}

// IsMissing reports whether a part of the store cannot be read because it was deleted meanwhile or
// is damaged, so that the remaining parts are still of use.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDamaged) }
