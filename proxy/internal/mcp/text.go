package mcp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/shared/plain"
)

// A text is an answer for a model. It contains no control characters except line feeds.
type text struct {
	strings.Builder
	leftOut bool // it tells how to read lines that it has left out
}

func (t *text) line(format string, args ...any) {
	t.WriteString(plain.Text(fmt.Sprintf(format, args...)))
	t.WriteByte('\n')
}

// String returns the text without the line feed at its end.
func (t *text) String() string { return strings.TrimSuffix(t.Builder.String(), "\n") }

func (t *text) lines(all []string) {
	for _, l := range all {
		t.line("%s", l)
	}
}

// maxBlank is the largest number of consecutive blank lines in an answer. The session counts three bytes for each line
// besides its text, so that the blank lines before it have room.
const maxBlank = 2

// An exchange has the texts that the agent has read and typed before an answer. The answer need not repeat them.
type exchange struct {
	next   uint64 // number after that of the last line that the agent has read
	seen   seen
	prompt string // text before the cursor in the last answer
	typed  string // line that the agent has typed since, and ended with Enter
	told   string // text before the cursor, if the answer tells it before the changes
	ended  uint64 // number of the command of which the answer tells the end before the changes
}

// changes adds the changes of a session, except for the echo of the text that the agent has typed, and for a prompt that it
// knows. Rows of a full-screen program have their numbers, because only some of them have changed.
func (t *text) changes(r *protocol.ChangesContent, e exchange) {
	if r.Whole { // the agent reads the whole screen anew
		e.seen = seen{}
	}
	switch left := r.LeftOut; {
	case left == nil:
	case r.Whole && r.From > r.First:
		t.earlierLines(left.End)
	default:
		t.leftOut = true
		t.line("lines %d to %d are left out; read them: history with before %d and lines %d", left.First, left.End-1, left.End, min(left.End-left.First, protocol.MaxHistoryLines))
	}
	t.changedLines(r, e)
	for i, l := range r.Rows {
		texts := l.Texts
		if i == len(r.Rows)-1 {
			texts = withoutPrompt(texts, e.told)
		}
		switch len(texts) {
		case 0:
		case 1:
			t.line("row %d: %s", l.Row, texts[0])
		default:
			t.line("rows %d to %d:", l.Row, l.Row+len(texts)-1)
			for len(texts) > 0 {
				texts = texts[t.firstLines(texts, moved(e.seen.rows, texts)):]
			}
		}
	}
	if r.LeftOutRows > 0 {
		t.leftOut = true
		t.line("%d rows are left out; read them: screen", r.LeftOutRows)
	}
	for _, c := range r.Commands {
		if c.Count != e.ended {
			t.line("command %d ended%s after %v: %s", c.Count, codeText(c.ExitCode), time.Duration(c.DurationMS)*time.Millisecond, c.Line)
		}
	}
}

// changedLines adds the lines that have changed. A reply lacks new lines that are blank, so changedLines adds those between
// others, at most maxBlank together.
func (t *text) changedLines(r *protocol.ChangesContent, e exchange) {
	known := e.next
	if r.Whole {
		known = r.From
	}
	end, echoed := uint64(0), false // end is the number after that of the last line that was added; 0 is none
	for i, l := range r.Lines {
		texts := l.Texts
		if i == len(r.Lines)-1 {
			texts = withoutPrompt(texts, e.told)
		}
		for j := 0; j < len(texts); {
			line, number := texts[j], l.Line+uint64(j)
			if !echoed && e.isEcho(line) {
				echoed = true
				j++
				continue
			}
			if from := max(end, known); end > 0 && number > from {
				for range min(number-from, maxBlank) {
					t.line("")
				}
			}
			movedCount := 0
			if number < known { // a new line is always repeated
				inPlace := texts[j:min(uint64(len(texts)), known-l.Line)]
				movedCount = moved(e.seen.lines, inPlace)
			}
			j += t.firstLines(texts[j:], movedCount)
			end = l.Line + uint64(j)
			if l.Cut {
				t.rest(l.Line, 0)
			}
		}
	}
}

// minEqual is the smallest number of equal consecutive lines that an answer does not repeat.
const minEqual = 4

