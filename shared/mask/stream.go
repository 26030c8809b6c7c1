package mask

import (
	"slices"

	"holdfast/shared/escseq"
)

// Context is how many bytes before and behind a piece of output are searched for the remainder
// of a secret.
const Context = 16 << 10

// Output is the output of a session by offset.
type Output interface {
	ReadAt(p []byte, offset uint64) (int, error)
	Bounds() (start, end uint64, isComplete bool)
}

// A Stream masks the output of a program, piece by piece. It finds secrets even if escape
// sequences, controls or line ends interrupt their text, and those within sequences, such as
// titles. It holds back the bytes that may belong to a secret that has begun: those of the
// beginning of a value, with one byte behind them that the program may remove again, and, if there
// are patterns, those of the unfinished line.
//
// The text of a line is the text between line ends and movements of the cursor. A value is also
// found across these, because programs break lines themselves.
type Stream struct {
	m      *Masker
	tok    escseq.Tokenizer
	raw    []byte // bytes from base on, which were not returned; secrets in them are masked
	base   int    // position of raw[0] in the stream
	screen lane   // the text on the screen
	inside lane   // the text within the present sequence, such as a title
}

// NewStream returns a Stream that begins with the next byte.
func (m *Masker) NewStream() *Stream { return &Stream{m: m} }

// StreamAt returns a Stream of the output from an offset on. It finds secrets that begin before.
func (m *Masker) StreamAt(o Output, offset uint64) *Stream {
	s := m.NewStream()
	start, _, _ := o.Bounds()
	before := make([]byte, min(Context, offset-min(start, offset)))
	if n, err := o.ReadAt(before, offset-uint64(len(before))); err == nil {
		s.prime(before[:n])
	}
	return s
}

// Piece returns data, which was printed at offset, with its secrets masked. They may begin before
// and end behind it.
func (m *Masker) Piece(o Output, offset uint64, data []byte) []byte {
	if m == nil || len(data) == 0 {
		return data
	}
	s := m.StreamAt(o, offset)
	out := slices.Clone(s.Write(data))
	behind := make([]byte, Context)
	if n, err := o.ReadAt(behind, offset+uint64(len(data))); err == nil {
		out = append(out, s.Write(behind[:n])...)
	}
	return append(out, s.Flush()...)[:len(data)]
}

// Whole returns bytes that are not continued, such as a snapshot, with their secrets masked.
func (m *Masker) Whole(p []byte) []byte {
	if m == nil {
		return p
	}
	s := m.NewStream()
	return append(slices.Clone(s.Write(p)), s.Flush()...)
}

// prime passes bytes to the stream that come before its beginning.
func (s *Stream) prime(p []byte) {
	s.Write(p)
	s.Flush()
}

// Write passes the next bytes to the stream, and returns the bytes that are decided: those of
// this and earlier calls, in their order. The result is valid until the next call.
func (s *Stream) Write(p []byte) []byte {
	start := s.base + len(s.raw)
	s.raw = append(s.raw, p...)
	for at := 0; at < len(p); {
		tok := s.tok.Next(p, at)
		at = tok.End
		switch tok.Kind {
		case escseq.Text:
			s.print(p[tok.Start:tok.End], start+tok.Start)
		case escseq.CSI, escseq.Escape:
			if tok.Complete && moves(tok.Kind, tok.Final) {
				s.screen.endLine()
			}
		default:
			s.enclose(p[tok.Start:tok.End], start+tok.Start)
			if tok.Final != 0 {
				s.inside.endLine()
				s.scan(&s.inside)
				s.inside.clear()
			}
		}
	}
	s.scan(&s.screen)
	s.scan(&s.inside)
	return s.take(min(s.holdFrom(&s.screen), s.holdFrom(&s.inside)))
}

// Flush returns the bytes that were held back. If they end with a beginning of a value of at
// least MinValue bytes, it is masked. Write may follow.
func (s *Stream) Flush() []byte {
	for _, l := range []*lane{&s.screen, &s.inside} {
		s.scanLine(l, len(l.text))
		if n := s.m.begun(l.text); n >= MinValue {
			s.cover(l, Range{len(l.text) - n, len(l.text)})
		}
	}
	return s.take(s.end())
}

// Held returns the number of bytes that are held back.
func (s *Stream) Held() int { return len(s.raw) }

func (s *Stream) end() int { return s.base + len(s.raw) }

// take returns the bytes before a position.
func (s *Stream) take(to int) []byte {
	n := to - s.base
	out := s.raw[:n:n]
	s.raw, s.base = s.raw[n:], to
	return out
}

// moves reports whether a sequence moves the cursor, so that the text before and behind it may
// be in different places.
func moves(kind escseq.Kind, final byte) bool {
	if kind == escseq.Escape {
		switch final {
		case 'D', 'E', 'M', '8', 'c':
			return true
		}
		return false
	}
	switch final {
	case 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'L', 'M', 'S', 'T', 'Z', '`', 'a', 'd', 'e', 'f', 'r', 'u':
		return true
	}
	return false
}

// print adds printed text.
func (s *Stream) print(p []byte, at int) {
	l := &s.screen
	for len(p) > 0 {
		n := 0
		for n < len(p) && (!isControl(p[n]) || p[n] == '\t') {
			n++
		}
		l.add(p[:n], at)
		if n == len(p) {
			return
		}
		switch c := p[n]; {
		case c == '\b', c == '\r' && l.endsWithOneSpace(): // the next output replaces the character; the editor of a shell prints " \r" to reach the next row
			s.scanValues(l)
			l.drop()
		case c >= '\n' && c <= '\r':
			l.endLine()
		}
		p, at = p[n+1:], at+n+1
	}
}

