package mcp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast/protocol"
)

// processes are the rows of a program as "top", from the process with the number first to the one before end.
func processes(first, end int) (rows []string) {
	for i := first; i < end; i++ {
		rows = append(rows, fmt.Sprintf("process %d", i))
	}
	return rows
}

// An answer does not repeat lines that are equal or have only moved on the screen, and repeats all others.
func TestLinesNotRepeated(t *testing.T) {
	top := func(text ...string) []string { return append(text, processes(1, 11)...) }
	asBefore := "process 1\n(8 lines as before)\nprocess 10"
	shell := protocol.LineNumbers{Next: 13}
	lines := func(first uint64, texts ...string) []protocol.ChangedLines {
		return []protocol.ChangedLines{{Line: first, Texts: texts}}
	}
	rows := func(first int, texts ...string) []protocol.ChangedRows {
		return []protocol.ChangedRows{{Row: first, Texts: texts}}
	}
	for _, tt := range []struct {
		name   string
		before protocol.ChangesContent
		after  protocol.ChangesContent
		want   string
	}{
		{
			"lines", protocol.ChangesContent{LineNumbers: shell, Whole: true, Lines: lines(0, top("load 1")...)},
			protocol.ChangesContent{LineNumbers: shell, Lines: lines(0, top("load 2", "node")...)}, "load 2\nnode\n" + asBefore,
		},
		{
			"rows", protocol.ChangesContent{Alternate: true, Whole: true, Rows: rows(0, top("load 1")...)},
			protocol.ChangesContent{Alternate: true, Rows: rows(0, top("load 2", "node")...)}, "rows 0 to 11:\nload 2\nnode\n" + asBefore,
		},
		{
			"equal lines", protocol.ChangesContent{Whole: true}, protocol.ChangesContent{LineNumbers: shell, Lines: lines(0, "a", "b", "b", "b", "c", "~", "~", "~", "~", "end")},
			"a\nb\nb\nb\nc\n~\n(3 more equal lines)\nend",
		},
		{
			"equal rows", protocol.ChangesContent{Whole: true}, protocol.ChangesContent{Alternate: true, Rows: rows(3, "~", "~", "~", "~", "~")},
			"rows 3 to 7:\n~\n(4 more equal lines)",
		},
		{
			"few lines", protocol.ChangesContent{LineNumbers: shell, Whole: true, Lines: lines(0, processes(1, minMoved)...)},
			protocol.ChangesContent{LineNumbers: shell, Lines: lines(1, processes(1, minMoved)...)}, strings.Join(processes(1, minMoved), "\n"),
		},
		{
			"new lines", protocol.ChangesContent{LineNumbers: shell, Whole: true, Lines: lines(0, top()...)},
			protocol.ChangesContent{LineNumbers: protocol.LineNumbers{Next: 30}, Lines: lines(13, top()...)}, strings.Join(top(), "\n"),
		},
		{
			"rows of a program that has ended", protocol.ChangesContent{Alternate: true, Whole: true, Rows: rows(0, top()...)},
			protocol.ChangesContent{LineNumbers: shell, Lines: lines(0, top()...)}, strings.Join(top(), "\n"),
		},
		{
			"all anew", protocol.ChangesContent{Alternate: true, Whole: true, Rows: rows(0, top()...)},
			protocol.ChangesContent{Alternate: true, Whole: true, Rows: rows(0, top()...)}, "rows 0 to 9:\n" + strings.Join(top(), "\n"),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got text
			got.changes(&tt.after, exchange{next: tt.before.Next, seen: seen{}.after(&tt.before)})
			if got.String() != tt.want {
				t.Errorf("the answer is\n%s\nwant\n%s", got.String(), tt.want)
			}
		})
	}
}

// An agent that follows the remarks of its answers reads the beginning of each line, also of a line that is longer than an answer.
func TestEarlier(t *testing.T) {
	all := []string{"first", strings.Repeat("é", 100), "third", strings.Repeat("x", 40), "last"}
	const room = 40
	var read []string
	for before := uint64(len(all)); ; {
		h := &protocol.HistoryContent{}
		for i := int(before) - 1; i >= 0; i-- {
			h.Lines = append(h.Lines, protocol.HistoryLine{Line: uint64(i), Spans: []protocol.Span{{Text: all[i]}}})
		}
		var got text
		got.earlier(h, room)
		read = append(strings.Split(got.String(), "\n"), read...)
		was := before
		if n, _ := fmt.Sscanf(read[0], "earlier lines are left out; read them: history with before %d", &before); n == 0 {
			break
		}
		if read = read[1:]; before >= was {
			t.Fatalf("the answer to before %d tells to read before %d", was, before)
		}
	}
	const rest = "the rest of line %d is left out; read more: history with before %d, lines 1 and max_bytes 65536"
	want := []string{"first", strings.Repeat("é", 19), fmt.Sprintf(rest, 1, 2), "third", strings.Repeat("x", 39), fmt.Sprintf(rest, 3, 4), "last"}
	if !slices.Equal(read, want) {
		t.Errorf("the answers are\n%q\nwant\n%q", read, want)
	}
	var got text
	got.earlier(&protocol.HistoryContent{Lines: []protocol.HistoryLine{{Line: 7, Spans: []protocol.Span{{Text: "a"}}, Cut: true}}}, MaxBytes)
	if want := "a\nthe rest of line 7 is left out"; got.String() != want {
		t.Errorf("the answer is %q, want %q", got.String(), want)
	}
}

// The server knows a bounded number of lines and rows, whatever a session answers.
func TestSeenBound(t *testing.T) {
	var s seen
	for i := range 10 {
		first := i * 5 * maxSeen
		s = s.after(&protocol.ChangesContent{
			Alternate: true, LineNumbers: protocol.LineNumbers{Next: uint64(first + 4*maxSeen)},
			Lines: []protocol.ChangedLines{{Line: uint64(first), Texts: processes(0, 4*maxSeen)}},
			Rows:  []protocol.ChangedRows{{Row: first, Texts: processes(0, 4*maxSeen)}, {Row: 0, Texts: processes(0, 4*maxSeen)}},
		})
		if len(s.lines) > maxSeen || len(s.rows) > maxSeen {
			t.Fatalf("the server knows %d lines and %d rows, want at most %d", len(s.lines), len(s.rows), maxSeen)
		}
	}
}
