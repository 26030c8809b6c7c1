package mcp

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/echo"
)

type listInput struct{}

func (s *server) list(ctx context.Context, _ listInput) (string, error) {
	all, err := s.Client.List(ctx, "")
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "there are no sessions", nil
	}
	var t text
	for i := range all {
		if t.Len() > MaxBytes {
			t.line("%d further sessions are left out", len(all)-i)
			break
		}
		t.line("%s: %s", all[i].ID, shortState(&all[i], time.Now()))
	}
	return t.String(), nil
}

type readInput struct {
	Session  string `json:"session" jsonschema:"id of the session"`
	Whole    bool   `json:"whole,omitempty" jsonschema:"begin anew with the whole screen"`
	MaxBytes int    `json:"max_bytes,omitempty" jsonschema:"largest size of the new text, default 4096, at most 65536; the newest lines are kept"`
}

func (s *server) readNew(ctx context.Context, in readInput) (string, error) {
	id := protocol.SessionID(in.Session)
	if in.Whole {
		was := s.reading(id)
		s.setReading(id, reading{bells: was.bells})
	}
	return s.news(ctx, id, "", in.MaxBytes)
}

type screenInput struct {
	Session  string `json:"session" jsonschema:"id of the session"`
	MaxBytes int    `json:"max_bytes,omitempty" jsonschema:"largest size of the text, default 4096, at most 65536; the lowest rows are kept"`
}

func (s *server) screen(ctx context.Context, in screenInput) (string, error) {
	id := protocol.SessionID(in.Session)
	content, err := s.Client.Screen(ctx, id, client.ScreenOptions{})
	if err != nil {
		return "", err
	}
	info, err := s.Client.SessionInfo(ctx, id)
	if err != nil {
		return "", err
	}
	var t text
	t.line("%s: %s", id, fullState(info, content, time.Now()))
	t.line("%d columns, %d rows; cursor at column %d of row %d, from 0", content.Cols, content.Rows, content.Cursor.X, content.Cursor.Y)
	lines, cut := lastLines(content.Lines, limitBytes(in.MaxBytes))
	if cut > 0 {
		t.line("the first %d rows are left out", cut)
	}
	t.lines(lines)
	return t.String(), nil
}

type historyInput struct {
	Session  string `json:"session" jsonschema:"id of the session"`
	Before   uint64 `json:"before,omitempty" jsonschema:"only lines before the line with this number; default the lines above the screen"`
	Lines    int    `json:"lines,omitempty" jsonschema:"how many lines, default 100"`
	Command  int    `json:"command,omitempty" jsonschema:"the output of a command instead: -1 is the last one that has ended, -2 the one before"`
	MaxBytes int    `json:"max_bytes,omitempty" jsonschema:"largest size of the text, default 4096, at most 65536; the newest lines are kept"`
}

func (s *server) history(ctx context.Context, in historyInput) (string, error) {
	if in.Lines < 0 || in.Lines > protocol.MaxHistoryLines {
		return "", protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("lines must be at least 0 and at most %d", protocol.MaxHistoryLines))
	}
	o := client.HistoryOptions{Lines: in.Lines, Command: in.Command}
	if in.Before > 0 {
		o.Before = &in.Before
	}
	if in.Command != 0 && in.Lines == 0 {
		o.Lines = protocol.MaxHistoryLines
	}
	h, err := s.Client.History(ctx, protocol.SessionID(in.Session), o)
	if err != nil {
		return "", err
	}
	var t text
	if c := h.Command; c != nil {
		t.line("command %d: %s", c.Count, commandState(c, time.Now()))
	}
	left := limitBytes(in.MaxBytes)
	var lines []string // the newest first, as in h
	for _, l := range h.Lines {
		text := lineText(l)
		if left -= len(text) + 1; left < 0 {
			break
		}
		lines = append(lines, text)
	}
	if n := len(lines); n < len(h.Lines) || h.More {
		first := uint64(0)
		if n > 0 {
			first = h.Lines[n-1].Line
		} else if len(h.Lines) > 0 {
			first = h.Lines[0].Line + 1
		}
		t.line("earlier lines are left out; read them: history with before %d", first)
	}
	for i := len(lines) - 1; i >= 0; i-- {
		t.line("%s", lines[i])
	}
	return t.String(), nil
}

