package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

const (
	// maxSegments is how many segments of one recording are listed: those of two months of output without a pause.
	maxSegments = 2_000_000
	// maxProblems is how many problems of one recording are reported.
	maxProblems = 1000
)

// A Summary describes a recording by the names of its objects and its index.
type Summary struct {
	Recording  string    `json:"recording"`
	Program    string    `json:"program,omitempty"`
	CreatedAt  time.Time `json:"created_at,omitzero"` // when the session was started
	Segments   int       `json:"segments"`
	Bytes      int64     `json:"bytes"`       // of its segments in the store
	Start      uint64    `json:"start"`       // offset of the first byte that is stored
	End        uint64    `json:"end"`         // offset behind the last one
	StoredAt   time.Time `json:"stored_at"`   // when the last segment was stored
	IsComplete bool      `json:"is_complete"` // the session has ended, and the recording has its end
}

// A contents is the objects of one recording.
type contents struct {
	name     Name
	hasIndex bool
	segments []segmentObject // in ascending order
	others   []string        // keys of objects that no recorder has made
}

type segmentObject struct {
	Object
	start, end uint64
}

// Recordings yields a summary of each recording of a store. An error is the last item.
func Recordings(ctx context.Context, s Store) func(yield func(Summary, error) bool) {
	return func(yield func(Summary, error) bool) {
		for c, err := range byRecording(ctx, s, "") {
			if err != nil {
				yield(Summary{}, err)
				return
			}
			if c.name == (Name{}) {
				continue
			}
			sum := c.summary()
			if x, err := readIndex(ctx, s, c.name); err == nil {
				sum.Program, sum.CreatedAt, sum.IsComplete = x.Program, x.CreatedAt, x.IsComplete && x.End == sum.End
			}
			if !yield(sum, nil) {
				return
			}
		}
	}
}

func (c *contents) summary() Summary {
	sum := Summary{Recording: c.name.String(), Segments: len(c.segments)}
	for i, o := range c.segments {
		if i == 0 {
			sum.Start = o.start
		}
		sum.Bytes += o.Bytes
		sum.End = max(sum.End, o.end)
		if o.Modified.After(sum.StoredAt) {
			sum.StoredAt = o.Modified
		}
	}
	return sum
}

// byRecording yields the contents of each recording below a prefix. Objects outside of recordings are in
// the field others of contents without a name. An error is the last item.
func byRecording(ctx context.Context, s Store, prefix string) func(yield func(*contents, error) bool) {
	return func(yield func(*contents, error) bool) {
		c := &contents{}
		for o, err := range s.List(ctx, prefix) {
			if err != nil {
				yield(nil, err)
				return
			}
			var name Name
			k, ok := parseKey(o.Key)
			if ok {
				name = k.name
			} else if slash := strings.LastIndexByte(o.Key, '/'); slash >= 0 {
				name, _ = ParseName(o.Key[:slash]) // otherwise it is outside of recordings
			}
			if name != c.name {
				if !c.isEmpty() && !yield(c.sorted(), nil) {
					return
				}
				c = &contents{name: name}
			}
			switch {
			case !ok:
				if len(c.others) < maxProblems {
					c.others = append(c.others, o.Key)
				}
			case k.isIndex:
				c.hasIndex = true
			case len(c.segments) >= maxSegments:
				yield(nil, fmt.Errorf("recording %s has more than %d segments", name, maxSegments))
				return
			default:
				c.segments = append(c.segments, segmentObject{o, k.start, k.end})
			}
		}
		if !c.isEmpty() {
			yield(c.sorted(), nil)
		}
	}
}

func (c *contents) isEmpty() bool { return !c.hasIndex && len(c.segments)+len(c.others) == 0 }

// sorted sorts the segments, which a store need not do.
func (c *contents) sorted() *contents {
	slices.SortStableFunc(c.segments, func(a, b segmentObject) int { return strings.Compare(a.Key, b.Key) })
	return c
}

// load returns the objects of a recording. The error is fs.ErrNotExist if there are none.
func load(ctx context.Context, s Store, n Name) (*contents, error) {
	for c, err := range byRecording(ctx, s, n.prefix()) {
		if err != nil {
			return nil, err
		}
		if c.name == n {
			return c, nil
		}
	}
	return nil, fmt.Errorf("recording %s: %w", n, fs.ErrNotExist)
}

// The kinds of problems.
const (
	ProblemMissing = "missing" // output was printed, but could not be recorded
	ProblemLost    = "lost"    // segments are not there
	ProblemTorn    = "torn"    // an object is not whole, or was changed
	ProblemForeign = "foreign" // an object is no part of the recording
	ProblemTail    = "tail"    // the end of the output is not there
	ProblemLocked  = "locked"  // the key does not open the object
)

// A Problem is a difference between a recording and the output of its session.
type Problem struct {
	Kind string `json:"kind"`
	Key  string `json:"key,omitempty"` // of the object
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"` // the problem concerns the output from From to To
	Text string `json:"text"`
}

// A Report is the result of Verify for one recording.
type Report struct {
	Summary
	Problems     []Problem `json:"problems"`
	MoreProblems bool      `json:"more_problems,omitempty"`
	PrintedAt    time.Time `json:"printed_at,omitzero"` // when the last output was recorded
}

