package screen

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math"
	"regexp"
	"slices"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/supervisor/internal/vt"
)

// A Fingerprint tells the content of a screen at one moment: a hash of the text of each line.
// With a fingerprint, a Lookout ignores lines that have not changed since then.
type Fingerprint struct {
	offset    uint64
	first     uint64   // number of the first line
	lines     []uint64 // hashes for the normal screen, by line number minus first
	alternate []uint64 // hashes for the alternate screen, if it is shown, by the row in which a line begins
}

// Fingerprint returns the fingerprint of the screen's content.
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

// top returns the number of the first line that may have rows on the screen.
func top(n protocol.LineNumbers) uint64 {
	if n.Screen > n.First {
		return n.Screen - 1
	}
	return n.Screen
}

// Inclusive returns a fingerprint without hashes. With it, a Lookout ignores no line that is on the screen now, and none
// that comes later.
func (s *Screen) Inclusive() *Fingerprint {
	return &Fingerprint{offset: s.offset, first: s.lineNumbers().Screen}
}

// isInclusive reports whether the fingerprint is one of Inclusive. Others have a hash of each line of the screen.
func (m *Fingerprint) isInclusive() bool { return len(m.lines) == 0 }

// hash returns the hash of a line's text. It must be the same in all programs and versions,
// because fingerprints are sent to clients.
func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// Append appends the encoded fingerprint to dst: numbers (uvarint), and lists of hashes (8
// bytes each, little endian), each behind its length.
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

var errFingerprint = errors.New("invalid screen fingerprint")

// ParseFingerprint decodes a fingerprint that Append has encoded. If p is invalid, it returns
// errFingerprint.
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

// Offset returns the output offset at which the fingerprint was taken.
func (m *Fingerprint) Offset() uint64 { return m.offset }

// These bound one call of Take to a millisecond or two.
const (
	lookLines = 2_000
	lookBytes = 256 << 10
)

// A Lookout finds a line that matches a pattern and is new. Take must be called in the
// screen's owner goroutine, each time that output has been written. Match may be called in
// another goroutine, but not at the same time.
//
// A Lookout misses text that was overwritten or erased between two calls of Take, and lines
// that the history has dropped by then.
type Lookout struct {
	pattern *regexp.Regexp
	since   *Fingerprint // owned by the Lookout; if nil, all lines from first on are new
	first   uint64       // number of the first line that may be new; math.MaxUint64: the first one on the screen at the first Take
	began   bool
	seen    uint64 // lines before this number have been searched, and do not change any more
	taken   []string
	masker  *mask.Masker
}

// NewLookout returns a Lookout that has searched no line yet. If since is nil, all lines that
// are on the screen at the first Take are new, and all later ones. The Lookout owns since,
// which must not be used afterwards.
//
// Errors: invalid_argument if the pattern is invalid, or if matching it could take too long.
func NewLookout(pattern string, since *Fingerprint) (*Lookout, error) {
	re, err := Compile(pattern)
	if err != nil {
		return nil, err
	}
	l := &Lookout{pattern: re, first: math.MaxUint64}
	if since != nil {
		l.first = since.first
		if !since.isInclusive() {
			l.since = since
		}
	}
	return l, nil
}

// Take copies new lines for Match, and reports whether there are more to be copied.
func (l *Lookout) Take(s *Screen) (more bool) {
	n := s.lineNumbers()
	if !l.began {
		l.began, l.seen = true, n.Screen
		if l.first <= n.Next {
			l.seen = l.first
		}
	}
	l.taken, l.masker = l.taken[:0], s.masker
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
		l.since.alternate = nil // when the alternate screen is shown next, all of it is new
	}
	for _, line := range alternate {
		if l.since == nil || differs(l.since.alternate, line.Number, line.Text) {
			l.taken = append(l.taken, line.Text)
		}
	}
	return more
}

// lines returns the next lines, the newest first, and whether there are more.
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

// differs reports whether line i has another hash in was than its text has now. It also clears
// the hash of a line that differs, so that the line stays new even if it returns to the old
// text.
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

// Found is a line that matches, with the match and its groups.
type Found struct {
	Line   string
	Groups []string
}

// Match returns the first match in the lines that Take has copied. A group that has no room in
// an answer is empty.
func (l *Lookout) Match() (Found, bool) {
	for _, text := range l.taken {
		text = l.masker.Text(text) // before it is matched, because a match must not tell a secret
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
