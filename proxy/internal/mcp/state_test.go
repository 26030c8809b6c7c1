package mcp

import (
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
)

// A state is called certain only where the system or the shell has reported it.
func TestFullState(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	code := 2
	exited := func(e protocol.ExitRecord) protocol.SessionInfo {
		return protocol.SessionInfo{State: protocol.StateExited, Exit: &e}
	}
	shell := func(c protocol.CommandInfo) protocol.SessionInfo {
		return protocol.SessionInfo{State: protocol.StateRunning, Command: &c, LastIOAt: now}
	}
	other := protocol.SessionInfo{State: protocol.StateRunning, LastIOAt: now.Add(-90 * time.Second), Foreground: &protocol.Foreground{Name: "ssh"}}
	screen := func(row string, x int, hidden bool) *protocol.ScreenContent {
		return &protocol.ScreenContent{Lines: []string{"above", row}, Cursor: protocol.Cursor{X: x, Y: 1, Hidden: hidden}}
	}
	mode := func(c *protocol.ScreenContent, m protocol.InputMode, full bool) *protocol.ScreenContent {
		c.Input, c.Alternate = m, full
		return c
	}
	reads := protocol.SessionInfo{State: protocol.StateRunning, LastIOAt: now, Foreground: &protocol.Foreground{Name: "cat", Reads: true}}
	printing := protocol.SessionInfo{State: protocol.StateRunning, LastIOAt: now}
	const idle = "; it is idle or computes (not certain): it prints nothing, and nothing tells that it needs input"
	for _, tt := range []struct {
		name    string
		info    protocol.SessionInfo
		content *protocol.ScreenContent
		want    string
	}{
		{"ended", exited(protocol.ExitRecord{ExitCode: 3}), nil, "ended with code 3 (certain)"},
		{"killed", exited(protocol.ExitRecord{ExitCode: 137, Signal: "SIGKILL"}), nil, "ended by SIGKILL (certain)"},
		{"ended unseen", exited(protocol.ExitRecord{ExitCode: -1}), nil, "ended, with a code that is not known (certain)"},
		{"lost", protocol.SessionInfo{State: protocol.StateLost}, nil, "lost with the machine (certain)"},
		{"frozen", protocol.SessionInfo{State: protocol.StateRunning, Frozen: true}, nil, "frozen: all its processes are stopped until it is thawed (certain)"},
		{"first prompt", shell(protocol.CommandInfo{Prompt: true}), nil, "the shell waits for its first command (certain: it reports its prompts)"},
		{
			"a command runs", shell(protocol.CommandInfo{Line: "make", StartedAt: now.Add(-time.Minute)}), nil,
			`"make" has run for 1m0s (certain: the shell reports its commands)`,
		},
		{
			"a command has ended", shell(protocol.CommandInfo{Line: "make", Prompt: true, ExitCode: &code, StartedAt: now.Add(-time.Minute), FinishedAt: now}), nil,
			`"make" ended with code 2 after 1m0s, and the shell waits for a command (certain: it reports them)`,
		},
		{"a question", other, screen("[y/N] ", 6, false), `running "ssh", silent for 1m30s; it may need input (not certain): the cursor is visible behind "[y/N]"`},
		{"a password", other, mode(screen("Password: ", 10, false), protocol.InputHidden, false), `running "ssh", silent for 1m30s; it may need input, for example a password (not certain): the terminal collects a line that it does not show; the cursor is behind "Password:"`},
		{"a full screen", other, mode(screen("", 0, false), protocol.InputKeys, true), `running "ssh", silent for 1m30s; it may need input (not certain): it fills the screen, and gets each key`},
		{"a read", reads, screen("name? ", 6, false), `needs input (certain: the system reports that the job of "cat" reads the terminal); the cursor is behind "name?"`},
		{"a read of a password", reads, mode(screen("", 0, true), protocol.InputHidden, false), `needs input that the terminal does not show, as a password (certain: the system reports that the job of "cat" reads the terminal)`},
		{"a read in a list", reads, nil, `needs input (certain: the system reports that the job of "cat" reads the terminal)`},
		{"a hidden cursor", other, screen("Password: ", 10, true), `running "ssh", silent for 1m30s` + idle},
		{"no question", other, screen("linking", 7, false), `running "ssh", silent for 1m30s` + idle},
		{"output", printing, screen("linking", 7, false), `running its program, silent for less than a second`},
		{"a cursor at the left", other, screen("$ ", 0, false), `running "ssh", silent for 1m30s` + idle},
		{"a cursor behind the row", other, screen("$", 40, false), `running "ssh", silent for 1m30s; it may need input (not certain): the cursor is visible behind "$"`},
		{"no screen", other, nil, `running "ssh", silent for 1m30s`},
		{"a screen without rows", other, &protocol.ScreenContent{Cursor: protocol.Cursor{Y: 5}}, `running "ssh", silent for 1m30s` + idle},
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
		Rows:     []protocol.ChangedRows{{Row: 3, Texts: []string{"x", "y"}}},
		Commands: []protocol.ChangedCommand{{Count: 7, Line: "ls\n", DurationMS: 1500}},
	})
	want := "lines 1 to 4 are left out; read them: history with before 5 and lines 4\na?[2Jb\nc?d\nrow 3:x\nrow 4:y\n" +
		"2 rows are left out; read them: screen\ncommand 7 ended after 1.5s: ls?\n"
	if got := all.String(); got != want {
		t.Errorf("%q\n%q", got, want)
	}
	lines := strings.Split(strings.Repeat("0123456789 ", 9)+"0", " ")
	kept, cut := lastLines(lines, 33)
	if len(kept) != 3 || cut != 7 {
		t.Errorf("%d lines of 33 bytes, and %d cut", len(kept), cut)
	}
}