// Verify compares the segments of all recordings, or of one, with their hashes and their neighbours, and yields a
// report for each. Objects outside of recordings are a report without a name. An error is the last item: the store
// does not answer, or the recording does not exist.
func Verify(ctx context.Context, s Store, keys *Keys, only *Name) func(yield func(*Report, error) bool) {
	return func(yield func(*Report, error) bool) {
		prefix, isFound := "", false
		if only != nil {
			prefix = only.prefix()
		}
		for c, err := range byRecording(ctx, s, prefix) {
			var r *Report
			if err == nil {
				r, err = verify(ctx, s, keys, c)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if isFound = true; !yield(r, nil) {
				return
			}
		}
		if only != nil && !isFound {
			yield(nil, fmt.Errorf("recording %s: %w", only, fs.ErrNotExist))
		}
	}
}

// A verifier verifies one recording.
type verifier struct {
	*Report
	end    uint64              // the recorded output reaches up to here
	hashes map[uint64][]string // of the last segments, by their ends; a repeated put after a crash may leave two segments that overlap
}

func verify(ctx context.Context, s Store, keys *Keys, c *contents) (*Report, error) {
	v := &verifier{Report: &Report{Summary: c.summary(), Problems: []Problem{}}, hashes: map[uint64][]string{}}
	for _, k := range c.others {
		v.problem(Problem{Kind: ProblemForeign, Key: k, Text: "no recorder makes objects of this name"})
	}
	if c.name == (Name{}) {
		v.Recording = ""
		return v.Report, nil
	}
	x, err := readIndex(ctx, s, c.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.problem(Problem{Kind: ProblemLost, Key: c.name.indexKey(), Text: "the index is not there"})
	case errors.Is(err, ErrTorn):
		v.problem(Problem{Kind: ProblemTorn, Key: c.name.indexKey(), Text: err.Error()})
	case err != nil:
		return nil, err
	}
	if x == nil {
		x = &Index{}
	}
	v.Program, v.CreatedAt = x.Program, x.CreatedAt
	isKnown := true // whether v.end and the hash of its segment are known
	for i, o := range c.segments {
		if i == 0 {
			v.end = min(x.RemovedTo, o.start)
			isKnown = x.RemovedTo == 0 // the segment before was removed
		}
		object, err := s.Get(ctx, o.Key, maxObject)
		var seg *Segment
		if err == nil {
			seg, err = openSegment(object, o.Key, keys)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed since
			isKnown = false
			v.end = max(v.end, o.end)
			continue
		case errors.Is(err, errNoKey):
			v.problem(Problem{Kind: ProblemLocked, Key: o.Key, From: o.start, To: o.end, Text: err.Error()})
		case errors.Is(err, ErrTorn), seg == nil && object != nil:
			v.problem(Problem{Kind: ProblemTorn, Key: o.Key, From: o.start, To: o.end, Text: err.Error()})
		case err != nil:
			return nil, err
		}
		if seg == nil {
			isKnown = false
			v.end = max(v.end, o.end)
			continue
		}
		v.add(o, seg, hashOf(object), isKnown)
		isKnown = true
	}
	v.Start, v.End = min(v.Start, v.end), v.end
	v.checkEnd(x, isKnown)
	return v.Report, nil
}

// add compares a segment with those before. isKnown is false if the one before could not be read.
func (v *verifier) add(o segmentObject, seg *Segment, hash string, isKnown bool) {
	from := seg.Start - seg.Missing
	if from > v.end {
		v.problem(Problem{Kind: ProblemLost, From: v.end, To: from, Text: "the segments of this output are not there"})
	} else if isKnown && !slices.Contains(v.hashes[from], seg.Previous) && !(from == 0 && seg.Previous == "") {
		v.problem(Problem{Kind: ProblemForeign, Key: o.Key, From: seg.Start, To: seg.End(), Text: "it does not continue the segment before, because it has another hash"})
	}
	if seg.Missing > 0 {
		v.problem(Problem{Kind: ProblemMissing, From: from, To: seg.Start, Text: "this output could not be recorded"})
	}
	v.end = max(v.end, seg.End())
	for end := range v.hashes {
		if end+2*maxOutput < v.end {
			delete(v.hashes, end)
		}
	}
	if same := v.hashes[seg.End()]; len(same) < 16 {
		v.hashes[seg.End()] = append(same, hash)
	}
	if n := len(seg.Times); n > 0 {
		v.PrintedAt = seg.Times[n-1].At
	}
}

// checkEnd compares the end of the recording with the index.
func (v *verifier) checkEnd(x *Index, isKnown bool) {
	v.IsComplete = false
	switch {
	case !x.IsComplete:
	case v.end < x.End:
		v.problem(Problem{Kind: ProblemTail, From: v.end, To: x.End, Text: "the session has printed this output, but its segments are not there"})
	case v.end > x.End || isKnown && x.End > 0 && !slices.Contains(v.hashes[x.End], x.Last):
		v.problem(Problem{Kind: ProblemForeign, From: x.End, To: v.end, Text: "the last segment is not the one that the index names"})
	default:
		v.IsComplete = true
	}
}

func (v *verifier) problem(p Problem) {
	if len(v.Problems) >= maxProblems {
		v.MoreProblems = true
		return
	}
	v.Problems = append(v.Problems, p)
}
