package mcp

import (
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
)

// cells returns rows of a screen. A row that begins with "+" continues the row above.
func cells(rows ...string) (all []protocol.ScreenLine) {
	for _, text := range rows {
		text, isWrapped := strings.CutPrefix(text, "+")
		row := protocol.ScreenLine{Wrapped: isWrapped}
		for _, r := range text {
			cell := protocol.ScreenCell{Text: string(r)}
			if r == '世' {
				cell.Width = 2
			}
			row.Cells = append(row.Cells, cell)
		}
		all = append(all, row)
	}
	return all
}

// Rows that were wrapped are one line, and the place of the cursor is in that line.
func TestShown(t *testing.T) {
	c := &protocol.ScreenContent{Cols: 4, Rows: 6, Cells: cells("a世", "+bc", "+d  e", "", "ok> ", "+xy")}
	want := []string{"a世 bc  d  e", "", "ok> xy"}
	for _, tt := range []struct {
		cursor       protocol.Cursor
		line, column int
		before       string
	}{
		{protocol.Cursor{X: 3, Y: 0}, 0, 3, "a世"}, {protocol.Cursor{X: 2, Y: 0}, 0, 2, "a"}, {protocol.Cursor{X: 4, Y: 2}, 0, 12, "d  e"},
		{protocol.Cursor{X: 2, Y: 3}, 1, 2, ""}, {protocol.Cursor{X: 2, Y: 4}, 2, 2, "ok"}, {protocol.Cursor{X: 1, Y: 5}, 2, 5, "x"},
		{protocol.Cursor{X: 1, Y: 5, Hidden: true}, 2, 5, ""}, {protocol.Cursor{X: 1, Y: 9}, 9, 1, ""},
	} {
		c.Cursor = tt.cursor
		got := newShown(c)
		if !slices.Equal(got.lines, want) || got.line != tt.line || got.column != tt.column || got.before != tt.before {
			t.Errorf("with the cursor at %+v: %q, cursor at %d of line %d behind %q", tt.cursor, got.lines, got.column, got.line, got.before)
		}
	}
	if c.Truncated, c.Cursor = true, (protocol.Cursor{X: 2, Y: 4}); newShown(c).before != "" {
		t.Error("the place of the cursor is not known if rows are missing")
	}
}

