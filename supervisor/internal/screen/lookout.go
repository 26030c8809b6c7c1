package screen

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"regexp"
	"slices"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vt"
)

// A Fingerprint is what a screen shows at one moment: the hashes of its lines' texts. To
// who looks for something with it, a line that is as it was is no news.
type Fingerprint struct {
	offset    uint64
	first     uint64   // the number of the first line
	lines     []uint64 // of the normal screen, by number
	alternate []uint64 // of the other one, where it is shown, by the row that they begin in
}

// Fingerprint returns that of what the screen shows.
func (s *Screen) Fingerprint() *Fingerprint {
	n := s.lineNumbers()
	m := &Fingerprint{offset: s.offset, first: top(n)}
	lines := s.term.TextBefore(n.Next, int(n.Next-m.first), 1<<30)
	for _, l := range slices.Backward(lines) {
		m.lines = append(m.lines, hash(l.Text))
	}
	if rows, shown := s.term.AlternateText(); shown {
		m.alternate = make([]uint64, s.size.Rows)
		for _, l := range rows {
			m.alternate[l.Number] = hash(l.Text)
		}
	}
	return m
}

// top is the first line that may be on the screen with some of its rows.
func top(n protocol.LineNumbers) uint64 {
	if n.Screen > n.First {
		return n.Screen - 1
	}
	return n.Screen
}

// hash must be the same in all programs.
func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// Append appends the fingerprint's form for others: numbers (uvarint), and hashes (8 bytes,
// little endian) behind their number.
func (m *Fingerprint) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, m.offset)
	dst = binary.AppendUvarint(dst, m.first)
	for _, hashes := range [][]uint64{m.lines, m.alternate} {
		dst = binary.AppendUvarint(dst, uint64(len(hashes)))
		for _, h := range hashes {
			dst = binary.LittleEndian.AppendUint64(dst, h)
		}
	}
	return dst
}

var errFingerprint = errors.New("not a fingerprint")

// ParseFingerprint returns what Append has made p of, and errFingerprint where it has not.
func ParseFingerprint(p []byte) (*Fingerprint, error) {
	bad := false
	number := func() uint64 {
		v, k := binary.Uvarint(p)
		if k <= 0 || v > maxOffset {
			bad = true
			return 0
		}
		p = p[k:]
		return v
	}
	hashes := func() (all []uint64) {
		n := number()
		if bad || n > protocol.MaxRows+1 || 8*n > uint64(len(p)) {
			bad = true
			return nil
		}
		for ; n > 0; n-- {
			all = append(all, binary.LittleEndian.Uint64(p))
			p = p[8:]
		}
		return all
	}
	m := &Fingerprint{offset: number(), first: number()}
	m.lines, m.alternate = hashes(), hashes()
	if bad || len(p) > 0 {
		return nil, errFingerprint
	}
	return m, nil
}

// Offset is what was printed by then.
func (m *Fingerprint) Offset() uint64 { return m.offset }

// Bounds of one Take: a millisecond or two.
const (
	lookLines = 2_000
	lookBytes = 256 << 10
)

// A Lookout looks for a line that matches and is news. Take is called in the screen's
// owner goroutine, each time that something was shown; Match in one of the caller's, not
// at the same time.
//
// What it cannot see: what was printed over, or erased, between two Takes, and lines
// that the history has forgotten by then.
type Lookout struct {
	pattern *regexp.Regexp
	since   *Fingerprint // ours; nil if all counts that is shown
	began   bool
	seen    uint64 // lines before this one were looked at, and do not change any more
	taken   []string
}

// NewLookout returns one that has seen nothing. Where since is nil, all counts that is
// on the screen, and what goes above it from the first Take on. The fingerprint is used up.
//
// Errors: invalid_argument for a pattern that is none, or that takes too long.
func NewLookout(pattern string, since *Fingerprint) (*Lookout, error) {
	re, err := compile(pattern)
	if err != nil {
		return nil, err
	}
	return &Lookout{pattern: re, since: since}, nil
}

// Take takes lines to be matched, and reports whether there are more to be taken.
func (l *Lookout) Take(s *Screen) (more bool) {
	n := s.lineNumbers()
	if !l.began {
		l.began, l.seen = true, n.Screen
		if l.since != nil && l.since.first <= n.Next {
			l.seen = l.since.first
		}
	}
	l.taken = l.taken[:0]
	lines, more := l.lines(s, n)
	alternate, shown := s.term.AlternateText()
	for _, line := range slices.Backward(lines) {
		hidden := line.Open && shown && l.since == nil
		if !line.Open {
			if line.Number < l.seen {
				continue
			}
			l.seen = line.Number + 1
		}
		if !hidden && l.isNews(s, line) {
			l.taken = append(l.taken, line.Text)
		}
	}
	if !shown && l.since != nil {
		l.since.alternate = nil // it is another one that is shown next
	}
	for _, line := range alternate {
		if l.since == nil || differs(l.since.alternate, line.Number, line.Text) {
			l.taken = append(l.taken, line.Text)
		}
	}
	return more
}

// lines returns the next ones, the newest first, and whether there are more.
func (l *Lookout) lines(s *Screen, n protocol.LineNumbers) (lines []vt.HistoryLine, more bool) {
	from := max(n.First, min(l.seen, top(n)))
	for end := min(n.Next, from+lookLines); ; end = from + max(1, (end-from)/2) {
		lines = s.term.TextBefore(end, int(end-from), lookBytes)
		if uint64(len(lines)) >= end-from {
			return lines, end < n.Next
		}
	}
}

func (l *Lookout) isNews(s *Screen, line vt.HistoryLine) bool {
	m, e := l.since, s.events.erased
	if m == nil || e.Ever && e.At >= m.offset && line.Number >= e.Line {
		return true
	}
	return line.Number >= m.first && differs(m.lines, line.Number-m.first, line.Text)
}

// differs reports whether a line is another than it was. One that was another for once
// is news whatever becomes of it.
func differs(was []uint64, i uint64, text string) bool {
	if i >= uint64(len(was)) {
		return true
	}
	if was[i] == hash(text) {
		return false
	}
	was[i] = 0
	return true
}

// Found is a line that matches, and in it what matched and each group of that.
type Found struct {
	Line   string
	Groups []string
}

// Match returns the first line of those taken that matches. Groups that there is no room
// for in an answer are empty.
func (l *Lookout) Match() (Found, bool) {
	for _, text := range l.taken {
		groups := l.pattern.FindStringSubmatch(text)
		if groups == nil {
			continue
		}
		room := protocol.MaxScreenBytes - jsonLen(text)
		for i, g := range groups {
			if room -= jsonLen(g); room < 0 {
				groups[i] = ""
			}
		}
		return Found{text, groups}, true
	}
	return Found{}, false
}