const (
	// shellTime is how long a new shell may take until it reports its first prompt.
	shellTime = 5 * time.Second
	// settled is how long a program must have printed nothing after input until its answer counts as
	// complete, if neither the program nor the caller tells more.
	settled = 500 * time.Millisecond
)

// notEnded is the remark of an answer if a session should have ended.
const notEnded = "the time is over, and it has not ended"

type waitInput struct {
	Session  string  `json:"session" jsonschema:"id of the session"`
	Text     string  `json:"text,omitempty" jsonschema:"wait for a line that this regular expression (RE2) matches, also if it is on the screen already"`
	Prompt   bool    `json:"prompt,omitempty" jsonschema:"wait until the shell waits for a command; only for shells that report it"`
	IdleMS   int64   `json:"idle_ms,omitempty" jsonschema:"wait until nothing has been printed for so many milliseconds"`
	TimeoutS float64 `json:"timeout_s,omitempty" jsonschema:"give up after so many seconds, default 30, at most 600; the session continues"`
	MaxBytes int     `json:"max_bytes,omitempty" jsonschema:"largest size of the new text, default 4096, at most 65536"`
}

func (s *server) wait(ctx context.Context, in waitInput) (string, error) {
	id := protocol.SessionID(in.Session)
	timeout, err := timeLimit(in.TimeoutS)
	if err != nil {
		return "", err
	}
	if in.Text == "" && !in.Prompt && in.IdleMS == 0 {
		_, err = s.Client.Wait(ctx, id, timeout)
		return s.newsAfter(ctx, id, notEnded, in.MaxBytes, err)
	}
	found, err := s.Client.Await(ctx, protocol.AwaitSpec{SessionID: id, Text: in.Text, Prompt: in.Prompt, IdleMS: in.IdleMS}, timeout)
	return s.awaited(ctx, id, found, in.MaxBytes, err)
}

type runInput struct {
	Command  string   `json:"command,omitempty" jsonschema:"the command line, for sh; absent: the user's shell, which waits for commands by send"`
	Session  string   `json:"session,omitempty" jsonschema:"id of the new session, for people who look at it; default a random one"`
	Cwd      string   `json:"cwd,omitempty" jsonschema:"absolute path of the directory"`
	Env      []string `json:"env,omitempty" jsonschema:"variables as NAME=VALUE, added to those of the user"`
	TimeoutS float64  `json:"timeout_s,omitempty" jsonschema:"wait for the end for so many seconds, default 30, at most 600"`
	MaxBytes int      `json:"max_bytes,omitempty" jsonschema:"largest size of the output, default 4096, at most 65536; the newest lines are kept"`
}

func (s *server) run(ctx context.Context, in runInput) (string, error) {
	timeout, err := timeLimit(in.TimeoutS)
	if err != nil {
		return "", err
	}
	spec := protocol.SpawnSpec{Cwd: cmp.Or(in.Cwd, s.Cwd), Env: in.Env, Cols: 120, Rows: 40, Originator: originator, Unattended: true}
	isShell := in.Command == ""
	if !isShell {
		spec.Argv = []string{"/bin/sh", "-c", in.Command}
	}
	noWatch := time.Duration(0) // a command may end at once
	started, err := s.Client.Spawn(ctx, client.SpawnRequest{ID: protocol.SessionID(in.Session), SpawnSpec: spec, EarlyExit: &noWatch, ShellIntegration: isShell})
	if err != nil {
		return "", err
	}
	id := started.SessionID
	if isShell { // bash, zsh and fish report their prompts, and other shells do not
		_, err := s.Client.Await(ctx, protocol.AwaitSpec{SessionID: id, Prompt: true}, min(timeout, shellTime))
		return s.newsAfter(ctx, id, "", in.MaxBytes, err)
	}
	_, err = s.Client.Wait(ctx, id, timeout)
	return s.newsAfter(ctx, id, notEnded, in.MaxBytes, err)
}

