//go:build linux || darwin

package session

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/screen"
)

// run applies the marks of a command whose output is in the lines from..to.
func (c *commands) run(from, to uint64, between ...screen.Mark) {
	started := screen.Mark{Kind: screen.MarkStarted, Begin: 10 * from, End: 10*from + 1, Place: protocol.LinePlace{Line: from}}
	ended := screen.Mark{Kind: screen.MarkEnded, Begin: 10 * to, End: 10*to + 1, Place: protocol.LinePlace{Line: to}}
	for _, m := range append(append([]screen.Mark{started}, between...), ended) {
		c.apply(screen.Heard{Marks: []screen.Mark{m}}, time.Unix(1, 0))
	}
}

func erasedMark(line uint64) screen.Mark {
	return screen.Mark{Kind: screen.MarkErased, Place: protocol.LinePlace{Line: line}}
}

// A log keeps the last commands, fewer if their texts are long, and always the last one.
func TestCommandLogBounds(t *testing.T) {
	var l commandLog
	for i := range 3 * protocol.MaxCommands {
		l.add(protocol.CommandInfo{Line: "make", Count: uint64(i)})
	}
	if n := len(l); n != protocol.MaxCommands || l[n-1].Count != 3*protocol.MaxCommands-1 {
		t.Errorf("%d commands, the last %+v", n, l[n-1])
	}
	for range 100 {
		l.add(protocol.CommandInfo{Line: strings.Repeat("x", protocol.MaxTitle), Cwd: strings.Repeat("y", protocol.MaxTitle)})
	}
	if n := len(l); n != commandLogText/(2*protocol.MaxTitle) {
		t.Errorf("%d commands with long texts", n)
	}
	l.add(protocol.CommandInfo{Line: strings.Repeat("x", 2*commandLogText)})
	if len(l) != 1 {
		t.Errorf("%d commands beside one that is longer than the bound", len(l))
	}
}

// Lines that were erased do not belong to a command any more, because later output has their
// numbers.
func TestCommandLogErased(t *testing.T) {
	var c commands
	c.run(5, 10)
	c.run(11, 20)
	events, hasChanged := c.apply(screen.Heard{Marks: []screen.Mark{erasedMark(15)}}, time.Unix(1, 0))
	if !hasChanged || len(events) > 0 || c.Log[0].Output.Erased {
		t.Errorf("changed %v, %d events, first command %+v", hasChanged, len(events), c.Log[0].Output)
	}
	want := protocol.CommandOutput{Start: 111, End: 200, From: protocol.LinePlace{Line: 11}, To: protocol.LinePlace{Line: 15}, Erased: true}
	if *c.Log[1].Output != want || *c.Command.Output != want {
		t.Errorf("output %+v, in the info %+v, want %+v", c.Log[1].Output, c.Command.Output, want)
	}
	if _, hasChanged := c.apply(screen.Heard{Marks: []screen.Mark{erasedMark(15)}}, time.Unix(1, 0)); hasChanged {
		t.Error("the same lines are erased again")
	}
	c.run(20, 17, erasedMark(15))
	want = protocol.CommandOutput{Start: 201, End: 201, From: protocol.LinePlace{Line: 15}, To: protocol.LinePlace{Line: 17}, Erased: true}
	if *c.Log[2].Output != want {
		t.Errorf("output of a command that erases the screen %+v, want %+v", c.Log[2].Output, want)
	}
	c.run(18, 17)
	if o := c.Log[3].Output; o.To != o.From {
		t.Errorf("output of a command that moves the cursor up %+v", o)
	}
}

// The log is a part of the state that is saved after each change.
func BenchmarkSaveCommandLog(b *testing.B) {
	v := whole()
	for i := range protocol.MaxCommands {
		c := v.Log[0]
		c.Line, c.Count = "go test -race ./supervisor/internal/session", uint64(i)
		v.Log.add(c)
	}
	for b.Loop() {
		data, err := json.Marshal(v)
		testkit.Must(b, err)
		b.ReportMetric(float64(len(data)), "bytes")
	}
}

// outputOf returns the text of a command's output, oldest line first, read in pages of n lines.
func outputOf(t testing.TB, s *Session, number, n int) (lines []string, truncated bool) {
	t.Helper()
	spec := protocol.HistorySpec{SessionID: s.ID(), Command: number, Lines: n}
	for {
		h, err := s.History(spec)
		if err != nil {
			t.Fatalf("output of command %d: %v", number, err)
		}
		for _, l := range h.Lines {
			text := ""
			for _, span := range l.Spans {
				text += span.Text
			}
			lines = append(lines, text)
			spec.Before = &l.Line
		}
		spec.Command = int(h.Command.Count)
		if !h.More {
			slices.Reverse(lines)
			return lines, h.Truncated
		}
	}
}

