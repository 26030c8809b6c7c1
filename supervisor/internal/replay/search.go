package replay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"regexp"
	"regexp/syntax"
	"runtime/debug"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/shared/escseq"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/screen"
)

const (
	// searchWorkers is the number of units that are searched at the same time. Each takes up to
	// three times the memory of its output.
	searchWorkers = 2
	// searchTime is the time after which a search answers with the matches that it has found. The client asks
	// again.
	searchTime = time.Second
	ringUnit   = 4 << 20
	maxRanges  = 100 // ranges returned for one line
)

// A unit is a piece of output that is searched at once: a segment of the store, or a part of the
// ring.
type unit struct {
	start, end uint64
	append     func(p []byte, n int) ([]byte, []past.Stamp, error) // appends the first n bytes
	next       *unit                                               // begins where this one ends; nil: output is missing there, or this is the last one
	continues  bool                                                // the unit begins where the one before ends
}

// units returns the units of the output in ascending order: those of the store, and those of the ring where the
// store has none.
func (p *Past) units() ([]unit, error) {
	var spans []past.Span
	if p.Reader != nil {
		var err error
		if spans, err = p.Reader.Spans(); err != nil && !past.IsMissing(err) {
			return nil, err
		}
	}
	ringStart, ringEnd := p.ringBounds()
	end := ringStart // of the units so far
	var all []unit
	for _, s := range spans {
		all = p.appendRing(all, end, s.Start)
		all = append(all, unit{start: s.Start, end: s.End, append: func(b []byte, n int) ([]byte, []past.Stamp, error) {
			out, times, err := s.Append(b, n)
			if past.IsMissing(err) && ringStart <= s.Start { // a later keyframe has replaced it in the store
				return p.appendOutput(b, s.Start, s.End, n)
			}
			if errors.Is(err, past.ErrDamaged) { // zeros are in its place
				err = nil
			}
			return out, times, err
		}})
		end = max(end, s.End)
	}
	all = p.appendRing(all, end, ringEnd)
	for i := range all {
		if i+1 < len(all) && all[i+1].start == all[i].end {
			all[i].next, all[i+1].continues = &all[i+1], true
		}
	}
	return all, nil
}

// appendRing appends units of the ring's output from one offset to another.
func (p *Past) appendRing(all []unit, from, to uint64) []unit {
	for ; from < to; from += ringUnit {
		start, end := from, min(from+ringUnit, to)
		all = append(all, unit{start: start, end: end, append: func(b []byte, n int) ([]byte, []past.Stamp, error) {
			return p.appendOutput(b, start, end, n)
		}})
	}
	return all
}

// appendOutput appends the first n bytes of the ring's output from one offset to another, whose times are unknown.
// Output that the ring does not have any more is zeros.
func (p *Past) appendOutput(b []byte, from, to uint64, n int) ([]byte, []past.Stamp, error) {
	to = min(from+uint64(max(n, 0)), to)
	for piece, err := range p.ringPieces(from, to, p.Ring.SizeAt(from)) {
		if err != nil {
			return b, nil, err
		}
		b = append(b, make([]byte, piece.Missing)...)
		b = append(b, piece.Output...)
	}
	return b, []past.Stamp{{Offset: from}}, nil
}

// Search returns the lines of the past that match, the newest first.
//
// Errors: invalid_argument for an invalid pattern; ctx's; those of the store.
func (p *Past) Search(ctx context.Context, spec protocol.PastSearchSpec) (protocol.PastSearchContent, error) {
	c := protocol.PastSearchContent{Matches: []protocol.PastMatch{}}
	f, err := newFinder(spec.Pattern, spec.IgnoreCase)
	if err != nil {
		return c, err
	}
	units, err := p.units()
	if err != nil {
		return c, err
	}
	if len(units) == 0 {
		_, c.End = p.ringBounds()
		c.Start, c.Before = c.End, c.End
		return c, nil
	}
	c.Start, c.End = units[0].start, units[len(units)-1].end
	c.Before = c.End
	if spec.Before != nil {
		c.Before = min(c.Before, *spec.Before)
	}
	s := search{finder: f, content: &c, limit: min(cmp.Or(spec.Limit, protocol.DefaultMatches), protocol.MaxMatches), room: protocol.MaxScreenBytes}
	for begun := time.Now(); len(units) > 0 && !s.isFull; {
		if err := ctx.Err(); err != nil {
			return c, err
		}
		if time.Since(begun) > searchTime {
			break
		}
		if units[len(units)-1].start >= c.Before {
			units = units[:len(units)-1]
			continue
		}
		from := max(0, len(units)-searchWorkers)
		if err := s.searchAll(units[from:]); err != nil {
			return c, err
		}
		units = units[:from]
	}
	c.More = c.Before > c.Start
	return c, nil
}

