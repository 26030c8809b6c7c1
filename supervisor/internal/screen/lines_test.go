package screen

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

func before(n uint64) *uint64 { return &n }

// linesAsText returns the lines of a page as "number text", followed by < if the line is cut, and by > if it is open.
func linesAsText(c protocol.HistoryContent) (out []string) {
	for _, l := range c.Lines {
		s := fmt.Sprint(l.Line, " ")
		for _, p := range l.Spans {
			s += p.Text
		}
		if l.Cut {
			s += "<"
		}
		if l.Open {
			s += ">"
		}
		out = append(out, s)
	}
	return out
}

func TestHistory(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   string
		spec protocol.HistorySpec
		want []string
		more bool
	}{
		{"nothing", "", protocol.HistorySpec{}, nil, false},
		{"only a screen", "a\r\nb", protocol.HistorySpec{}, nil, false},
		{"the screen", "a\r\nb", protocol.HistorySpec{Before: before(2)}, []string{"1 b>", "0 a>"}, false},
		{"above the screen", numbers(9), protocol.HistorySpec{Lines: 2}, []string{"5 6", "4 5"}, true},
		{"a page", numbers(9), protocol.HistorySpec{Before: before(4), Lines: 2}, []string{"3 4", "2 3"}, true},
		{"the last page", numbers(9), protocol.HistorySpec{Before: before(2), Lines: 2}, []string{"1 2", "0 1"}, false},
		{"less than a page", numbers(9), protocol.HistorySpec{Before: before(1), Lines: 2}, []string{"0 1"}, false},
		{"before the first", numbers(9), protocol.HistorySpec{Before: before(0)}, nil, false},
		{"forgotten", numbers(200), protocol.HistorySpec{Before: before(99)}, []string{"98 99", "97 98"}, false},
		{"a line that ends on the screen", numbers(5) + strings.Repeat("0123456789", 10), protocol.HistorySpec{Lines: 2}, []string{"5 " + strings.Repeat("0123456789", 10) + ">", "4 5"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := printed(small, tt.in)
			c := s.History(tt.spec).Content()
			if got := linesAsText(c); !slices.Equal(got, tt.want) || c.More != tt.more {
				t.Errorf("got %q and more: %t, want %q and %t", got, c.More, tt.want, tt.more)
			}
			if c.Offset != uint64(len(tt.in)) || c.Lines == nil || len(c.Looks) != 1 {
				t.Errorf("the offset is %d, there are lines %v and looks %v", c.Offset, c.Lines, c.Looks)
			}
		})
	}
}

func TestHistoryLooks(t *testing.T) {
	s := printed(small, "a\x1b[31mred\x1b[mb\r\n\x1b[31mred\x1b[1mbold\x1b[m\r\n"+numbers(9))
	c := s.History(protocol.HistorySpec{Before: before(2)}).Content()
	want := []protocol.HistoryLine{
		{Line: 1, Spans: []protocol.Span{{Text: "red", Look: 1}, {Text: "bold", Look: 2}}},
		{Line: 0, Spans: []protocol.Span{{Text: "a"}, {Text: "red", Look: 1}, {Text: "b"}}},
	}
	looks := []protocol.Look{{}, {Fg: "1"}, {Fg: "1", Bold: true}}
	if got := fmt.Sprint(c.Lines); got != fmt.Sprint(want) || !slices.Equal(c.Looks, looks) {
		t.Errorf("got  %v %+v\nwant %v %+v", got, c.Looks, want, looks)
	}
}

// A reply fits into a message whatever the lines contain, the pages together have all lines, and a line's text may
// have MaxLineBytes.
func TestHistoryRoom(t *testing.T) {
	line := func(n int, part func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(part(i))
		}
		return b.String() + "\x1b]8;;\a\x1b[m\r\n"
	}
	for _, tt := range []struct {
		name, line string
		cut        bool
	}{
		{"plain", line(79, func(int) string { return "x" }), false},
		{"empty", "\r\n", false},
		{"quotes", line(4000, func(int) string { return `"` }), false},
		{"as long as may be", line(protocol.MaxLineBytes, func(int) string { return "x" }), false},
		{"longer", line(protocol.MaxLineBytes+1, func(int) string { return "x" }), true},
		{"looks", line(2000, func(i int) string { return fmt.Sprintf("\x1b[38;2;%d;%d;0mx", i&255, i>>8) }), false},
		{"links", line(1000, func(i int) string { return fmt.Sprintf("\x1b]8;;http://x/%d/%s\ax", i, strings.Repeat("a", 1990)) }), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(protocol.Size{Cols: 80, Rows: 4}, 3000)
			s.Write([]byte(strings.Repeat(tt.line, 40) + strings.Repeat("\r\n", 4)))
			next := s.lineNumbers().Screen
			for more := next > s.lineNumbers().First; more; {
				c := s.History(protocol.HistorySpec{Before: &next, Lines: 10_000}).Content()
				data, err := json.Marshal(c)
				if err != nil || len(data) > protocol.MaxScreenBytes+protocol.MaxScreenBytes/100 {
					t.Fatalf("%d bytes, %v", len(data), err)
				}
				if len(c.Lines) == 0 || c.Lines[0].Line != next-1 {
					t.Fatalf("before %d: %d lines", next, len(c.Lines))
				}
				for _, l := range c.Lines {
					next--
					if l.Line != next || l.Cut != (tt.cut && len(l.Spans) > 0) && l.Line > c.First {
						t.Fatalf("got line %d, cut %t, want %d", l.Line, l.Cut, next)
					}
				}
				more = c.More
			}
			if first := s.lineNumbers().First; next != first {
				t.Errorf("the last line is %d, not %d", next, first)
			}
		})
	}
}