type sendInput struct {
	Session  string   `json:"session" jsonschema:"id of the session"`
	Text     string   `json:"text,omitempty" jsonschema:"text to type; text with line breaks is pasted"`
	Keys     []string `json:"keys,omitempty" jsonschema:"keys to press after the text, in order: Enter, Tab, Escape, Up, PageDown, F1, C-c, M-x"`
	Enter    bool     `json:"enter,omitempty" jsonschema:"press Enter after the text and the keys"`
	WaitText string   `json:"wait_text,omitempty" jsonschema:"wait for a new line that this regular expression (RE2) matches; the echo of the text does not count"`
	IdleMS   int64    `json:"idle_ms,omitempty" jsonschema:"wait until nothing has been printed for so many milliseconds; default: wait until the shell waits for a command if it reports that, else 500"`
	TimeoutS float64  `json:"timeout_s,omitempty" jsonschema:"give up waiting after so many seconds, default 30, at most 600"`
	MaxBytes int      `json:"max_bytes,omitempty" jsonschema:"largest size of the new text, default 4096, at most 65536"`
}

func (s *server) send(ctx context.Context, in sendInput) (string, error) {
	id := protocol.SessionID(in.Session)
	timeout, err := timeLimit(in.TimeoutS)
	if err != nil {
		return "", err
	}
	if in.Enter {
		in.Keys = append(in.Keys, "Enter")
	}
	if in.Text == "" && len(in.Keys) == 0 {
		return "", protocol.Errorf(protocol.CodeInvalidArgument, "there is nothing to send: give text, keys or enter")
	}
	if err := s.mayControl(ctx, id); err != nil {
		return "", err
	}
	mark, err := s.Client.Mark(ctx, id)
	if err != nil {
		return "", err
	}
	if err := s.typeText(ctx, id, in.Text); err != nil {
		return "", err
	}
	if shown := echo.Of([]byte(in.Text)); in.WaitText != "" && shown != "" && len(in.Keys) > 0 && in.Keys[0] == "Enter" {
		if mark, err = echo.MarkBehind(ctx, s.Client, id, shown, mark); err != nil {
			return "", err
		}
	}
	for _, key := range in.Keys {
		if err := sent(s.Client.Keys(ctx, id, key)); err != nil {
			return "", err
		}
	}
	spec := protocol.AwaitSpec{SessionID: id, Text: in.WaitText, IdleMS: in.IdleMS, Since: mark.Mark}
	if in.WaitText == "" && in.IdleMS == 0 {
		info, err := s.Client.SessionInfo(ctx, id)
		if err != nil {
			return "", err
		}
		if info.Command != nil && len(in.Keys) > 0 {
			spec.Prompt = true
		} else {
			spec.IdleMS = settled.Milliseconds()
		}
	}
	found, err := s.Client.Await(ctx, spec, timeout)
	return s.awaited(ctx, id, found, in.MaxBytes, err)
}

// typeText types a text, or pastes it if it has line breaks.
func (s *server) typeText(ctx context.Context, id protocol.SessionID, text string) error {
	switch {
	case text == "":
		return nil
	case strings.ContainsAny(text, "\r\n"):
		return sent(s.Client.Paste(ctx, id, []byte(text)))
	}
	return sent(s.Client.Type(ctx, id, []byte(text)))
}

// sent returns nil for the warning that the terminal may cut a line of the input, because all of the input
// was accepted.
func sent(err error) error {
	if protocol.CodeOf(err) == protocol.CodeLineTooLong {
		return nil
	}
	return err
}