// A search collects the matches of one request.
type search struct {
	*finder
	content *protocol.PastSearchContent
	limit   int
	room    int
	isFull  bool
	rooms   [searchWorkers]searchRoom
}

// A searchRoom is the memory in which a unit is searched. The next unit reuses it, because clearing new
// memory for each unit took a quarter of the time of a search.
type searchRoom struct {
	output []byte
	lines  escseq.Lines
}

// searchAll searches some units at the same time, and collects their matches, the newest first.
func (s *search) searchAll(units []unit) error {
	found := make([][]protocol.PastMatch, len(units))
	from := make([]uint64, len(units)) // where the lines of each unit begin
	errs := make([]error, len(units))
	var wg sync.WaitGroup
	for i, u := range units {
		wg.Go(func() { found[i], from[i], errs[i] = s.find(u, &s.rooms[i], s.content.Before, s.limit) })
	}
	wg.Wait()
	for i := range slices.Backward(units) {
		if err := errs[i]; err != nil && !past.IsMissing(err) {
			return err
		}
		for _, m := range slices.Backward(found[i]) {
			s.room -= 2*len(m.Text) + len(m.Ranges)*30 + 150
			if s.isFull = len(s.content.Matches) == s.limit || s.room < 0 && len(s.content.Matches) > 0; s.isFull {
				return nil
			}
			s.content.Matches = append(s.content.Matches, m)
			s.content.Before = m.Offset
		}
		if s.isFull = len(found[i]) == s.limit; s.isFull { // the unit may have more
			return nil
		}
		s.content.Before = min(s.content.Before, from[i])
	}
	return nil
}

// A finder finds the lines that match a pattern.
type finder struct {
	*regexp.Regexp
	literal []byte // each line that matches contains it; empty: unknown
	fold    bool   // literal is in lower case, and matches upper case as well
}

func newFinder(pattern string, ignoreCase bool) (*finder, error) {
	if ignoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := screen.Compile(pattern)
	if err != nil {
		return nil, err
	}
	f := &finder{Regexp: re}
	if tree, err := syntax.Parse(pattern, syntax.Perl); err == nil {
		l := required(tree.Simplify())
		f.literal, f.fold = []byte(l.text), l.fold
	}
	return f, nil
}

// A literal is a string that is part of each match.
type literal struct {
	text string
	fold bool // letters match in upper and lower case
}

// required returns the longest literal that each match of a pattern must contain.
func required(re *syntax.Regexp) (best literal) {
	switch re.Op {
	case syntax.OpLiteral:
		return longest(string(re.Rune), re.Flags&syntax.FoldCase != 0)
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if l := required(sub); len(l.text) > len(best.text) {
				best = l
			}
		}
	}
	return best
}

// longest returns the longest part of a literal that each match contains byte by byte. An invalid byte
// matches U+FFFD. If cases match each other, only the ASCII letters besides k and s have no other form
// than that of the other case.
func longest(text string, fold bool) (best literal) {
	isOther := func(r rune) bool { return r == '\ufffd' }
	if fold {
		text = strings.ToLower(text)
		isOther = func(r rune) bool { return r == 'k' || r == 's' || r >= 0x80 }
	}
	for _, part := range strings.FieldsFunc(text, isOther) {
		if len(part) > len(best.text) {
			best = literal{part, fold}
		}
	}
	return best
}

