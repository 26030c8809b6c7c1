package past

import (
	"errors"
	"io"
	"io/fs"
	"iter"
	"time"

	"holdfast/protocol"
)

// pieces returns the pieces of the segments from one offset to another, which must not be
// behind the end of the last segment. size is the size that the caller knows already.
func (r *Reader) pieces(segments []segment, from, to uint64, size protocol.Size) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		p := replay{reader: r, at: from, to: to, size: size, known: size, yield: yield}
		for i, s := range segments {
			if s.start > to || i+1 < len(segments) && segments[i+1].start <= from {
				continue
			}
			if err := p.segment(s); err != nil {
				if !p.stopped {
					yield(Piece{}, err)
				}
				return
			}
		}
		_ = p.gapTo(to) // the iteration ends in either case
	}
}

// A replay emits the pieces of one iteration.
type replay struct {
	reader  *Reader
	at, to  uint64 // all before at was emitted
	yield   func(Piece, error) bool
	size    protocol.Size // size at offset at
	known   protocol.Size // size that was emitted last
	time    time.Time     // time of the output at offset at
	queue   []entry       // times and size changes from at on
	stopped bool
}

// errStopped ends an iteration because the caller needs no more pieces.
var errStopped = errors.New("past: stopped")

func (p *replay) emit(piece Piece) error {
	if !p.yield(piece, nil) {
		p.stopped = true
		return errStopped
	}
	return nil
}

// gapTo emits a gap up to an offset.
func (p *replay) gapTo(offset uint64) error { return p.damagedTo(offset, nil) }

// damagedTo emits a gap up to an offset, because damage prevents that the output is read.
func (p *replay) damagedTo(offset uint64, damage error) error {
	if offset = min(offset, p.to); p.at >= offset {
		return nil
	}
	gap := Piece{Offset: p.at, Missing: offset - p.at, Damage: damage}
	p.at = offset
	return p.emit(gap)
}

// segment emits the pieces of a segment. Damaged output is a gap. If the header of a block or its entries are
// damaged, the remaining output of the segment is a gap, because its place or the sizes of the terminal are unknown.
func (p *replay) segment(s segment) error {
	if err := p.gapTo(s.start); err != nil {
		return err
	}
	w, err := p.reader.walk(s)
	if errors.Is(err, fs.ErrNotExist) { // it was deleted by a budget; its output is a gap
		return nil
	}
	if errors.Is(err, ErrDamaged) {
		return p.damagedTo(s.end, err)
	}
	if err != nil {
		return err
	}
	defer w.Close()
	p.queue, p.time = p.queue[:0], w.created
	if w.size != (protocol.Size{}) {
		p.size = w.size
	}
	for {
		before := w.end
		b, err := w.next()
		if err == nil && b.kind != kindEntries && before >= min(p.to, s.end) && w.end > before {
			break
		}
		if err == nil {
			err = p.block(w, b, min(s.end, p.to))
		}
		if err == io.EOF || errors.Is(err, ErrDamaged) && before >= s.end {
			break // the listing does not have the damaged end of a segment
		}
		if errors.Is(err, ErrDamaged) && b.kind == kindOutput {
			err = p.damagedTo(min(w.end, s.end), err)
		} else if errors.Is(err, ErrDamaged) {
			return p.damagedTo(s.end, err)
		}
		if err != nil {
			return err
		}
	}
	if w.end < min(s.end, p.to) {
		return p.damagedTo(s.end, w.endsBefore(s.end))
	}
	return p.apply(min(s.end, p.to))
}

// block emits the pieces of the last block of w before the offset limit.
func (p *replay) block(w *walk, b block, limit uint64) error {
	switch {
	case b.kind == kindEntries:
		entries, err := w.entries()
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.kind != entryMark {
				p.queue = append(p.queue, e)
			}
		}
	case b.kind == kindOutput && w.end > p.at:
		output, err := w.payload()
		if err != nil {
			return err
		}
		return p.output(output[max(p.at, b.from)-b.from : min(w.end, max(limit, p.at))-b.from])
	}
	return nil
}

// output emits output from at on, divided where the time or the size changes.
func (p *replay) output(output []byte) error {
	for len(output) > 0 {
		if err := p.apply(p.at); err != nil {
			return err
		}
		n := uint64(len(output))
		if len(p.queue) > 0 {
			n = min(n, p.queue[0].offset-p.at)
		}
		piece := Piece{Offset: p.at, Output: output[:n:n], Time: p.time}
		p.at += n
		output = output[n:]
		if err := p.emit(piece); err != nil {
			return err
		}
	}
	return nil
}

// apply applies the entries up to an offset. It emits each size change at that offset, because a
// screen that became narrow and wide again differs from a screen that stayed wide. Of the changes
// before the first offset of the iteration, it emits only the last one.
func (p *replay) apply(offset uint64) error {
	for len(p.queue) > 0 && p.queue[0].offset <= offset {
		e := p.queue[0]
		p.queue = p.queue[1:]
		switch {
		case e.kind == entryTime:
			p.time = e.time
		case e.offset < p.at:
			p.size = e.size
		default:
			if err := p.emitSize(p.size); err != nil {
				return err
			}
			p.size = e.size
		}
	}
	return p.emitSize(p.size)
}

// emitSize emits a size if it differs from the last one.
func (p *replay) emitSize(size protocol.Size) error {
	if size == p.known {
		return nil
	}
	p.known = size
	return p.emit(Piece{Offset: p.at, Size: size})
}
