package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/terminal"
)

// maxBefore is how many segments are replayed because they have no keyframe.
const maxBefore = 64

// Show returns the content of the screen that a recording had at a moment: an offset, a time, or a time before
// now. nil is the end of the recording. The content is exact, but for two things: whether the first row continues the
// row above, and, from a change of the size to the next keyframe, the layout of the lines.
//
// Errors: fs.ErrNotExist if there is no such recording; not_stored if the recording does not have the moment;
// ErrTorn, limit_exceeded; ctx's and those of the store.
func Show(ctx context.Context, s Store, keys *Keys, n Name, at *protocol.Moment, spec protocol.ScreenSpec) (protocol.ScreenContent, error) {
	c, err := load(ctx, s, n)
	if err != nil {
		return protocol.ScreenContent{}, err
	}
	p := &player{ctx, s, keys, c}
	offset, i, err := p.find(at)
	if err != nil {
		return protocol.ScreenContent{}, err
	}
	return p.show(offset, i, spec)
}

// Output writes the recorded output of a recording to w, up to the moment at, or all of it if at is nil. It returns how
// many bytes within it are missing. If a segment is torn, or no key opens it, Output writes the others, and then returns the
// error. A segment that was deleted because of its age or the limit of bytes since the recording was listed is missing.
//
// Errors: those of Show, and those of w.
func Output(ctx context.Context, s Store, keys *Keys, n Name, at *protocol.Moment, w io.Writer) (missing uint64, err error) {
	c, err := load(ctx, s, n)
	if err != nil {
		return 0, err
	}
	p := &player{ctx, s, keys, c}
	to, last, err := p.find(at)
	if err != nil {
		return 0, err
	}
	next := uint64(0)
	var unread error
	for i := range p.segments[:last+1] {
		seg, err := p.segment(i)
		if isUnreadable(err) {
			if !errors.Is(err, fs.ErrNotExist) {
				unread = cmp.Or(unread, err)
			}
			continue
		}
		if err != nil {
			return missing, err
		}
		from, until := max(next, seg.Start), min(to, seg.End())
		if from >= until { // it overlaps the one before
			continue
		}
		missing += from - next
		if _, err := w.Write(seg.Output[from-seg.Start : until-seg.Start]); err != nil {
			return missing, err
		}
		next = until
	}
	return missing + max(next, to) - next, unread
}

// isUnreadable reports whether an error concerns one segment, so that the others can be read: it is torn, was deleted since
// it was listed, or this program or its key cannot open it.
func isUnreadable(err error) bool {
	return errors.Is(err, ErrTorn) || errors.Is(err, errNoKey) || errors.Is(err, errFormat) || errors.Is(err, fs.ErrNotExist)
}

// A player reads a recording.
type player struct {
	ctx   context.Context
	store Store
	keys  *Keys
	*contents
}

// segment reads segment i.
func (p *player) segment(i int) (*Segment, error) {
	object, err := p.store.Get(p.ctx, p.segments[i].Key, maxObject)
	if err != nil {
		return nil, err
	}
	seg, err := openSegment(object, p.segments[i].Key, p.keys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.segments[i].Key, err)
	}
	return seg, nil
}

// find returns the offset of a moment, and the number of the segment that ends at it or contains it.
func (p *player) find(at *protocol.Moment) (offset uint64, i int, err error) {
	if len(p.segments) == 0 {
		return 0, 0, protocol.Errorf(protocol.CodeNotStored, "recording %s has no segments", p.name)
	}
	switch {
	case at == nil:
		for k, o := range p.segments { // the last segment may be within another one
			if o.end >= offset {
				offset, i = o.end, k
			}
		}
		return offset, i, nil
	case at.Offset != nil:
		return p.findOffset(*at.Offset)
	case at.AgoMS != nil:
		return p.findTime(time.Now().Add(-time.Duration(min(*at.AgoMS, maxAgo)) * time.Millisecond))
	case !at.Time.IsZero():
		return p.findTime(at.Time)
	}
	return 0, 0, protocol.Errorf(protocol.CodeInvalidArgument, "a recording does not know the commands of the shell; give an offset or a time")
}

// maxAgo is 100 years in milliseconds. It replaces longer times, which a time.Duration may not hold.
const maxAgo = 100 * 365 * 24 * 3600 * 1000

func (p *player) findOffset(offset uint64) (uint64, int, error) {
	for i, o := range p.segments {
		if o.start <= offset && offset <= o.end {
			return offset, p.shown(offset, i), nil
		}
	}
	sum := p.summary()
	return 0, 0, protocol.Errorf(protocol.CodeNotStored, "offset %d is not recorded; the recording has the output from %d to %d", offset, sum.Start, sum.End)
}

