//go:build linux || darwin

package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/screen"
)

// changesReader has the lines and rows of a session, as a client keeps them.
type changesReader struct {
	lines map[uint64]string
	rows  map[int]string
	from  uint64
	title string
	size  protocol.Size
	mark  []byte
	ended uint64
}

// apply updates the reader as protocol.ChangesContent describes.
func (r *changesReader) apply(c *protocol.ChangesContent) {
	if c.Whole {
		if r.lines == nil {
			r.lines, r.from = map[uint64]string{}, c.From
		}
		maps.DeleteFunc(r.lines, func(n uint64, _ string) bool { return n >= c.From })
		r.rows = nil
	}
	maps.DeleteFunc(r.lines, func(n uint64, _ string) bool { return n < c.First || n >= c.Next })
	if !c.Alternate {
		r.rows = nil
	} else if r.rows == nil {
		r.rows = map[int]string{}
	}
	for _, l := range c.Lines {
		for i, text := range l.Texts {
			r.lines[l.Line+uint64(i)] = text
		}
	}
	for _, l := range c.Rows {
		for i, text := range l.Texts {
			r.rows[l.Row+i] = text
		}
	}
	if c.Title != nil {
		r.title = *c.Title
	}
	if c.Size != nil {
		r.size = *c.Size
	}
	maps.DeleteFunc(r.rows, func(y int, _ string) bool { return y >= r.size.Rows })
	r.mark = c.Mark
	for _, one := range c.Commands {
		r.ended = one.Count
	}
}

// textOf returns the text of a line of the history.
func textOf(l protocol.HistoryLine) (text string) {
	for _, span := range l.Spans {
		text += span.Text
	}
	return strings.TrimRight(text, " ")
}

// stable returns the two texts of a line as they can be compared: without blanks if one of them has wide
// characters. If a wide character had no room at the end of a row behind columns that were never written, the line
// has one blank more or less at another width. The second text may be only the end of the line, without the
// wide characters of the first.
func stable(a, b string) (string, string) {
	if !strings.ContainsAny(a+b, "漢字🙂") {
		return a, b
	}
	return strings.ReplaceAll(a, " ", ""), strings.ReplaceAll(b, " ", "")
}

// fetch reads the lines that a reply has left out.
func (r *changesReader) fetch(t testing.TB, s *Session, left *protocol.LineRange) {
	t.Helper()
	for before := left.End; before > left.First; {
		h, err := s.History(protocol.HistorySpec{SessionID: s.ID(), Before: &before, Lines: int(min(before-left.First, protocol.MaxHistoryLines))})
		testkit.Must(t, err)
		if len(h.Lines) == 0 {
			return
		}
		for _, l := range h.Lines {
			r.lines[l.Line] = textOf(l)
			before = l.Line
		}
	}
}

// differs compares the reader with the lines, the rows, the title and the size of the session.
func (r *changesReader) differs(t testing.TB, s *Session, c *protocol.ChangesContent) string {
	t.Helper()
	h, err := s.History(protocol.HistorySpec{SessionID: s.ID(), Before: &c.Next, Lines: protocol.MaxHistoryLines})
	testkit.Must(t, err)
	if h.LineNumbers != c.LineNumbers {
		return fmt.Sprintf("lines are %+v, want %+v", c.LineNumbers, h.LineNumbers)
	}
	for _, l := range h.Lines {
		got, want := stable(r.lines[l.Line], textOf(l))
		if l.Cut && l.Line == h.First && strings.HasSuffix(got, want) {
			continue // the history has dropped the first rows of its oldest line
		}
		if l.Line >= r.from && got != want {
			return fmt.Sprintf("line %d is %q, want %q", l.Line, got, want)
		}
	}
	shown, err := s.Show(protocol.ScreenSpec{SessionID: s.ID(), Format: protocol.ScreenCells})
	testkit.Must(t, err)
	if c.Cursor != shown.Cursor || r.title != shown.Title || r.size != (protocol.Size{Cols: shown.Cols, Rows: shown.Rows}) || c.Alternate != shown.Alternate {
		return fmt.Sprintf("cursor %+v, title %q, size %v, alternate %v, want %+v", c.Cursor, r.title, r.size, c.Alternate, shown)
	}
	if !shown.Alternate {
		return ""
	}
	for y, row := range shown.Cells {
		want := ""
		for _, cell := range row.Cells {
			if cell.Text == "" {
				cell.Text = strings.Repeat(" ", cell.Columns())
			}
			want += cell.Text
		}
		if want = strings.TrimRight(want, " "); r.rows[y] != want {
			return fmt.Sprintf("row %d is %q, want %q", y, r.rows[y], want)
		}
	}
	return ""
}

