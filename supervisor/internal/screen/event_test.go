package screen

import (
	"fmt"
	"strings"
	"testing"

	"holdfast/protocol"
)

// commandPlaces writes output in pieces of n bytes, and returns the places of its command.
func commandPlaces(t *testing.T, output string, n int) (started, ended Mark) {
	t.Helper()
	s := New(protocol.Size{Cols: 10, Rows: 5}, 100)
	var marks []Mark
	for p := []byte(output); len(p) > 0; p = p[min(n, len(p)):] {
		s.Write(p[:min(n, len(p))])
		h, _ := s.Heard()
		marks = append(marks, h.Marks...)
	}
	for _, m := range marks {
		switch m.Kind {
		case MarkStarted:
			started = m
		case MarkEnded:
			ended = m
		}
	}
	return started, ended
}

// The marks of a command have the same offsets and places however the output is cut into pieces,
// with each terminator of the sequence.
func TestCommandPlaces(t *testing.T) {
	for _, end := range []string{"\a", "\x1b\\", "\u009c"} {
		start, over := "\x1b]133;C"+end, "\x1b]133;D;0"+end
		before, text := "one\r\n$ make\r\n", "a long line that wraps\r\n漢字漢字漢字漢字"
		output := before + start + text + over + "$ "
		for n := 1; n <= len(output); n++ {
			started, ended := commandPlaces(t, output, n)
			from, to := uint64(len(before)+len(start)), uint64(len(before)+len(start)+len(text))
			if got, want := fmt.Sprint(started.End, started.Place, ended.Begin, ended.Place), fmt.Sprint(from, protocol.LinePlace{Line: 2}, to, protocol.LinePlace{Line: 3, Byte: 24}); got != want {
				t.Errorf("end %q, pieces of %d: %s, want %s", end, n, got, want)
			}
		}
	}
}

// A line that begins above the screen belongs to the output before the place as a whole.
func TestPlaceInHistory(t *testing.T) {
	text := strings.Repeat("0123456789 x ", 20)
	started, ended := commandPlaces(t, "\x1b]133;C\a"+text+"\x1b]133;D;0\a", 1<<20)
	if want := (protocol.LinePlace{Line: 1}); started.Place != (protocol.LinePlace{}) || ended.Place != want {
		t.Errorf("from %v to %v, want to %v", started.Place, ended.Place, want)
	}
}

// An erased screen is reported in order with the commands, also if it is erased many times, or if
// there are so many marks that some are dropped.
func TestErasedMarks(t *testing.T) {
	s := New(protocol.Size{Cols: 10, Rows: 5}, 100)
	s.Write([]byte("\x1b]133;C\a" + strings.Repeat("\x1b[2J", 50) + "\x1b]133;D\a"))
	h, _ := s.Heard()
	if len(h.Marks) != 3 || h.Marks[1].Kind != MarkErased {
		t.Fatalf("marks %+v", h.Marks)
	}
	s.Write([]byte("\x1b[2J" + strings.Repeat("\x1b]133;C\a\x1b]133;D\a", maxMarks)))
	if h, _ = s.Heard(); h.Marks[0].Kind != MarkErased || h.Ended == 0 {
		t.Errorf("%d marks, the first %+v; %d ended commands are missing", len(h.Marks), h.Marks[0], h.Ended)
	}
}
