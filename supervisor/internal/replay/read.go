package replay

import (
	"context"
	"iter"

	"holdfast/protocol"
	"holdfast/supervisor/internal/past"
)

// maxStamps bounds the times, and the sizes, of one Output.
const maxStamps = 2000

// An Output is output of the past.
type Output struct {
	Offset uint64 // of the first byte; output that is not kept was left out before it
	End    uint64 // of all output
	Data   []byte
	Times  []protocol.PastTime // in ascending order
	Sizes  []protocol.PastSize // in ascending order; the first one is that at Offset
}

// Read returns up to n bytes of output that begin at offset, or at the first byte behind it that is
// kept and was not cleared. It ends where output is missing.
//
// Errors: ctx's, and those of the store.
func (p *Past) Read(ctx context.Context, offset uint64, n int) (Output, error) {
	e, err := p.extent()
	if err != nil {
		return Output{}, err
	}
	o := Output{Offset: min(max(offset, p.ClearedTo), e.last()), End: e.last(), Data: []byte{}}
	for piece, err := range p.pieces(e, o.Offset, o.End) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return Output{}, err
		}
		if !o.add(piece, n) {
			break
		}
	}
	return o, nil
}

// add adds a piece, and reports whether another one may follow.
func (o *Output) add(p past.Piece, n int) bool {
	switch {
	case p.Size != protocol.Size{}:
		k := len(o.Sizes)
		if k > 0 && o.Sizes[k-1].Offset == p.Offset { // it was replaced before it had output
			k--
			o.Sizes = o.Sizes[:k]
		}
		if k > 0 && o.Sizes[k-1].Size == p.Size { // the ring repeats that of the store
			break
		}
		o.Sizes = append(o.Sizes, protocol.PastSize{Offset: p.Offset, Size: p.Size})
	case p.Missing > 0:
		if len(o.Data) > 0 {
			return false
		}
		o.Offset = p.Offset + p.Missing
		for i := range o.Sizes {
			o.Sizes[i].Offset = o.Offset
		}
	default:
		if k := len(o.Times); !p.Time.IsZero() && (k == 0 || !o.Times[k-1].At.Equal(p.Time)) {
			o.Times = append(o.Times, protocol.PastTime{Offset: p.Offset, At: p.Time})
		}
		o.Data = append(o.Data, p.Output[:min(len(p.Output), n-len(o.Data))]...)
	}
	return len(o.Data) < n && len(o.Times) < maxStamps && len(o.Sizes) < maxStamps
}

// pieces returns the output from one offset to another: that of the store, and that of the ring where the store
// has none.
func (p *Past) pieces(e extent, from, to uint64) iter.Seq2[past.Piece, error] {
	if p.Reader == nil || from >= e.end {
		return p.ringPieces(from, to, protocol.Size{})
	}
	stored := p.filled(p.Reader.Range(from, min(to, e.end)))
	if to <= e.end {
		return stored
	}
	return joined(stored, p.ringPieces(e.end, to, protocol.Size{}))
}

// filled returns the pieces of the store, with the output of the ring where output is missing. The store lacks output
// that the ring has if it keeps only the last keyframe and the output after it, and if a disk was too slow.
func (p *Past) filled(stored iter.Seq2[past.Piece, error]) iter.Seq2[past.Piece, error] {
	return func(yield func(past.Piece, error) bool) {
		for piece, err := range stored {
			end := piece.Offset + piece.Missing
			start, _ := p.ringBounds()
			start = max(start, piece.Offset)
			if start >= end { // nothing is missing, or the ring does not have it
				if !yield(piece, err) {
					return
				}
				continue
			}
			if start > piece.Offset && !yield(past.Piece{Offset: piece.Offset, Missing: start - piece.Offset}, nil) {
				return
			}
			for piece, err := range p.ringPieces(start, end, protocol.Size{}) {
				if !yield(piece, err) {
					return
				}
			}
		}
	}
}