// randomOutput returns some lines, the last of which may have no line end.
func randomOutput(r *rand.Rand) (lines []string) {
	for range r.IntN(30) {
		line := ""
		for range r.IntN(12) {
			line += []string{"word", "漢字", "e\u0301", "0123456789", "🙂", "-"}[r.IntN(6)] + strings.Repeat(" ", r.IntN(2))
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// The output of each command has exactly the lines that it printed, at each width at which it is read.
func TestCommandOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		seed := testkit.Seed()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		var want [][]string
		for i := range 100 {
			text := randomOutput(r)
			show(by(s), promptMark+fmt.Sprintf("command %d\r\n", i))
			if r.IntN(5) == 0 { // here, because the line with the cursor is not reflowed, but cut
				testkit.Must(t, s.Resize(protocol.Size{Cols: 20 + r.IntN(100), Rows: 10 + r.IntN(30)}))
			}
			show(by(s), startMark)
			switch {
			case r.IntN(10) == 0: // a full-screen program
				show(by(s), "\x1b[?1049h\x1b[2J\x1b[Hvim\r\n"+strings.Join(text, "\r\n")+"\x1b[?1049l")
				text = nil
			case r.IntN(2) == 0 && len(text) > 0 && text[len(text)-1] != "": // without the last line end
				show(by(s), "\x1b[31m"+strings.Join(text, "\r\n")+"\x1b[m")
			default:
				show(by(s), strings.Join(append(text, ""), "\r\n"))
			}
			show(by(s), endMark(i))
			want = append(want, text)
			number := -1 - r.IntN(len(want))
			if got, truncated := outputOf(t, s, number, 1+r.IntN(20)); !slices.Equal(got, want[len(want)+number]) || truncated {
				t.Fatalf("output of command %d of %d (truncated: %v):\n%q\nwant\n%q", number, len(want), truncated, got, want[len(want)+number])
			}
		}
		if c, err := s.Commands(); err != nil || c.Count != 100 || len(c.Commands) != 100 || *c.Commands[7].ExitCode != 7 {
			t.Errorf("%d of %d commands, %v", len(c.Commands), c.Count, err)
		}
		for _, number := range []int{-101, 101, math.MinInt, math.MaxInt} {
			if _, err := s.History(protocol.HistorySpec{SessionID: s.ID(), Command: number}); protocol.CodeOf(err) != protocol.CodeNotStored {
				t.Errorf("output of command %d: %v", number, err)
			}
		}
	})
}

// If a part of an output has left the history or was erased, the remainder is returned and marked.
func TestCommandOutputTruncated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		spec := bash("")
		spec.ScrollbackLines = 20
		s := create(t, tb, spec)
		f := by(s)
		command := func(output string) { show(f, promptMark+"\r\n"+startMark+output+endMark(0)) }
		command("one\r\ntwo\r\n")
		for i := range 100 {
			show(f, fmt.Sprintf("%d\r\n", i))
		}
		command(strings.Repeat("x\r\n", 10))
		command("\x1b[H\x1b[2Jafter\r\n")
		if got, truncated := outputOf(t, s, 1, 100); len(got) > 0 || !truncated {
			t.Errorf("lines that have left the history: %q, truncated %v", got, truncated)
		}
		if got, truncated := outputOf(t, s, 2, 100); len(got) > 0 || !truncated {
			t.Errorf("erased lines: %q, truncated %v", got, truncated)
		}
		if got, truncated := outputOf(t, s, -1, 100); !slices.Equal(got, []string{"after"}) || !truncated {
			t.Errorf("output of a command that erases the screen: %q, truncated %v", got, truncated)
		}
		command(strings.Repeat("x\r\n", 100))
		if got, truncated := outputOf(t, s, -1, 7); len(got) < 20 || len(got) > 50 || !truncated {
			t.Errorf("%d lines of an output that is longer than the history, truncated %v", len(got), truncated)
		}
		testkit.Must(t, s.Clear(true))
		if got, truncated := outputOf(t, s, -1, 7); len(got) > 0 || !truncated {
			t.Errorf("cleared: %q, truncated %v", got, truncated)
		}
	})
}
