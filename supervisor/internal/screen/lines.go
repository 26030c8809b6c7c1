package screen

import (
	"cmp"
	"errors"
	"math"
	"regexp"
	"regexp/syntax"
	"time"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/supervisor/internal/vt"
)

// Lines are lines of a screen and its history, as they were when History was called.
type Lines struct {
	all     []vt.HistoryLine
	oldest  uint64 // number of the oldest line that could be requested
	content protocol.HistoryContent
	masker  *mask.Masker
}

// History returns the lines that spec asks for. It must be called in the owner's goroutine.
// Content of the result may be called in any goroutine.
func (s *Screen) History(spec protocol.HistorySpec) *Lines {
	h := &Lines{masker: s.masker, content: protocol.HistoryContent{Offset: s.offset, LineNumbers: s.lineNumbers(), Lines: []protocol.HistoryLine{}}}
	h.oldest = h.content.First
	before := h.content.Screen
	if spec.Before != nil {
		before = *spec.Before
	}
	n := min(cmp.Or(spec.Lines, protocol.DefaultHistoryLines), protocol.MaxHistoryLines)
	h.all = s.term.LinesBefore(before, n, protocol.MaxScreenBytes)
	return h
}

// Output returns the lines that spec asks for, of the output of a command that has ended. It must be
// called in the owner's goroutine.
func (s *Screen) Output(spec protocol.HistorySpec, o *protocol.CommandOutput) *Lines {
	h := &Lines{masker: s.masker, content: protocol.HistoryContent{Offset: s.offset, LineNumbers: s.lineNumbers(), Lines: []protocol.HistoryLine{}}}
	first, end := max(o.From.Line, h.content.First), min(o.To.Line, h.content.Next)
	if o.To.Byte > 0 && end < h.content.Next {
		end++
	}
	h.oldest = first
	h.content.Truncated = o.Erased || o.From.Line < h.content.First
	if spec.Before != nil {
		end = min(end, *spec.Before)
	}
	n := min(cmp.Or(spec.Lines, protocol.DefaultHistoryLines), protocol.MaxHistoryLines)
	if end <= first {
		return h
	}
	h.all = s.term.LinesBefore(end, int(min(uint64(n), end-first)), protocol.MaxScreenBytes)
	for i := range h.all {
		l := &h.all[i]
		if l.Number == o.To.Line || l.Number == o.From.Line {
			*l = maskLine(*l, s.masker) // before it is cut, so that no part of a secret is left
		}
		if l.Number == o.To.Line { // must be cut before its beginning
			l.KeepText(0, o.To.Byte)
		}
		if l.Number == o.From.Line {
			l.KeepText(o.From.Byte, len(l.Text))
		}
	}
	return h
}

// Content encodes the lines, as many as have room in an answer.
func (h *Lines) Content() protocol.HistoryContent {
	c := h.content
	p := page{styles: styleList{all: []protocol.Look{{}}, index: map[int]int{0: 0}, masker: h.masker}, attrs: map[vt.Attr]int{{}: 0}, room: protocol.MaxScreenBytes}
	for _, l := range h.all {
		encoded, fits := p.line(maskLine(l, h.masker))
		if !fits && len(c.Lines) > 0 {
			break
		}
		c.Lines = append(c.Lines, encoded)
		c.More = l.Number > h.oldest
		if !fits {
			break
		}
	}
	c.Looks = p.styles.all
	return c
}

func (s *Screen) lineNumbers() (n protocol.LineNumbers) {
	n.First, n.Screen, n.Next = s.term.LineNumbers()
	return n
}

// page encodes lines of one answer, which share a list of styles.
type page struct {
	styles styleList
	attrs  map[vt.Attr]int // numbers of styles in the table
	room   int
}

// line encodes a line. If the line does not fit, line encodes its beginning and reports that
// fits is false.
func (p *page) line(l vt.HistoryLine) (encoded protocol.HistoryLine, fits bool) {
	encoded = protocol.HistoryLine{Line: l.Number, Spans: make([]protocol.Span, 0, len(l.Runs)), Cut: l.Cut, Open: l.Open}
	p.room -= len(`{"line":18446744073709551615,"spans":[],"cut":true,"open":true},`)
	from := 0
	for _, r := range l.Runs {
		n, ok := p.attrs[r.Attr]
		if !ok {
			n = len(p.attrs)
			p.attrs[r.Attr] = n
		}
		text := l.Text[from:r.End]
		id, need := p.styles.id(n, r.Attr)
		if p.room -= need + jsonLen(text) + len(`{"t":,"l":123456},`); p.room < 0 {
			encoded.Cut = true
			return encoded, false
		}
		encoded.Spans = append(encoded.Spans, protocol.Span{Text: text, Look: id})
		from = r.End
	}
	return encoded, true
}

// These bound a search for one answer.
const (
	maxRanges = 100         // ranges returned for one line
	maxTime   = time.Second // time spent on matching
	takeBytes = 512 << 10   // bytes of text taken at a time
	maxSteps  = 4 << 10     // instructions of a pattern; a byte of text may take all of them
)

// A Search finds lines that match a pattern, beginning with the newest line. Take must be
// called in the screen's owner goroutine, and is quick. The other methods may be called in
// another goroutine, but not at the same time.
type Search struct {
	pattern *regexp.Regexp
	limit   int
	before  uint64 // lines from this number on have been searched
	first   uint64 // number of the oldest line
	taken   []vt.HistoryLine
	masker  *mask.Masker
	began   bool
	over    bool
	room    int
	spent   time.Duration
	content protocol.SearchContent
}

// NewSearch returns a search that has searched no line yet.
//
// Errors: invalid_argument if the pattern is invalid, or if matching it could take too long.
func NewSearch(spec protocol.SearchSpec) (*Search, error) {
	pattern := spec.Pattern
	if spec.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := Compile(pattern)
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

// Compile compiles a pattern of a search. It returns invalid_argument if the pattern is invalid, or if
// matching it could take too long.
func Compile(pattern string) (*regexp.Regexp, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, invalid(err)
	}
	if program, err := syntax.Compile(tree.Simplify()); err == nil && len(program.Inst) > maxSteps {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "pattern repeats too much: use smaller counts of repetition")
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
	return protocol.Errorf(protocol.CodeInvalidArgument, "pattern: %v", err)
}

// Take copies the next n lines from the screen. If the lines are long, it copies fewer.
func (q *Search) Take(s *Screen, n int) {
	numbers := s.lineNumbers()
	q.first, q.masker = numbers.First, s.masker
	if !q.began {
		q.began = true
		q.content.Offset, q.content.LineNumbers = s.offset, numbers
		q.before = min(q.before, numbers.Next)
	}
	q.taken = s.term.TextBefore(q.before, n, takeBytes)
	q.over = len(q.taken) == 0
}

// Match searches the lines that Take has copied.
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
	l = maskLine(l, q.masker) // before it is matched, because a match must not tell a secret
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

// Over reports whether the search is finished.
func (q *Search) Over() bool { return q.over }

// Content returns the matches.
func (q *Search) Content() protocol.SearchContent {
	c := q.content
	c.Before, c.More = q.before, q.before > q.first
	return c
}