// update brings the reader up to date and compares it with the session.
func (r *changesReader) update(t testing.TB, s *Session, maxBytes int) (differs string) {
	t.Helper()
	c, err := s.Changes(protocol.ChangesSpec{SessionID: s.ID(), Since: r.mark, MaxBytes: maxBytes})
	testkit.Must(t, err)
	if n := len(mustJSON(t, c)); maxBytes > 0 && n > maxBytes+1000 {
		return fmt.Sprintf("a reply for %d bytes has %d", maxBytes, n)
	}
	r.apply(&c)
	if c.LeftOut != nil {
		r.fetch(t, s, c.LeftOut)
	}
	for _, l := range c.Lines {
		if l.Cut {
			r.fetch(t, s, &protocol.LineRange{First: l.Line, End: l.Line + 1})
		}
	}
	if c.LeftOutRows > 0 {
		r.mark = nil // reads the whole screen
		return r.update(t, s, 0)
	}
	return r.differs(t, s, &c)
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // as on the wire
	testkit.Must(t, e.Encode(v))
	return b.Bytes()
}

// randomScreenOutput returns output that changes lines in all ways.
func randomScreenOutput(r *rand.Rand) string {
	word := func() string {
		return []string{"word ", "漢字", "0123456789", "🙂", "e\u0301", "    ", "\"<>\\"}[r.IntN(7)]
	}
	at := func() string { return fmt.Sprintf("\x1b[%d;%dH", 1+r.IntN(30), 1+r.IntN(90)) }
	switch r.IntN(22) {
	case 0:
		return "\x1b[H\x1b[2J"
	case 1:
		return "\x1b[3J"
	case 2:
		return "\x1b[?1049h"
	case 3, 4:
		return "\x1b[?1049l"
	case 5:
		return fmt.Sprintf("\x1b[%dL", 1+r.IntN(4))
	case 6:
		return fmt.Sprintf("\x1b[%dM", 1+r.IntN(4))
	case 7:
		return fmt.Sprintf("\x1b]2;title %d\a", r.IntN(5))
	case 8:
		return "\x1bc"
	case 9:
		return fmt.Sprintf("\x1b[%d;%dr", 1+r.IntN(5), 6+r.IntN(20))
	case 10:
		return "\x1b[r"
	case 11, 12:
		return at() + word()
	case 13:
		return strings.Repeat("\x1bM", r.IntN(5))
	case 14:
		return strings.Repeat(word()+"\r\n", r.IntN(200))
	case 15:
		return promptMark + "\r\n" + startMark + word() + endMark(0)
	default:
		return strings.Repeat(word(), r.IntN(20)) + strings.Repeat("\r\n", r.IntN(3))
	}
}

// Readers that ask at different times, and for few bytes, have exactly the lines of the session
// after each reply.
func TestChangesExact(t *testing.T) {
	seed := testkit.Seed()
	t.Logf("seed %d", seed)
	for round := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, round))
			tb, by := fakeTable(t, Config{})
			spec := bash("")
			spec.ScrollbackLines = 400
			s := create(t, tb, spec)
			readers := make([]changesReader, 3)
			for step := range 150 {
				for range r.IntN(4) {
					show(by(s), randomScreenOutput(r))
				}
				if r.IntN(8) == 0 {
					testkit.Must(t, s.Resize(protocol.Size{Cols: 10 + r.IntN(100), Rows: 3 + r.IntN(40)}))
				}
				i := []int{0, 0, 0, 1, 1, 2}[r.IntN(6)]
				if d := readers[i].update(t, s, []int{0, 0, 300, 2000}[r.IntN(4)]); d != "" {
					t.Fatalf("seed %d, round %d, step %d, reader %d: %s", seed, round, step, i, d)
				}
			}
		})
	}
}