// A state that neither the system nor the shell has reported is one that may be.
func TestFullState(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	code := 2
	exited := func(e protocol.ExitRecord) protocol.SessionInfo {
		return protocol.SessionInfo{State: protocol.StateExited, Exit: &e}
	}
	shell := func(c protocol.CommandInfo) protocol.SessionInfo {
		return protocol.SessionInfo{State: protocol.StateRunning, Command: &c, LastIOAt: now}
	}
	percent := 40
	reports := func(c protocol.CommandInfo, p protocol.ProgramStatus) protocol.SessionInfo {
		s := shell(c)
		s.Program = &p
		return s
	}
	other := protocol.SessionInfo{State: protocol.StateRunning, LastIOAt: now.Add(-90 * time.Second), Foreground: &protocol.Foreground{PID: 2, Name: "ssh"}, PID: 1}
	screen := func(row string, x int, hidden bool) *shown {
		return newShown(&protocol.ScreenContent{Cols: 80, Rows: 24, Cells: cells("above", row), Cursor: protocol.Cursor{X: x, Y: 1, Hidden: hidden}})
	}
	mode := func(v *shown, m protocol.InputMode, full bool) *shown {
		v.input, v.isAlternate = m, full
		return v
	}
	reads := protocol.SessionInfo{State: protocol.StateRunning, LastIOAt: now, Foreground: &protocol.Foreground{Name: "cat", Reads: true}}
	asks := func(silence time.Duration) protocol.SessionInfo {
		s := shell(protocol.CommandInfo{Line: "apt", StartedAt: now.Add(-time.Minute)})
		s.LastIOAt = now.Add(-silence)
		return s
	}
	printing := protocol.SessionInfo{State: protocol.StateRunning, LastIOAt: now}
	const idle = "; may be idle or compute"
	for _, tt := range []struct {
		name    string
		info    protocol.SessionInfo
		content *shown
		want    string
	}{
		{"ended", exited(protocol.ExitRecord{ExitCode: 3}), nil, "ended with code 3"},
		{"killed", exited(protocol.ExitRecord{ExitCode: 137, Signal: "SIGKILL"}), nil, "ended by SIGKILL"},
		{"ended unseen", exited(protocol.ExitRecord{ExitCode: -1}), nil, "ended, with a code that is not known"},
		{"lost", protocol.SessionInfo{State: protocol.StateLost}, nil, "lost with the machine"},
		{"frozen", protocol.SessionInfo{State: protocol.StateRunning, Frozen: true}, nil, "frozen: all its processes are stopped until it is thawed"},
		{
			"a report", protocol.SessionInfo{State: protocol.StateRunning, Program: &protocol.ProgramStatus{State: protocol.ProgramBlocked, Kind: "permission", App: "agent", Message: "Deploy?", At: now.Add(-time.Minute)}}, nil,
			`"agent" reports: blocked (permission), "Deploy?", for 1m0s`,
		},
		{"a report of the command before", reports(protocol.CommandInfo{StartedAt: now}, protocol.ProgramStatus{State: protocol.ProgramDone, At: now.Add(-time.Minute)}), nil, `the command runs`},
		{"a report of work", reports(protocol.CommandInfo{StartedAt: now.Add(-time.Minute)}, protocol.ProgramStatus{State: protocol.ProgramWorking, Progress: &percent, At: now}), nil, `the program reports: working, 40 %`},
		{"first prompt", shell(protocol.CommandInfo{Prompt: true}), nil, "the shell waits for its first command"},
		{
			"a command runs", shell(protocol.CommandInfo{Line: "make", StartedAt: now.Add(-time.Minute)}), nil,
			`"make" runs for 1m0s`,
		},
		{
			"a command of the agent", shell(protocol.CommandInfo{ExitCode: &code, StartedAt: now, FinishedAt: now}), nil,
			`the command ended with code 2`,
		},
		{
			"a command has ended", shell(protocol.CommandInfo{Line: "make", Prompt: true, ExitCode: &code, StartedAt: now.Add(-time.Minute), FinishedAt: now}), nil,
			`"make" ended with code 2 after 1m0s, the shell waits`,
		},
		{"a question", other, screen("[y/N] ", 6, false), `running "ssh", silent for 1m30s; may need input, cursor behind "[y/N]"`},
		{"a password", other, mode(screen("Password: ", 10, false), protocol.InputHidden, false), `running "ssh", silent for 1m30s; may need input, for example a password: the terminal hides it, cursor behind "Password:"`},
		{"a full screen", other, mode(screen("", 0, false), protocol.InputKeys, true), `running "ssh", silent for 1m30s; may need input: it fills the screen and gets each key`},
		{"keys", other, mode(screen("~ x", 3, false), protocol.InputKeys, false), `running "ssh", silent for 1m30s; may need input: it gets each key, cursor behind "~ x"`},
		{"keys, and output", printing, mode(screen("linking", 7, false), protocol.InputKeys, false), `running`},
		{"a command that asks", asks(time.Second), screen("[y/N]", 5, false), `"apt" runs for 1m0s`},
		{"a command that has asked for long", asks(3 * time.Second), screen("[y/N]", 5, false), `"apt" runs for 1m0s; may need input, cursor behind "[y/N]"`},
		{"a command that reports progress", asks(3 * time.Second), screen("45 %", 4, false), `"apt" runs for 1m0s`},
		{"a command that edits a line", asks(time.Second), mode(screen(">>>", 3, false), protocol.InputKeys, false), `"apt" runs for 1m0s; may need input, cursor behind ">>>"`},
		{"a command that fills the screen", asks(time.Second), mode(screen("", 0, false), protocol.InputKeys, true), `"apt" runs for 1m0s; may need input: it fills the screen and gets each key`},
		{"a command that prints", asks(0), mode(screen(">>>", 3, false), protocol.InputKeys, false), `"apt" runs for 1m0s`},
		{"a read", reads, screen("name? ", 6, false), `needs input: it reads the terminal, cursor behind "name?"`},
		{"a read of a password", reads, mode(screen("", 0, true), protocol.InputHidden, false), `needs input that the terminal hides, as a password: it reads the terminal`},
		{"a read in a list", reads, nil, `needs input: it reads the terminal`},
		{"a hidden cursor", other, screen("Password: ", 10, true), `running "ssh", silent for 1m30s` + idle},
		{"no question", other, screen("linking", 7, false), `running "ssh", silent for 1m30s` + idle},
		{"output", printing, screen("linking", 7, false), `running`},
		{"a cursor at the left", other, screen("$ ", 0, false), `running "ssh", silent for 1m30s` + idle},
		{"a cursor behind the row", other, screen("$", 40, false), `running "ssh", silent for 1m30s; may need input, cursor behind "$"`},
		{"no screen", other, nil, `running "ssh", silent for 1m30s`},
		{"a screen without rows", other, newShown(&protocol.ScreenContent{Cursor: protocol.Cursor{Y: 5}}), `running "ssh", silent for 1m30s` + idle},
	} {
		if got := fullState(&tt.info, tt.content, now); got != tt.want {
			t.Errorf("%s:\n%s\n%s", tt.name, got, tt.want)
		}
	}
}

