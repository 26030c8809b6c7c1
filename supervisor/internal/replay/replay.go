// Package replay shows the past of a session: its screen at any moment, its times, its commands.
//
// The output of the past is in the store on disk (package past), and the last part of it in the
// ring (package ring). A screen is rebuilt from a keyframe and the output after it. The
// keyframe is one of the store, or the one in memory that a successor would restore.
//
// Invariant: a screen that is not exact is marked as inexact. It is never guessed from output
// without a keyframe.
//
// Invariant: all work is done in the goroutine of the caller, ends if its context ends, and has
// limits of time and memory.
//
// Not here: the session's goroutine (package session), the files (package past).
package replay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"runtime/debug"
	"time"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/screen"
)

const (
	// maxLines bounds the lines above a screen of the past, and with them the memory of a request.
	maxLines = 10_000
	// maxCost bounds the work of a replay, in the unit of screen.WriteSome: some seconds. Ordinary
	// output needs less than a hundredth of it.
	maxCost  = 2 << 30
	stepCost = 1 << 20
	// restoreSlice is the part of a keyframe that is restored between two looks at the context.
	restoreSlice = 1 << 20
	ringPiece    = 64 << 10
	// maxTries is how often a replay is begun, if the ring overwrites output while it runs.
	maxTries = 3
)

// A Past is the past of one session, as it is during one request. It must not be used by several
// goroutines at once.
type Past struct {
	Mode       protocol.Durable
	Reader     *past.Reader // nil: the store does not have the session
	Ring       *ring.Ring
	Masker     *mask.Masker             // masks secrets in the output of the ring; the store has none
	ClearedTo  uint64                   // output before this offset was cleared for good, and is never shown
	Keyframe   func() (Keyframe, error) // returns the keyframe in memory; nil: there is none
	IsBlank    bool                     // the screen at offset 0 was blank
	Lines      int                      // lines above the screen that the session keeps
	Created    time.Time                // when the session was started
	LastOutput time.Time                // when it last printed
	Now        time.Time

	// Recent returns the last commands in memory, in ascending order, because the store may not have
	// them yet; nil: none is known.
	Recent func() []protocol.PastCommand
}

// A Keyframe is a saved screen and its offset.
type Keyframe struct {
	Offset uint64
	Data   []byte
}

// extent is the output of the past.
type extent struct {
	start, end         uint64 // in the store; both 0: none
	ringStart, ringEnd uint64
}

// last returns the end of all output.
func (e extent) last() uint64 { return max(e.end, e.ringEnd) }

func (p *Past) extent() (e extent, err error) {
	e.ringStart, e.ringEnd = p.ringBounds()
	if p.Reader != nil {
		e.start, e.end, err = p.Reader.Extent()
		if errors.Is(err, fs.ErrNotExist) { // forgotten since, or nothing is stored yet
			p.Reader, err = nil, nil
		}
	}
	return e, err
}

// ringBounds returns the output of the ring that was not cleared.
func (p *Past) ringBounds() (start, end uint64) {
	start, end, _ = p.Ring.Bounds()
	return min(max(start, p.ClearedTo), end), end
}

// notStored returns the error for a moment that cannot be shown.
func (p *Past) notStored(what string) error {
	text := what + " is not stored"
	if c, err := p.Describe(context.Background(), protocol.PastSpec{From: 1, To: 1}); err == nil {
		text += fmt.Sprintf("; what is stored begins at offset %d", c.Start)
		if !c.StartAt.IsZero() {
			text += c.StartAt.Local().Format(" (2006-01-02 15:04:05)")
		}
		text += fmt.Sprintf(" and ends at offset %d", c.End)
	}
	return protocol.Errorf(protocol.CodeNotStored, "%s", text)
}

// Offset returns the offset of a moment.
//
// Errors: not_stored, ctx's, and those of the store.
func (p *Past) Offset(ctx context.Context, m protocol.Moment) (uint64, error) {
	e, err := p.extent()
	if err != nil {
		return 0, err
	}
	switch {
	case m.Offset != nil:
		if *m.Offset > e.last() {
			return 0, p.notStored(fmt.Sprintf("offset %d", *m.Offset))
		}
		return *m.Offset, nil
	case m.Command != 0:
		return p.commandEnd(ctx, m.Command)
	case m.AgoMS != nil:
		ago := time.Duration(min(*m.AgoMS, maxAgo.Milliseconds())) * time.Millisecond
		return p.offsetAt(e, p.Now.Add(-ago))
	}
	return p.offsetAt(e, m.Time)
}

// maxAgo replaces longer times, which a time.Duration may not hold.
const maxAgo = 100 * 365 * 24 * time.Hour