// A reply has only the lines that have changed, and a short mark.
func TestChangesSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		f := by(s)
		show(f, strings.Repeat("old\r\n", 100))
		c, err := s.Changes(protocol.ChangesSpec{SessionID: s.ID()})
		if err != nil || !c.Whole || len(c.Lines) != 1 || len(c.Lines[0].Texts) != 24 || c.From == 0 {
			t.Fatalf("the whole screen: %+v, %v", c, err)
		}
		ask := func() *protocol.ChangesContent {
			t.Helper()
			was := c.Mark
			if c, err = s.Changes(protocol.ChangesSpec{SessionID: s.ID(), Since: was}); err != nil {
				t.Fatal(err)
			}
			return &c
		}
		if c := ask(); len(c.Lines) > 0 || c.Title != nil || c.Size != nil || len(mustJSON(t, c)) > 150 || len(c.Mark) > 32 {
			t.Errorf("no change: %s", mustJSON(t, c))
		}
		show(f, "one\r\ntwo\r\n")
		if c := ask(); len(c.Lines) != 1 || c.Lines[0].Texts[1] != "two" || c.LeftOut != nil {
			t.Errorf("two lines: %s", mustJSON(t, c))
		}
		show(f, "\x1b[5;1Hchanged\x1b[24;1H"+promptMark+"\r\n\x1b]133;C;cmdline=make\a"+endMark(3))
		if c := ask(); len(c.Lines) != 2 || c.Lines[0].Texts[0] != "changed" || len(c.Commands) != 1 || c.Commands[0].Line != "make" || *c.Commands[0].ExitCode != 3 {
			t.Errorf("a changed line and a command: %s", mustJSON(t, c))
		}
		show(f, "\x1b[?1049h\x1b[Hedit\r\n~")
		if c := ask(); !c.Alternate || len(c.Rows) != 1 || c.Rows[0].Texts[1] != "~" || len(c.Lines) > 0 {
			t.Errorf("alternate screen: %s", mustJSON(t, c))
		}
		show(f, "\x1b[?1049l"+strings.Repeat("many lines\r\n", 5000))
		if c := ask(); c.LeftOut == nil || c.LeftOut.End != c.Lines[0].Line || len(mustJSON(t, c)) > protocol.DefaultChangesBytes+500 {
			t.Errorf("many lines: left out %+v, then %+v", c.LeftOut, c.Lines[0])
		}
	})
}

// A secret is masked in lines, in rows of the alternate screen also across their ends, in the title
// and in commands.
func TestChangesMasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{Mask: []*regexp.Regexp{regexp.MustCompile("sk-[a-z]{20}")}})
		s := create(t, tb, bash(""))
		secret := "sk-" + strings.Repeat("x", 20)
		show(by(s), "\x1b]133;C;cmdline="+strings.Repeat("y", 250)+secret+"\a"+secret+endMark(0)+"\x1b]2;"+secret+"\a\x1b[?1049h\x1b[H"+strings.Repeat("-", 70)+secret)
		c, err := s.Changes(protocol.ChangesSpec{SessionID: s.ID(), Since: readerMark{}.encode(s.instance)})
		if err != nil || len(c.Lines) == 0 || len(c.Rows) == 0 || c.Title == nil || len(c.Commands) == 0 {
			t.Fatalf("%+v, %v", c, err)
		}
		if data := string(mustJSON(t, c)); strings.Contains(data, "sk-") || strings.Contains(data, "xx") {
			t.Errorf("the changes have a part of a secret: %s", data)
		}
	})
}

// Only a mark of the session is accepted.
func TestChangesMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, _ := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		good := readerMark{screen.ReaderMark{Epoch: 1, Seq: 2, Top: 3, Next: 4, Alternate: true}, 5}
		if got, err := s.parseReaderMark(good.encode(s.instance)); err != nil || *got != good {
			t.Errorf("parsed as %+v, %v", got, err)
		}
		for name, tt := range map[string]struct {
			mark []byte
			want protocol.Code
		}{
			"another instance": {good.encode("another"), protocol.CodeInstanceMismatch},
			"changed":          {append(good.encode(s.instance), 0), protocol.CodeInvalidArgument},
			"of await":         {marked(t, s), protocol.CodeInvalidArgument},
			"large numbers":    {readerMark{screen.ReaderMark{Top: 1 << 60, Next: 1 << 60}, 0}.encode(s.instance), protocol.CodeInvalidArgument},
			"too long":         {make([]byte, protocol.MaxMark+1), protocol.CodeInvalidArgument},
		} {
			if _, err := s.Changes(protocol.ChangesSpec{SessionID: s.ID(), Since: tt.mark}); protocol.CodeOf(err) != tt.want {
				t.Errorf("%s: %v, want %s", name, err, tt.want)
			}
		}
		// A mark that the session cannot have made is answered with all lines.
		for _, m := range []screen.ReaderMark{{Seq: maxMarkLine}, {Top: maxMarkLine, Next: 2 * maxMarkLine}, {Epoch: 1, Next: maxMarkLine}} {
			if c, err := s.Changes(protocol.ChangesSpec{SessionID: s.ID(), Since: readerMark{m, maxMarkLine}.encode(s.instance)}); err != nil || !c.Whole {
				t.Errorf("mark %+v: %+v, %v", m, c, err)
			}
		}
	})
}

// No mark makes the parser panic, and each accepted mark stays as it is.
func FuzzReaderMark(f *testing.F) {
	i := &identity{id: "s", instance: "life"}
	f.Add(readerMark{screen.ReaderMark{Epoch: 1, Seq: 2, Top: 3, Next: 4, Alternate: true}, 5}.encode("life"))
	f.Add(readerMark{}.encode("another"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		m, err := i.parseReaderMark(p)
		if err != nil || m == nil {
			return
		}
		again, err := i.parseReaderMark(m.encode("life"))
		if err != nil || *again != *m {
			t.Errorf("%+v is parsed again as %+v, %v", m, again, err)
		}
	})
}