type endInput struct {
	Session string `json:"session" jsonschema:"id of the session"`
}

func (s *server) end(ctx context.Context, in endInput) (string, error) {
	id := protocol.SessionID(in.Session)
	if err := s.mayControl(ctx, id); err != nil {
		return "", err
	}
	err := s.Client.Terminate(ctx, id, client.End{})
	if err != nil && protocol.CodeOf(err) != protocol.CodeSessionExited {
		return "", err
	}
	_, err = s.Client.Wait(ctx, id, defaultWait)
	return s.newsAfter(ctx, id, notEnded, 0, err)
}

// mayControl returns an error if the agent may not send input to a session or end it.
func (s *server) mayControl(ctx context.Context, id protocol.SessionID) error {
	if s.Control == ControlAll {
		return nil
	}
	info, err := s.Client.SessionInfo(ctx, id)
	if err != nil {
		return err
	}
	if info.Originator != originator {
		return protocol.Errorf(protocol.CodePermissionDenied, fmt.Sprintf("session %s was not started by the tool run, and the user has permitted only such sessions; proxy mcp --control all permits all", id))
	}
	return nil
}

// awaited answers what is new after an await with this result. If the time was over, that is no error.
func (s *server) awaited(ctx context.Context, id protocol.SessionID, found *protocol.AwaitedInfo, maxBytes int, err error) (string, error) {
	if err == nil && found.Line != "" {
		return s.news(ctx, id, "found: "+found.Line, maxBytes)
	}
	return s.newsAfter(ctx, id, "the time is over, and it has not happened", maxBytes, err)
}

// newsAfter answers what is new after a request that has waited with this error. If the time was over, the
// answer has the remark late instead.
func (s *server) newsAfter(ctx context.Context, id protocol.SessionID, late string, maxBytes int, err error) (string, error) {
	switch {
	case err == nil:
		return s.news(ctx, id, "", maxBytes)
	case protocol.CodeOf(err) == protocol.CodeTimeout:
		return s.news(ctx, id, late, maxBytes)
	}
	return "", err
}

// news returns the state of a session, a remark if it is not empty, and what is new since the last answer.
func (s *server) news(ctx context.Context, id protocol.SessionID, remark string, maxBytes int) (string, error) {
	info, err := s.Client.SessionInfo(ctx, id)
	if err != nil {
		return "", err
	}
	was := s.reading(id)
	changes, err := s.Client.Changes(ctx, id, was.mark, limitBytes(maxBytes))
	if err != nil {
		return "", err
	}
	away, err := s.Client.Away(ctx, id)
	if err != nil {
		return "", err
	}
	bells := away.Bells - was.bells
	if bells < 0 { // the count began anew, because a person has left the session
		bells = away.Bells
	}
	s.setReading(id, reading{changes.Mark, away.Bells})
	var content *protocol.ScreenContent // for evidence of a question, which only a running session asks
	if info.State == protocol.StateRunning && info.Command == nil {
		if content, err = s.Client.Screen(ctx, id, client.ScreenOptions{}); err != nil {
			return "", err
		}
	}
	var t text
	t.line("%s: %s%s", id, fullState(info, content, time.Now()), bellText(bells))
	if remark != "" {
		t.line("%s", remark)
	}
	t.changes(changes)
	return t.String(), nil
}

// limitBytes returns the size of the text in an answer.
func limitBytes(wanted int) int {
	if wanted <= 0 {
		return DefaultBytes
	}
	return min(wanted, MaxBytes)
}

func timeLimit(seconds float64) (time.Duration, error) {
	if seconds < 0 || seconds > maxWait.Seconds() {
		return 0, protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("timeout_s must be at least 0 and at most %v", maxWait.Seconds()))
	}
	if seconds == 0 {
		return defaultWait, nil
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
