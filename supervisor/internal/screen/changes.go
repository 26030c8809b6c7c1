package screen

import (
	"math"
	"math/rand/v2"
	"slices"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/shared/plain"
	"holdfast/supervisor/internal/vt"
)

// tracker remembers since when each line of a screen has its text, so that the screen can give any
// number of readers the lines that have changed for them. A reader has the number of the request after which
// it was up to date. The tracker looks at the screen only when a reader asks; therefore a change
// counts from the request that has found it.
//
// Lines that have left the screen do not change any more, so that the tracker looks only at the
// lines that were on the screen since the last request.
type tracker struct {
	epoch uint32 // distinguishes this tracker from those before a restoration of the screen
	seq   uint64 // number of the last request

	first uint64 // number of the first line in lines
	lines []seen
	top   uint64 // number of the first line that was on the screen since the last request
	rows  []seen // of the alternate screen, if it was shown at the last request

	// A larger screen takes lines back from the history, and a program may change them there.
	left     uint64 // lines before this one have left the screen at some request
	pulled   uint64 // lines from here on may have changed after they had left the screen
	pulledAt uint64 // number of the last request that has found such a change, or 0

	title   string
	titleAt uint64 // number of the request that has found the title
	size    protocol.Size
	sizeAt  uint64
}

// seen is the hash of a text, with the number of the request that has found it.
type seen struct{ hash, at uint64 }

// keptLines is the number of lines above the screen that a tracker remembers, for readers that ask
// rarely.
const keptLines = 1000

// A ReaderMark tells which lines of the screen a reader has.
type ReaderMark struct {
	Epoch     uint32
	Seq       uint64
	Top, Next uint64 // the reader has the lines before Next; those before Top had left the screen
	Alternate bool   // the reader has the rows of the alternate screen
}

// Changes are the changes of a screen for one reader. Content may be called in any goroutine.
type Changes struct {
	Mark    ReaderMark
	content protocol.ChangesContent
	room    int
	first   uint64           // lines before this one have not changed for the reader
	lines   []vt.HistoryLine // changed lines, the newest first
	oldest  uint64           // lines before this one were not read, because they have no room
	rows    []changedRow     // changed rows, from the top, without secrets
	masker  *mask.Masker
}

type changedRow struct {
	y    int
	text string
}

// noteResize notes that lines of the history may be on the screen for some time.
func (k *tracker) noteResize(s *Screen) {
	if k != nil {
		k.top = min(k.top, top(s.lineNumbers()))
	}
}

// Changes returns the changes since a mark, or the whole screen if since is nil. The lines, rows and
// commands of the answer take about maxBytes. It must be called in the owner's goroutine.
func (s *Screen) Changes(since *ReaderMark, maxBytes int) *Changes {
	if s.tracker == nil {
		s.tracker = &tracker{epoch: rand.Uint32(), top: math.MaxUint64}
	}
	k, n := s.tracker, s.lineNumbers()
	read, rows := k.update(s, n, maxBytes)
	c := &Changes{room: maxBytes, masker: s.masker, content: protocol.ChangesContent{Offset: s.offset, LineNumbers: n, Alternate: rows != nil}}
	c.Mark = ReaderMark{Epoch: k.epoch, Seq: k.seq, Top: top(n), Next: n.Next, Alternate: rows != nil}
	x, y := s.term.Cursor()
	c.content.Cursor = protocol.Cursor{X: min(x, s.size.Cols-1), Y: y, Hidden: s.term.Modes().CursorHidden}
	has := ReaderMark{Top: top(n)}
	if since != nil {
		has = *since
	}
	if since == nil || has.Epoch != k.epoch || has.Seq > k.seq {
		c.content.Whole, c.content.From = true, max(n.First, min(has.Top, top(n)))
		has = ReaderMark{Top: c.content.From, Next: c.content.From}
	}
	if k.pulledAt > has.Seq {
		has.Top = min(has.Top, max(k.pulled, c.content.From))
	}
	c.takeLines(s, k, has, read)
	c.takeRows(k, has, rows)
	if k.titleAt > has.Seq || c.content.Whole {
		c.content.Title = new(s.masker.Text(k.title))
	}
	if k.sizeAt > has.Seq || c.content.Whole {
		c.content.Size = new(k.size)
	}
	return c
}