// enclose adds bytes of a sequence.
func (s *Stream) enclose(p []byte, at int) {
	for from, i := 0, 0; i <= len(p); i++ {
		if i == len(p) || isControl(p[i]) {
			s.inside.add(p[from:i], at+from)
			from = i + 1
		}
	}
}

// A lane is the text of a stream without the bytes between.
type lane struct {
	text     []byte // without controls
	runs     []run  // where text is in the stream, in ascending order
	searched int    // length of the text in which values were searched
	open     int    // index in text from which on lines were not searched for matches
	breaks   []int  // indices in text of the lines that have begun since
}

// A run is a part of a lane's text that is not interrupted. It ends where the next one begins.
type run struct {
	text int // index in text
	at   int // position in the stream
}

// add adds bytes that are at a position of the stream.
func (l *lane) add(p []byte, at int) {
	if len(p) == 0 {
		return
	}
	n := len(l.text)
	if k := len(l.runs) - 1; k < 0 || l.runs[k].at+n-l.runs[k].text != at {
		l.runs = append(l.runs, run{n, at})
	}
	l.text = append(l.text, p...)
}

// runOf returns the index of the run that has a byte of text.
func (l *lane) runOf(i int) int {
	k, found := slices.BinarySearchFunc(l.runs, i, func(r run, i int) int { return r.text - i })
	if found {
		return k
	}
	return k - 1
}

// line returns the index in text of the present line.
func (l *lane) line() int {
	if n := len(l.breaks); n > 0 {
		return l.breaks[n-1]
	}
	return l.open
}

// drop removes the last byte, unless the present line is empty.
func (l *lane) drop() {
	n := len(l.text) - 1
	if n < l.line() || n < 0 {
		return
	}
	l.text, l.searched = l.text[:n], min(l.searched, n)
	if k := len(l.runs) - 1; l.runs[k].text == n {
		l.runs = l.runs[:k]
	}
}

func (l *lane) endsWithOneSpace() bool {
	n := len(l.text)
	return n > l.line()+1 && l.text[n-1] == ' ' && l.text[n-2] != ' '
}

func (l *lane) endLine() {
	if n := len(l.text); n > l.line() {
		l.breaks = append(l.breaks, n)
	}
}

func (l *lane) clear() { *l = lane{text: l.text[:0], runs: l.runs[:0], breaks: l.breaks[:0]} }

// scan masks the values in the text that was added since the last scan, and the matches in the
// lines that are complete. Of a very long line it masks the first part. It drops the text that no
// secret can include any more.
func (s *Stream) scan(l *lane) {
	s.scanValues(l)
	for _, end := range l.breaks {
		s.scanLine(l, end)
		l.open = end
	}
	l.breaks = l.breaks[:0]
	if n := len(l.text); n-l.open > 2*MaxLine {
		s.scanLine(l, n)
		l.open = n - MaxLine
	}
	l.trim(s.m)
}

// scanLine masks the matches in the line that begins at open.
func (s *Stream) scanLine(l *lane, end int) {
	for _, f := range s.m.appendPatterns(nil, l.text[l.open:end]) {
		s.cover(l, Range{l.open + f.Start, l.open + f.End})
	}
}

// scanValues masks the values in the text that was added since they were searched.
func (s *Stream) scanValues(l *lane) {
	for _, f := range s.m.appendValues(nil, l.text, l.searched) {
		s.cover(l, f)
	}
	l.searched = len(l.text)
}

// cover replaces the bytes of a part of the text that were not returned.
func (s *Stream) cover(l *lane, r Range) {
	for k := l.runOf(r.Start); r.Start < r.End; k++ {
		end := r.End
		if k+1 < len(l.runs) {
			end = min(end, l.runs[k+1].text)
		}
		at := l.runs[k].at + r.Start - l.runs[k].text - s.base
		for i := max(at, 0); i < at+end-r.Start; i++ {
			s.raw[i] = '*'
		}
		r.Start = end
	}
}

// trimBytes is the number of bytes that trim drops at once.
const trimBytes = 16 << 10

func (l *lane) trim(m *Masker) {
	n := min(len(l.text)-m.longest, l.open)
	if n < trimBytes {
		return
	}
	l.text = l.text[:copy(l.text, l.text[n:])]
	k := l.runOf(n)
	l.runs = l.runs[:copy(l.runs, l.runs[k:])]
	for i := range l.runs {
		l.runs[i].text -= n
	}
	l.runs[0].at -= l.runs[0].text // the first run begins with the text
	l.runs[0].text = 0
	l.searched, l.open = max(0, l.searched-n), max(0, l.open-n)
}

// holdFrom returns the position from which on bytes may belong to a secret that has begun.
func (s *Stream) holdFrom(l *lane) int {
	n := len(l.text)
	from := n - s.m.begun(l.text)
	if n > l.line() && l == &s.screen { // the next byte may remove the last one
		if k := s.m.begun(l.text[:n-1]); k > 0 {
			from = min(from, n-1-k)
		}
	}
	if len(s.m.patterns) > 0 {
		from = min(from, l.open)
	}
	if from == n {
		return s.end()
	}
	r := l.runs[l.runOf(from)]
	return max(s.base, r.at+from-r.text)
}