// No answer contains a control character of a program, and none is larger than its limit and the notes.
func TestText(t *testing.T) {
	var all text
	all.changes(&protocol.ChangesContent{
		LeftOut: &protocol.LineRange{First: 1, End: 5}, LeftOutRows: 2,
		Lines:    []protocol.ChangedLines{{Line: 5, Texts: []string{"a\x1b[2Jb", "c\u202ed"}}},
		Rows:     []protocol.ChangedRows{{Row: 3, Texts: []string{"x", "y"}}, {Row: 9, Texts: []string{"z"}}},
		Commands: []protocol.ChangedCommand{{Count: 7, Line: "ls\n", DurationMS: 1500}},
	}, exchange{})
	want := "lines 1 to 4 are left out; read them: history with before 5 and lines 4\na?[2Jb\nc?d\nrows 3 to 4:\nx\ny\nrow 9: z\n" +
		"2 rows are left out; read them: screen\ncommand 7 ended after 1.5s: ls?"
	if got := all.String(); got != want {
		t.Errorf("%q\n%q", got, want)
	}
	lines := strings.Split(strings.Repeat("0123456789 ", 9)+"0", " ")
	for room, want := range map[int]string{
		99:  "the first 1 lines are left out\n" + strings.Join(lines[1:], "\n"),
		101: strings.Join(lines, "\n"),
		24:  "the first 7 lines are left out\n0123456789\n0123456789\n0",
		2:   "the first 9 lines are left out\n0",
	} {
		var t2 text
		t2.lastLines(lines, room)
		if got := t2.String(); got != want {
			t.Errorf("in %d bytes: %q, want %q", room, got, want)
		}
	}
	var long text
	long.lastLines([]string{"first", "0123456789"}, 10) // one byte less than the line takes with its end
	if want := "the first 1 lines are left out\n012345678\nthe rest of the line is left out"; long.String() != want {
		t.Errorf("%q, want %q", long.String(), want)
	}
}

// An answer lacks only what the agent knows: the echo of what it has typed, and a prompt. It has blank lines that are new, but
// none for lines that have not changed.
func TestExchange(t *testing.T) {
	lines := func(first uint64, texts ...string) protocol.ChangedLines {
		return protocol.ChangedLines{Line: first, Texts: texts}
	}
	commands := []protocol.ChangedCommand{{Count: 1, Line: "false"}, {Count: 2, Line: "ls"}}
	for _, tt := range []struct {
		name string
		r    protocol.ChangesContent
		e    exchange
		want string
	}{
		{"a command", protocol.ChangesContent{Lines: []protocol.ChangedLines{lines(4, "~$ ls", "a", "~$")}}, exchange{next: 5, prompt: "~$", typed: "ls", told: "~$"}, "a"},
		{"another prompt", protocol.ChangesContent{Lines: []protocol.ChangedLines{lines(4, "~$ cd src", "~/src$")}}, exchange{next: 5, prompt: "~$", typed: "cd src"}, "~/src$"},
		{"output that is the echo again", protocol.ChangesContent{Lines: []protocol.ChangedLines{lines(4, "> ls", "> ls")}}, exchange{prompt: ">", typed: "ls"}, "> ls"},
		{"no prompt before the echo", protocol.ChangesContent{Lines: []protocol.ChangedLines{lines(4, "secret")}}, exchange{typed: "secret"}, "secret"},
		{"a hidden answer that is printed", protocol.ChangesContent{Lines: []protocol.ChangedLines{lines(5, "secret")}}, exchange{prompt: "Password:", typed: "secret"}, "secret"},
		{"new blank lines", protocol.ChangesContent{Lines: []protocol.ChangedLines{lines(5, "a"), lines(7, "b"), lines(17, "c")}}, exchange{next: 5}, "a\n\nb\n\n\nc"},
		{"lines that have not changed", protocol.ChangesContent{Lines: []protocol.ChangedLines{lines(2, "a"), lines(7, "b")}}, exchange{next: 6}, "a\n\nb"},
		{"the whole screen", protocol.ChangesContent{Whole: true, From: 9, Lines: []protocol.ChangedLines{lines(10, "a"), lines(12, "b")}}, exchange{next: 3}, "a\n\nb"},
		{"more than the screen", protocol.ChangesContent{Whole: true, From: 9, LeftOut: &protocol.LineRange{First: 9, End: 11}, LineNumbers: protocol.LineNumbers{First: 1}, Lines: []protocol.ChangedLines{lines(11, "a")}}, exchange{}, "earlier lines are left out; read them: history with before 11\na"},
		{"more than history answers at once", protocol.ChangesContent{LeftOut: &protocol.LineRange{First: 9, End: 3009}}, exchange{}, "lines 9 to 3008 are left out; read them: history with before 3009 and lines 1000"},
		{"a line that goes on", protocol.ChangesContent{Lines: []protocol.ChangedLines{{Line: 4, Texts: []string{"a"}, Cut: true}, lines(5, "b")}}, exchange{}, "a\nthe rest of line 4 is left out; read more: history with before 5, lines 1 and max_bytes 65536\nb"},
		{"a full screen", protocol.ChangesContent{Rows: []protocol.ChangedRows{{Row: 0, Texts: []string{":"}}, {Row: 8, Texts: []string{"x", ":"}}}}, exchange{told: ":"}, "row 0: :\nrow 8: x"},
		{"a row that the state tells", protocol.ChangesContent{Rows: []protocol.ChangedRows{{Row: 9, Texts: []string{":"}}}}, exchange{told: ":"}, ""},
		{"an earlier command", protocol.ChangesContent{Commands: commands}, exchange{ended: 2}, "command 1 ended after 0s: false"},
	} {
		var got text
		got.changes(&tt.r, tt.e)
		if got.String() != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got.String(), tt.want)
		}
	}
}