// firstTime returns the first segment of from to before, without before, that can be read and has times, and its first time. The
// time is zero if there is none: segments without output have no times.
func (p *player) firstTime(from, before int) (i int, first time.Time, err error) {
	for i = from; i < before && first.IsZero(); i++ {
		seg, err := p.segment(i)
		if isUnreadable(err) {
			continue
		}
		if err != nil {
			return 0, first, err
		}
		first = seg.firstTime()
	}
	return i - 1, first, nil
}

// findTime finds the end of the output that was printed up to a time.
func (p *player) findTime(t time.Time) (uint64, int, error) {
	low, high := 0, len(p.segments) // the first segment that begins after t is in this range
	for low < high {
		i := (low + high) / 2
		timed, first, err := p.firstTime(i, high)
		if err != nil {
			return 0, 0, err
		}
		if first.IsZero() || first.After(t) {
			high = i
		} else {
			low = timed + 1
		}
	}
	if low == 0 {
		if _, err := p.segment(0); err != nil && !errors.Is(err, fs.ErrNotExist) { // the time may be in it
			return 0, 0, err
		}
		return 0, 0, protocol.Errorf(protocol.CodeNotStored, "the screen at %s is not recorded; the recording begins later", t.Local().Format(time.DateTime))
	}
	seg, err := p.segment(low - 1)
	if err != nil {
		return 0, 0, err
	}
	for _, stamp := range seg.Times {
		if stamp.At.After(t) {
			return stamp.Offset, low - 1, nil
		}
	}
	return seg.End(), p.shown(seg.End(), low-1), nil
}

// shown returns the number of the segment without output at an offset, which exists because of its keyframe, or i if there is none.
func (p *player) shown(offset uint64, i int) int {
	for k := i + 1; k < len(p.segments) && p.segments[k].start <= offset; k++ {
		if p.segments[k].start == offset && p.segments[k].end == offset {
			return k
		}
	}
	return i
}

// show replays the recording from the last keyframe before an offset in segment i.
func (p *player) show(offset uint64, i int, spec protocol.ScreenSpec) (c protocol.ScreenContent, err error) {
	var segments []*Segment // the last one first
	for at := offset; ; i-- {
		if i < 0 || len(segments) > maxBefore {
			return c, p.notExact(offset)
		}
		if p.segments[i].end < at { // output is missing between, or an earlier segment has all of this one
			continue
		}
		seg, err := p.segment(i)
		if errors.Is(err, fs.ErrNotExist) { // it was deleted since it was listed
			return c, p.notExact(offset)
		}
		if err != nil {
			return c, err
		}
		if segments = append(segments, seg); seg.IsShown {
			break
		}
		if seg.Missing > 0 {
			return c, p.notExact(offset)
		}
		at = seg.Start
	}
	first := segments[len(segments)-1]
	size, sizes := first.Size, first.Sizes
	for len(sizes) > 0 && sizes[0].Offset == first.Start {
		size, sizes = sizes[0].Size, sizes[1:]
	}
	first.Sizes = sizes
	t := terminal.New(size, protocol.DefaultHistory)
	if err := t.Write(p.ctx, first.Keyframe); err != nil {
		return c, err
	}
	at := first.Start
	for k := len(segments) - 1; k >= 0; k-- {
		if at, err = p.print(t, segments[k], at, offset, &c.PrintedAt); err != nil {
			return c, err
		}
	}
	printed := c.PrintedAt
	if c, err = t.Content(spec); err != nil {
		return c, err
	}
	c.Instance, c.Offset, c.PrintedAt = p.name.Instance, offset, printed
	return c, nil
}

func (p *player) notExact(offset uint64) error {
	return protocol.Errorf(protocol.CodeNotStored, "the screen at offset %d is not recorded, because output before it is missing; proxy verify %s names the gaps", offset, p.name)
}

// print prints the output of a segment from one offset to another, with its changes of size. It returns the offset
// behind the printed output. Segments may overlap.
func (p *player) print(t *terminal.Terminal, seg *Segment, from, to uint64, printedAt *time.Time) (uint64, error) {
	to = min(to, seg.End())
	sizes := seg.Sizes
	for at := max(from, seg.Start); ; {
		for len(sizes) > 0 && sizes[0].Offset <= at {
			if sizes[0].Offset >= from {
				if err := t.Resize(sizes[0].Size); err != nil {
					return 0, err
				}
			}
			sizes = sizes[1:]
		}
		if at >= to {
			break
		}
		next := to
		if len(sizes) > 0 {
			next = min(next, sizes[0].Offset)
		}
		if err := t.Write(p.ctx, seg.Output[at-seg.Start:next-seg.Start]); err != nil {
			return 0, err
		}
		at = next
	}
	for _, stamp := range seg.Times {
		if stamp.Offset < to {
			*printedAt = stamp.At
		}
	}
	return max(from, to), nil
}
