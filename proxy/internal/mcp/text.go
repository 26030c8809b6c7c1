package mcp

import (
	"fmt"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/shared/plain"
)

// A text is an answer for a model. It contains no control characters except line feeds.
type text struct{ strings.Builder }

func (t *text) line(format string, args ...any) {
	t.WriteString(plain.Text(fmt.Sprintf(format, args...)))
	t.WriteByte('\n')
}

func (t *text) lines(all []string) {
	for _, l := range all {
		t.line("%s", l)
	}
}

// changes adds what has changed in a session. Lines of a full-screen program have the numbers of their
// rows, because only some of them have changed.
func (t *text) changes(r *protocol.ChangesContent) {
	if left := r.LeftOut; left != nil {
		t.line("lines %d to %d are left out; read them: history with before %d and lines %d", left.First, left.End-1, left.End, left.End-left.First)
	}
	for _, l := range r.Lines {
		t.lines(l.Texts)
	}
	for _, l := range r.Rows {
		for i, row := range l.Texts {
			t.line("row %d:%s", l.Row+i, row)
		}
	}
	if r.LeftOutRows > 0 {
		t.line("%d rows are left out; read them: screen", r.LeftOutRows)
	}
	for _, c := range r.Commands {
		t.line("command %d ended%s after %v: %s", c.Count, codeText(c.ExitCode), time.Duration(c.DurationMS)*time.Millisecond, c.Line)
	}
}

// lastLines returns the last lines that fit into a number of bytes, and how many it has cut off.
func lastLines(all []string, room int) (lines []string, cut int) {
	for i := len(all) - 1; i >= 0; i-- {
		if room -= len(all[i]) + 1; room < 0 {
			return all[i+1:], i + 1
		}
	}
	return all, 0
}

// lineText returns a line without its styles.
func lineText(l protocol.HistoryLine) string {
	var b strings.Builder
	for _, span := range l.Spans {
		b.WriteString(span.Text)
	}
	return b.String()
}

// codeText names an exit code, if a shell has reported it.
func codeText(code *int) string {
	if code == nil {
		return ""
	}
	return fmt.Sprintf(" with code %d", *code)
}