// update looks at the lines that were on the screen since the last request, and at the rows of the
// alternate screen. It returns the lines that it has read, the newest first, and these rows, or nil
// if the alternate screen is not shown. Above the screen it reads lines of about maxBytes.
func (k *tracker) update(s *Screen, n protocol.LineNumbers, maxBytes int) (read []vt.HistoryLine, rows []string) {
	k.seq++
	onScreen := top(n)
	from := max(n.First, min(onScreen, k.top))
	read = s.term.TextBefore(n.Next, int(n.Next-onScreen), math.MaxInt)
	read = append(read, s.term.TextBefore(onScreen, int(min(onScreen-from, math.MaxInt32)), maxBytes)...)
	kept := k.before(from)
	if first := n.Next - uint64(len(read)); first > from {
		k.noteChange(from)
		from, kept = first, nil // the lines between may have changed
	}
	lines := slices.Clone(kept)
	for _, l := range slices.Backward(read) {
		state := k.see(k.line(l.Number), l.Text)
		if lines = append(lines, state); state.at == k.seq {
			k.noteChange(l.Number)
		}
	}
	k.first, k.lines, k.top, k.left = from-uint64(len(kept)), lines, onScreen, max(k.left, onScreen)
	k.rows, rows = k.seeRows(s)
	if title := s.Title(); title != k.title {
		k.title, k.titleAt = title, k.seq
	}
	if s.size != k.size {
		k.size, k.sizeAt = s.size, k.seq
	}
	return read, rows
}

// noteChange notes that a line has changed at this request.
func (k *tracker) noteChange(line uint64) {
	if line >= k.left {
		return // no reader takes it for a line that does not change any more
	}
	if k.pulledAt == 0 {
		k.pulled = line
	}
	k.pulled, k.pulledAt = min(k.pulled, line), k.seq
}

// before returns the last of the remembered lines that end at a number, or none if there is a gap.
func (k *tracker) before(line uint64) []seen {
	if line <= k.first || line > k.first+uint64(len(k.lines)) {
		return nil
	}
	all := k.lines[:line-k.first]
	return all[max(0, len(all)-keptLines):]
}

// line returns the state of a line at the last request, or nil.
func (k *tracker) line(number uint64) *seen {
	if number < k.first || number-k.first >= uint64(len(k.lines)) {
		return nil
	}
	return &k.lines[number-k.first]
}

// see returns the state of a line or row with a text, which was in the state before, or nil.
func (k *tracker) see(before *seen, text string) seen {
	if h := hash(text); before == nil || before.hash != h {
		return seen{h, k.seq}
	}
	return *before
}

// seeRows returns the states and texts of the rows of the alternate screen, without secrets, or nil
// if it is not shown.
func (k *tracker) seeRows(s *Screen) (states []seen, rows []string) {
	p := newSheet(s.term, s.masker)
	if !p.alternate {
		return nil, nil
	}
	for i := p.Len() - s.size.Rows; i < p.Len(); i++ {
		y, text := len(rows), p.text(line{i, i + 1}, protocol.MaxScreenBytes)
		rows = append(rows, text)
		var before *seen
		if y < len(k.rows) {
			before = &k.rows[y]
		}
		states = append(states, k.see(before, text))
	}
	return states, rows
}

// takeLines takes the lines that have changed for a reader. read has the last lines, the newest
// first.
func (c *Changes) takeLines(s *Screen, k *tracker, has ReaderMark, read []vt.HistoryLine) {
	isNew := func(number uint64) bool {
		state := k.line(number)
		return number >= has.Top && state == nil || state != nil && state.at > has.Seq
	}
	c.first = c.content.Next
	if has.Top < k.first {
		c.first = max(has.Top, c.content.First)
	} else {
		for i := range k.lines {
			if number := k.first + uint64(i); isNew(number) && number >= c.content.From {
				c.first = number
				break
			}
		}
	}
	c.oldest = c.content.Next - uint64(len(read))
	if c.first < c.oldest {
		older := s.term.TextBefore(c.oldest, int(min(c.oldest-c.first, math.MaxInt32)), c.room)
		read = append(read, older...)
		c.oldest -= uint64(len(older))
	}
	for _, l := range read {
		if l.Number >= c.first && isNew(l.Number) && (l.Text != "" || l.Number < has.Next) {
			c.lines = append(c.lines, l)
		}
	}
}