// find returns the last lines of a unit that match, at most limit, in ascending order. The lines begin
// before the offset before. base is the offset behind the first line feed, if the unit continues another one: the
// bytes before it are searched with the unit before, because they may continue its last line. A panic, which is a
// defect, ends only the search, because find runs in a goroutine that no other code guards.
func (f *finder) find(u unit, room *searchRoom, before uint64, limit int) (found []protocol.PastMatch, base uint64, err error) {
	start, end := u.start, u.end
	defer func() {
		if why := recover(); why != nil {
			err = protocol.Errorf(protocol.CodeInternal, "the output from offset %d to %d cannot be searched because of a defect: %v\n%s", start, end, why, debug.Stack())
		}
	}()
	output, times, err := u.append(slices.Grow(room.output[:0], int(u.end-u.start)), int(u.end-u.start))
	if err != nil {
		return nil, u.start, err
	}
	room.output = output
	base = u.start
	if u.continues {
		n := continued(output)
		if n == len(output) && !bytes.HasSuffix(output, []byte{'\n'}) {
			return nil, u.end, nil
		}
		output, base = output[n:], base+uint64(n)
	}
	for left := protocol.MaxLineBytes; u.next != nil && left > 0; {
		u = *u.next
		n := len(output)
		var stamps []past.Stamp
		output, stamps, err = u.append(output, left)
		if past.IsMissing(err) {
			output = output[:n]
			break
		}
		if err != nil {
			return nil, base, err
		}
		output, times = output[:n+continued(output[n:])], append(times, stamps...)
		if bytes.HasSuffix(output, []byte{'\n'}) {
			break
		}
		left -= len(output) - n
	}
	t := &room.lines
	t.Reset()
	t.MaxLine, t.Bytes = protocol.MaxLineBytes, slices.Grow(t.Bytes, len(output))
	t.Add(output)
	for _, l := range f.lines(t.Bytes, limit, func(from int) bool { return base+uint64(t.OutputAt(from)) < before }) {
		offset := base + uint64(t.OutputAt(l.from))
		m := f.match(t.Bytes[l.from:l.to])
		m.Offset, m.At = offset, timeAt(times, offset)
		found = append(found, m)
	}
	return found, base, nil
}

// continued returns the length of a unit's output up to its first line feed. It may belong to the last line of the unit
// before.
func continued(output []byte) int {
	output = output[:min(len(output), protocol.MaxLineBytes)]
	if i := bytes.IndexByte(output, '\n'); i >= 0 {
		return i + 1
	}
	return len(output)
}

// A place is a line in a text.
type place struct{ from, to int }

// lines returns the last lines that match and that isMeant selects, at most limit, in ascending
// order. If isMeant is false for a line, it is false for all later ones.
func (f *finder) lines(all []byte, limit int, isMeant func(from int) bool) (found []place) {
	candidates := all
	if f.fold && len(f.literal) > 0 {
		candidates = lower(all)
	}
	for at := 0; at < len(all); {
		i := bytes.Index(candidates[at:], f.literal) // 0 if there is no literal
		if i < 0 {
			break
		}
		from := at + bytes.LastIndexByte(all[at:at+i], '\n') + 1
		to := len(all)
		if n := bytes.IndexByte(all[at+i:], '\n'); n >= 0 {
			to = at + i + n
		}
		at = to + 1
		if !f.Match(all[from:to]) {
			continue
		}
		if !isMeant(from) {
			break
		}
		if len(found) == 2*limit {
			found = slices.Delete(found, 0, limit)
		}
		found = append(found, place{from, to})
	}
	return found[max(0, len(found)-limit):]
}

// lower returns a copy with the ASCII letters in lower case.
func lower(p []byte) []byte {
	q := make([]byte, len(p))
	for i, b := range p {
		if b-'A' < 26 {
			b += 'a' - 'A'
		}
		q[i] = b
	}
	return q
}

// match returns a line that matches.
func (f *finder) match(line []byte) protocol.PastMatch {
	m := protocol.PastMatch{Text: strings.ToValidUTF8(string(line), "\ufffd"), Ranges: []protocol.Range{}}
	for _, r := range f.FindAllStringIndex(m.Text, maxRanges) {
		if r[0] < r[1] {
			m.Ranges = append(m.Ranges, protocol.Range{Start: r[0], End: r[1]})
		}
	}
	return m
}

// timeAt returns the time of the output at an offset, or zero.
func timeAt(times []past.Stamp, offset uint64) time.Time {
	i := sort.Search(len(times), func(i int) bool { return times[i].Offset > offset }) - 1
	if i < 0 {
		return time.Time{}
	}
	return times[i].Time
}