// firstLines adds the first line. If the first movedCount lines have only moved, it adds the first and the last of them, with a
// remark between. If the first lines are equal, it adds a remark. It returns the number of lines that this stands for.
func (t *text) firstLines(lines []string, movedCount int) int {
	t.line("%s", lines[0])
	if movedCount > 0 {
		t.line("(%d lines as before)", movedCount-2)
		t.line("%s", lines[movedCount-1])
		return movedCount
	}
	equal := 1
	for equal < len(lines) && lines[equal] == lines[0] {
		equal++
	}
	if equal < minEqual {
		return 1
	}
	t.line("(%d more equal lines)", equal-1)
	return equal
}

// isEcho reports whether a line is the prompt that the agent has read, and behind it the line that it has typed.
func (e exchange) isEcho(line string) bool {
	behind, ok := strings.CutPrefix(line, e.prompt)
	return ok && e.prompt != "" && e.typed != "" && strings.TrimSpace(behind) == e.typed
}

// withoutPrompt returns the lines without the last one if that is a prompt.
func withoutPrompt(lines []string, prompt string) []string {
	if n := len(lines); n > 0 && prompt != "" && strings.TrimSpace(lines[n-1]) == prompt {
		return lines[:n-1]
	}
	return lines
}

// hasLine reports whether a reply contains a line or row with this text.
func hasLine(r *protocol.ChangesContent, line string) bool {
	for _, l := range r.Lines {
		if slices.Contains(l.Texts, line) {
			return true
		}
	}
	for _, l := range r.Rows {
		if slices.Contains(l.Texts, line) {
			return true
		}
	}
	return false
}

// earlier adds the newest lines of a history that fit into a number of bytes, and how to read the lines before them. If not
// even the newest line fits, earlier adds its beginning, because the agent could not read the lines before it otherwise.
func (t *text) earlier(h *protocol.HistoryContent, room int) {
	var lines []string
	for _, l := range slices.Backward(h.Lines) {
		lines = append(lines, l.Text())
	}
	isCut := len(lines) > 0 && h.Lines[0].Cut
	n := fitting(lines, room)
	if n == 0 && len(lines) > 0 {
		last := &lines[len(lines)-1]
		*last, n, isCut = plain.Cut(*last, room-1), 1, true
	}
	if n < len(lines) || h.More {
		first := uint64(0)
		if n > 0 {
			first = h.Lines[n-1].Line
		}
		t.earlierLines(first)
	}
	t.lines(lines[len(lines)-n:])
	if isCut {
		t.rest(h.Lines[0].Line, room)
	}
}

// fitting returns how many of the last lines fit into a number of bytes.
func fitting(lines []string, room int) (n int) {
	for _, l := range slices.Backward(lines) {
		if room -= len(l) + 1; room < 0 {
			break
		}
		n++
	}
	return n
}

// rest adds that a line goes on, and how to read more of it if the answer had less room than it could have.
func (t *text) rest(line uint64, room int) {
	t.leftOut = true
	more := ""
	if room < MaxBytes {
		more = fmt.Sprintf("; read more: history with before %d, lines 1 and max_bytes %d", line+1, MaxBytes)
	}
	t.line("the rest of line %d is left out%s", line, more)
}

// earlierLines adds how to read the lines before one.
func (t *text) earlierLines(before uint64) {
	t.leftOut = true
	t.line("earlier lines are left out; read them: history with before %d", before)
}

// sizeOf returns the number of bytes of lines.
func sizeOf(lines []string) (size int) {
	for _, l := range lines {
		size += len(l) + 1
	}
	return size
}

// lastLines adds the last lines that fit into a number of bytes, or the beginning of the last one if not even that fits, and
// tells what it has left out.
func (t *text) lastLines(all []string, room int) {
	first := len(all) - fitting(all, room)
	isCut := first == len(all) && first > 0
	if isCut {
		first--
	}
	if first > 0 {
		t.line("the first %d lines are left out", first)
	}
	if isCut {
		t.line("%s", plain.Cut(all[first], room-1)) // as fitting counts it
		t.line("the rest of the line is left out")
		return
	}
	t.lines(all[first:])
}

// codeText names an exit code, if a shell has reported it.
func codeText(code *int) string {
	if code == nil {
		return ""
	}
	return fmt.Sprintf(" with code %d", *code)
}