// takeRows takes the rows that have changed for a reader.
func (c *Changes) takeRows(k *tracker, has ReaderMark, rows []string) {
	for y, text := range rows {
		if k.rows[y].at > has.Seq && (text != "" || has.Alternate) {
			c.rows = append(c.rows, changedRow{y, text})
		}
	}
}

// Content encodes the changes, and the given commands, as many as have room. If there are too many,
// the newest have room.
func (c *Changes) Content(commands []protocol.ChangedCommand) protocol.ChangesContent {
	content := c.content
	c.encodeRows(&content)
	for _, one := range slices.Backward(commands) {
		need := jsonLen(one.Line) + len(`{"count":12345678,"line":,"exit_code":123,"duration_ms":12345678},`)
		if need > c.room {
			break // the reader sees it by the counts
		}
		c.room -= need
		content.Commands = append(content.Commands, one)
	}
	slices.Reverse(content.Commands)
	c.encodeLines(&content)
	return content
}

// encodeRows encodes the rows that have room, from the top.
func (c *Changes) encodeRows(content *protocol.ChangesContent) {
	next := -1
	for i, r := range c.rows {
		need := jsonLen(r.text) + len(`,`)
		if r.y != next {
			need += len(`{"y":1234,"t":[]},`)
		}
		if c.room -= need; c.room < 0 {
			content.LeftOutRows = len(c.rows) - i
			return
		}
		if r.y != next {
			content.Rows = append(content.Rows, protocol.ChangedRows{Row: r.y})
		}
		last := &content.Rows[len(content.Rows)-1]
		last.Texts, next = append(last.Texts, r.text), r.y+1
	}
}

// encodeLines encodes the newest lines that have room. If not even one has, and there are no rows, it
// encodes the beginning of that line.
func (c *Changes) encodeLines(content *protocol.ChangesContent) {
	const head = len(`{"n":1234567890,"t":[],"cut":true},`)
	end := c.oldest // lines before this one have no room
	fit := 0
	for i, l := range c.lines {
		l = maskLine(l, c.masker)
		c.lines[i] = l
		need := jsonLen(l.Text) + len(`,`)
		if i == 0 || l.Cut || l.Number+1 != c.lines[i-1].Number {
			need += head
		}
		if need <= c.room {
			c.room -= need
			fit++
			continue
		}
		end = l.Number + 1
		if i == 0 && len(content.Rows) == 0 {
			l.Text, l.Cut, end = cutJSON(l.Text, c.room-head), true, l.Number
			c.lines[0], fit = l, 1
		}
		break
	}
	for _, l := range slices.Backward(c.lines[:fit]) {
		if last := len(content.Lines) - 1; last >= 0 && !l.Cut && !content.Lines[last].Cut && content.Lines[last].Line+uint64(len(content.Lines[last].Texts)) == l.Number {
			content.Lines[last].Texts = append(content.Lines[last].Texts, l.Text)
			continue
		}
		content.Lines = append(content.Lines, protocol.ChangedLines{Line: l.Number, Texts: []string{l.Text}, Cut: l.Cut})
	}
	if c.first < end {
		content.LeftOut = &protocol.LineRange{First: c.first, End: end}
	}
}

// cutJSON returns the beginning of a text that takes at most n bytes as JSON.
func cutJSON(text string, n int) string {
	text = plain.Cut(text, max(n, 0))
	for jsonLen(text) > n && text != "" {
		text = plain.Cut(text, len(text)-max(1, (jsonLen(text)-n)/6))
	}
	return text
}