// offsetAt returns the end of the output that was printed up to a time.
func (p *Past) offsetAt(e extent, t time.Time) (uint64, error) {
	if !t.Before(p.LastOutput) {
		return e.last(), nil
	}
	what := "the screen at " + t.Local().Format(time.DateTime)
	if p.Reader == nil || e.start == e.end {
		return 0, p.notStored(what)
	}
	offset, err := p.Reader.OffsetAt(t)
	if errors.Is(err, past.ErrGone) {
		return 0, p.notStored(what)
	}
	return offset, err
}

// A Screen is the screen at an offset of the past.
type Screen struct {
	*screen.Screen
	PrintedAt time.Time // when the last output before it was printed; zero: unknown
	IsExact   bool
}

// Screen rebuilds the screen at an offset.
//
// Errors: not_stored; limit_exceeded if the output costs too much; ctx's; those of the store.
func (p *Past) Screen(ctx context.Context, offset uint64) (s Screen, err error) {
	for range maxTries {
		var b base
		if b, err = p.base(offset); err != nil {
			return Screen{}, err
		}
		s, err = b.rebuild(ctx, offset, min(p.Lines, maxLines), maxCost)
		if err != nil || s.IsExact || !b.isExact {
			break
		}
	}
	if err == nil && s.PrintedAt.IsZero() {
		s.PrintedAt = p.printedAt(offset)
	}
	return s, err
}

// Stored rebuilds the screen at an offset of a recording, with the given number of lines above it.
//
// Errors: internal if the terminal core has panicked; those of the store.
func Stored(r *past.Reader, offset uint64, lines int) (*screen.Screen, error) {
	v, err := r.At(offset)
	if err != nil {
		return nil, err
	}
	s, err := baseOf(v).rebuild(context.Background(), offset, lines, math.MaxInt)
	return s.Screen, err
}

// A base is a screen from which a replay begins.
type base struct {
	at      uint64
	frame   []byte // nil: a blank screen
	size    protocol.Size
	output  iter.Seq2[past.Piece, error] // from at on
	isExact bool                         // no output is missing
}

func baseOf(v *past.View) base { return base{v.KeyframeAt, v.Keyframe, v.Size, v.Replay, v.Exact} }

// base returns the base for the screen at an offset.
func (p *Past) base(offset uint64) (base, error) {
	e, err := p.extent()
	if err != nil {
		return base{}, err
	}
	if offset > e.last() || offset < p.ClearedTo {
		return base{}, p.notStored(fmt.Sprintf("offset %d", offset))
	}
	stored, isStored, err := p.storedBase(e, offset)
	if err != nil || isStored && stored.isExact && offset <= e.end {
		return stored, err
	}
	if k := p.keyframe(); len(k.Data) > 0 && k.Offset <= offset && k.Offset >= e.ringStart && (!isStored || !stored.isExact || k.Offset > stored.at) {
		return base{k.Offset, k.Data, p.Ring.SizeAt(k.Offset), p.ringPieces(k.Offset, offset, p.Ring.SizeAt(k.Offset)), true}, nil
	}
	switch {
	case isStored && stored.isExact:
	case p.IsBlank && e.ringStart == 0 && e.ringEnd >= offset:
		size := p.Ring.SizeAt(0)
		return base{0, nil, size, p.ringPieces(0, offset, size), true}, nil
	case !isStored:
		return base{}, p.notStored(fmt.Sprintf("the screen at offset %d", offset))
	}
	return stored, nil
}

// storedBase returns the base that the store has, continued with the output of the ring.
func (p *Past) storedBase(e extent, offset uint64) (base, bool, error) {
	if p.Reader == nil {
		return base{}, false, nil
	}
	v, err := p.Reader.At(min(offset, e.end))
	for _, missing := range []error{past.ErrGone, past.ErrAhead, past.ErrNoKeyframe, past.ErrDamaged, fs.ErrNotExist} {
		if errors.Is(err, missing) {
			return base{}, false, nil
		}
	}
	if err != nil {
		return base{}, false, err
	}
	b := baseOf(v)
	if v.Keyframe == nil && !p.IsBlank {
		b.isExact = false // the screen of the earlier instance above the output was not stored
	}
	if offset > v.Offset {
		b.isExact = b.isExact && e.ringStart <= v.Offset
		b.output = joined(v.Replay, p.ringPieces(v.Offset, offset, protocol.Size{}))
	}
	return b, true, nil
}

// keyframe returns the keyframe in memory, or one without data.
func (p *Past) keyframe() Keyframe {
	if p.Keyframe == nil {
		return Keyframe{}
	}
	k, err := p.Keyframe()
	if err != nil { // the session is busy or gone; the store has to suffice
		return Keyframe{}
	}
	return k
}

