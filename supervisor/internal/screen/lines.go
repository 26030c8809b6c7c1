package screen

import (
	"cmp"
	"errors"
	"math"
	"regexp"
	"regexp/syntax"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vt"
)

// Lines are some of a screen's and its history's, as they were when they were
// taken.
type Lines struct {
	all     []vt.HistoryLine
	content protocol.HistoryContent
}

// History takes the lines that spec asks for; it is called in the owner's
// goroutine, Content in any.
func (s *Screen) History(spec protocol.HistorySpec) *Lines {
	h := &Lines{content: protocol.HistoryContent{Offset: s.offset, LineNumbers: s.lineNumbers(), Lines: []protocol.HistoryLine{}}}
	before := h.content.Screen
	if spec.Before != nil {
		before = *spec.Before
	}
	n := min(cmp.Or(spec.Lines, protocol.DefaultHistoryLines), protocol.MaxHistoryLines)
	h.all = s.term.LinesBefore(before, n, protocol.MaxScreenBytes)
	return h
}

// Content tells the lines, as many as there is room for.
func (h *Lines) Content() protocol.HistoryContent {
	c := h.content
	p := page{looks: looks{all: []protocol.Look{{}}, index: map[int]int{0: 0}}, attrs: map[vt.Attr]int{{}: 0}, room: protocol.MaxScreenBytes}
	for _, l := range h.all {
		told, fits := p.line(l)
		if !fits && len(c.Lines) > 0 {
			break
		}
		c.Lines = append(c.Lines, told)
		c.More = l.Number > c.First
		if !fits {
			break
		}
	}
	c.Looks = p.looks.all
	return c
}

func (s *Screen) lineNumbers() (n protocol.LineNumbers) {
	n.First, n.Screen, n.Next = s.term.LineNumbers()
	return n
}

// page is lines that are told together, with their looks.
type page struct {
	looks looks
	attrs map[vt.Attr]int // numbers for looks.id
	room  int
}

// line returns a line, or of one that does not fit what does.
func (p *page) line(l vt.HistoryLine) (told protocol.HistoryLine, fits bool) {
	told = protocol.HistoryLine{Line: l.Number, Spans: make([]protocol.Span, 0, len(l.Runs)), Cut: l.Cut, Open: l.Open}
	p.room -= len(`{"line":18446744073709551615,"spans":[],"cut":true,"open":true},`)
	from := 0
	for _, r := range l.Runs {
		n, ok := p.attrs[r.Attr]
		if !ok {
			n = len(p.attrs)
			p.attrs[r.Attr] = n
		}
		text := l.Text[from:r.End]
		id, need := p.looks.id(n, r.Attr)
		if p.room -= need + jsonLen(text) + len(`{"t":,"l":123456},`); p.room < 0 {
			told.Cut = true
			return told, false
		}
		told.Spans = append(told.Spans, protocol.Span{Text: text, Look: id})
		from = r.End
	}
	return told, true
}

// Bounds of a search, for one answer.
const (
	maxRanges = 100         // told of one line
	maxTime   = time.Second // of matching
	takeBytes = 512 << 10   // of text taken at a time
	maxSteps  = 4 << 10     // of a pattern, each of which a byte of text may take
)

// A Search looks for lines that match, the newest first. Take is called in the
// screen's owner goroutine and is quick; the others in one of the caller's, not
// at the same time.
type Search struct {
	pattern *regexp.Regexp
	limit   int
	before  uint64 // lines from there on were looked at
	first   uint64 // the oldest line there is
	taken   []vt.HistoryLine
	began   bool
	over    bool
	room    int
	spent   time.Duration
	content protocol.SearchContent
}

// NewSearch returns a search that has looked at nothing.
//
// Errors: invalid_argument for a pattern that is none, or that takes too long.
func NewSearch(spec protocol.SearchSpec) (*Search, error) {
	pattern := spec.Pattern
	if spec.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := compile(pattern)
	if err != nil {
		return nil, err
	}
	q := &Search{
		pattern: re,
		limit:   min(cmp.Or(spec.Limit, protocol.DefaultMatches), protocol.MaxMatches),
		before:  math.MaxUint64,
		room:    protocol.MaxScreenBytes,
		content: protocol.SearchContent{Matches: []protocol.Match{}},
	}
	if spec.Before != nil {
		q.before = *spec.Before
	}
	return q, nil
}

// compile returns invalid_argument for a pattern that is none, or that takes too long.
func compile(pattern string) (*regexp.Regexp, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, invalid(err)
	}
	if program, err := syntax.Compile(tree.Simplify()); err == nil && len(program.Inst) > maxSteps {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "pattern: it repeats too much")
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, invalid(err)
	}
	return re, nil
}

func invalid(err error) error {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		err = errors.New(e.Code.String())
	}
	return protocol.Errorf(protocol.CodeInvalidArgument, "pattern: "+err.Error())
}

// Take takes the next n lines, or fewer that are long, to be matched.
func (q *Search) Take(s *Screen, n int) {
	numbers := s.lineNumbers()
	q.first = numbers.First
	if !q.began {
		q.began = true
		q.content.Offset, q.content.LineNumbers = s.offset, numbers
		q.before = min(q.before, numbers.Next)
	}
	q.taken = s.term.TextBefore(q.before, n, takeBytes)
	q.over = len(q.taken) == 0
}

// Match looks at the lines that were taken.
func (q *Search) Match() {
	began := time.Now()
	for _, l := range q.taken {
		if len(q.content.Matches) == q.limit || q.spent+time.Since(began) > maxTime {
			q.over = true
			return
		}
		if m, ok := q.match(l); ok {
			q.room -= jsonLen(m.Text) + len(m.Ranges)*len(`{"start":12345,"end":12345},`) +
				len(`{"line":18446744073709551615,"text":,"ranges":[],"cut":true},`)
			if q.room < 0 && len(q.content.Matches) > 0 {
				q.over = true
				return
			}
			q.content.Matches = append(q.content.Matches, m)
		}
		q.before = l.Number
	}
	q.spent += time.Since(began)
	q.over = q.over || q.before <= q.first
}

func (q *Search) match(l vt.HistoryLine) (m protocol.Match, ok bool) {
	found := q.pattern.FindAllStringIndex(l.Text, maxRanges)
	if found == nil {
		return m, false
	}
	m = protocol.Match{Line: l.Number, Text: l.Text, Ranges: []protocol.Range{}, Cut: l.Cut}
	for _, f := range found {
		if f[0] < f[1] {
			m.Ranges = append(m.Ranges, protocol.Range{Start: f[0], End: f[1]})
		}
	}
	return m, true
}

// Over reports whether there is nothing more to do.
func (q *Search) Over() bool { return q.over }

// Content returns what was found.
func (q *Search) Content() protocol.SearchContent {
	c := q.content
	c.Before, c.More = q.before, q.before > q.first
	return c
}