// search repeats the search until it has no more matches, and returns all matches and the number of replies.
func search(t *testing.T, s *Screen, spec protocol.SearchSpec, take int) (all []protocol.Match, answers int) {
	t.Helper()
	for {
		q, err := NewSearch(spec)
		testkit.Must(t, err)
		for !q.Over() {
			q.Take(s, take)
			q.Match()
		}
		c := q.Content()
		all = append(all, c.Matches...)
		if answers++; !c.More {
			return all, answers
		}
		spec.Before = &c.Before
	}
}

func TestSearch(t *testing.T) {
	match := func(line uint64, text string, ranges ...protocol.Range) protocol.Match {
		return protocol.Match{Line: line, Text: text, Ranges: ranges}
	}
	for _, tt := range []struct {
		name, in string
		spec     protocol.SearchSpec
		want     []protocol.Match
	}{
		{"nothing", "", protocol.SearchSpec{Pattern: "x"}, nil},
		{"above the screen and on it", numbers(22), protocol.SearchSpec{Pattern: "2"}, []protocol.Match{
			match(21, "22", protocol.Range{Start: 0, End: 1}, protocol.Range{Start: 1, End: 2}), match(20, "21", protocol.Range{Start: 0, End: 1}),
			match(19, "20", protocol.Range{Start: 0, End: 1}), match(11, "12", protocol.Range{Start: 1, End: 2}), match(1, "2", protocol.Range{Start: 0, End: 1}),
		}},
		{"before", numbers(22), protocol.SearchSpec{Pattern: "2", Before: before(11)}, []protocol.Match{match(1, "2", protocol.Range{Start: 0, End: 1})}},
		{"across a wrap", strings.Repeat("x", 18) + "word\r\n", protocol.SearchSpec{Pattern: "word$"}, []protocol.Match{
			match(0, strings.Repeat("x", 18)+"word", protocol.Range{Start: 18, End: 22}),
		}},
		{"case", "Ab\r\n", protocol.SearchSpec{Pattern: "b|a", IgnoreCase: true}, []protocol.Match{
			match(0, "Ab", protocol.Range{Start: 0, End: 1}, protocol.Range{Start: 1, End: 2}),
		}},
		{"bytes, not columns", "日本語\x1b[31m語\x1b[m", protocol.SearchSpec{Pattern: "語+"}, []protocol.Match{match(0, "日本語語", protocol.Range{Start: 6, End: 12})}},
		{"an empty match", "a\r\n\r\nb\r\nc", protocol.SearchSpec{Pattern: "^$"}, []protocol.Match{match(1, "")}},
		{"part of the matches empty", "baab\r\nb\r\nb\r\nb", protocol.SearchSpec{Pattern: "a*", Before: before(1)}, []protocol.Match{match(0, "baab", protocol.Range{Start: 1, End: 3})}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, take := range []int{1, 3, 1000} {
				for _, limit := range []int{0, 1, 2} {
					tt.spec.Limit = limit
					got, answers := search(t, printed(small, tt.in), tt.spec, take)
					if fmt.Sprint(got) != fmt.Sprint(tt.want) {
						t.Errorf("got %v, want %v", got, tt.want)
					}
					if limit > 0 && answers < len(got)/limit {
						t.Errorf("%d matches in %d replies of at most %d", len(got), answers, limit)
					}
				}
			}
		})
	}
	for _, pattern := range []string{"(", "a)(b", "*", `\`, "((((x{30}){30}){30}){30})", strings.Repeat("(a|b){9}", 100) + "{9}", "[[:x:]]"} {
		if _, err := NewSearch(protocol.SearchSpec{Pattern: pattern}); protocol.CodeOf(err) != protocol.CodeInvalidArgument {
			t.Errorf("%q: got %v", pattern, err)
		}
	}
}

// A search while lines are printed finds lines that existed, each of them once.
func TestSearchWhilePrinting(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		s, printed := New(small, 200), 0
		print := func(n int) {
			for range n {
				s.Write([]byte(fmt.Sprintf("line %d\r\n", printed)))
				printed++
			}
		}
		print(300)
		q, err := NewSearch(protocol.SearchSpec{Pattern: "^line", Limit: 1000})
		testkit.Must(t, err)
		for !q.Over() {
			q.Take(s, 1+r.IntN(50))
			if print(r.IntN(20)); r.IntN(3) == 0 {
				s.Resize(protocol.Size{Cols: 5 + r.IntN(20), Rows: 4})
			}
			q.Match()
		}
		c := q.Content()
		for i, m := range c.Matches {
			if want := uint64(299 - i); m.Line != want || m.Text != fmt.Sprint("line ", want) {
				t.Fatalf("seed %d: match %d is %+v, want line %d", seed, i, m, want)
			}
		}
		if len(c.Matches) < 50 || c.More || c.Next != 301 {
			t.Errorf("seed %d: %d matches, more: %t, next %d", seed, len(c.Matches), c.More, c.Next)
		}
	}
}

// The size of a reply is bounded, and the next reply continues.
func TestSearchRoom(t *testing.T) {
	s := New(protocol.Size{Cols: 80, Rows: 4}, 10_000)
	s.Write([]byte(strings.Repeat(strings.Repeat(`"`, 30_000)+"\r\n", 20)))
	got, answers := search(t, s, protocol.SearchSpec{Pattern: `"`}, 1000)
	if len(got) != 20 || answers != 2 {
		t.Errorf("got %d matches in %d replies, want 20 in 2", len(got), answers)
	}
	for i, m := range got {
		if m.Line != uint64(19-i) || len(m.Ranges) != maxRanges {
			t.Errorf("match %d is of line %d and has %d ranges", i, m.Line, len(m.Ranges))
		}
	}
}