// joined returns the pieces of a and then those of b.
func joined(a, b iter.Seq2[past.Piece, error]) iter.Seq2[past.Piece, error] {
	return func(yield func(past.Piece, error) bool) {
		for p, err := range a {
			if !yield(p, err) {
				return
			}
		}
		b(yield)
	}
}

// ringPieces returns the output in the ring from one offset to another, with the changes of size.
// size is the one that the caller knows already. Output that the ring does not have any more is
// a gap.
func (p *Past) ringPieces(from, to uint64, size protocol.Size) iter.Seq2[past.Piece, error] {
	return func(yield func(past.Piece, error) bool) {
		buf := make([]byte, min(ringPiece, to-min(from, to)))
		for at := from; ; {
			if now := p.Ring.SizeAt(at); now != size {
				size = now
				if !yield(past.Piece{Offset: at, Size: size}, nil) {
					return
				}
			}
			if at >= to {
				return
			}
			n := min(uint64(len(buf)), to-at)
			if m, ok := p.Ring.NextMark(at); ok {
				n = min(n, m.Offset-at)
			}
			k, err := p.Ring.ReadAt(buf[:n], at)
			piece := past.Piece{Offset: at, Output: p.Masker.Piece(p.Ring, at, buf[:k])}
			if errors.Is(err, ring.ErrGone) {
				start, _, _ := p.Ring.Bounds()
				piece, k, err = past.Piece{Offset: at, Missing: min(start, to) - at}, int(min(start, to)-at), nil
			}
			if err != nil || k == 0 {
				_ = yield(past.Piece{}, protocol.Errorf(protocol.CodeSessionNotFound, "the session was forgotten")) // the iteration ends in either case
				return
			}
			if !yield(piece, nil) {
				return
			}
			at += uint64(k)
		}
	}
}

// rebuild replays the output after a base, if that costs at most left. A panic of the terminal core
// ends nothing else.
func (b base) rebuild(ctx context.Context, offset uint64, lines, left int) (s Screen, err error) {
	defer func() {
		if why := recover(); why != nil {
			s, err = Screen{}, protocol.Errorf(protocol.CodeInternal, "the screen at offset %d cannot be shown because of a defect of the terminal core: %v\n%s", offset, why, debug.Stack())
		}
	}()
	s.IsExact = b.isExact
	if s.Screen, err = open(ctx, b, lines); err != nil {
		return Screen{}, err
	}
	for piece, err := range b.output {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			left, err = s.apply(ctx, piece, left)
		}
		if err != nil {
			return Screen{}, err
		}
	}
	return s, nil
}

// open returns the screen of a base.
func open(ctx context.Context, b base, lines int) (*screen.Screen, error) {
	if b.frame == nil {
		sc := screen.New(b.size.Normalize(), lines)
		sc.Skip(b.at)
		return sc, nil
	}
	r, err := screen.Restore(b.frame, lines)
	if err != nil {
		return nil, err
	}
	for !r.Step(restoreSlice) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	sc := r.Screen()
	if b.size != (protocol.Size{}) && b.size != sc.Size() {
		sc.Resize(b.size)
	}
	sc.Skip(b.at)
	return sc, nil
}

// apply writes a piece to the screen, and returns left without the cost. The error is limit_exceeded if
// the piece costs more than left.
func (s *Screen) apply(ctx context.Context, p past.Piece, left int) (int, error) {
	switch {
	case p.Size != protocol.Size{}:
		s.Resize(p.Size)
	case p.Missing > 0:
		s.Skip(p.Offset + p.Missing)
		s.IsExact = false
	default:
		if !p.Time.IsZero() {
			s.PrintedAt = p.Time
		}
		for out := p.Output; len(out) > 0; {
			before := s.Screen.Offset()
			left -= s.WriteSome(out, stepCost)
			out = out[s.Screen.Offset()-before:]
			if err := ctx.Err(); err != nil {
				return left, err
			}
			if left < 0 {
				return left, protocol.Errorf(protocol.CodeLimitExceeded, "the output before offset %d takes too long to be shown again", p.Offset)
			}
		}
	}
	s.Replies() // no program waits for them
	s.Events()
	s.Heard()
	return left, nil
}

// printedAt returns when the last output before an offset was printed, or zero.
func (p *Past) printedAt(offset uint64) time.Time {
	e, err := p.extent()
	switch {
	case err != nil:
	case offset == 0:
		return p.Created
	case offset >= e.last():
		return p.LastOutput
	case p.Reader != nil && offset > e.start:
		if t, err := p.Reader.TimeAt(min(offset, e.end) - 1); err == nil {
			return t
		}
	}
	return time.Time{}
}
