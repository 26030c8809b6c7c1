package mcp

import (
	"cmp"
	"context"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/echo"
	"holdfast/shared/keyname"
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
	Session  string `json:"session"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

func (s *server) readNew(ctx context.Context, in readInput) (string, error) {
	return s.news(ctx, answer{session: protocol.SessionID(in.Session), maxBytes: in.MaxBytes})
}

type screenInput struct {
	Session  string `json:"session"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

func (s *server) screen(ctx context.Context, in screenInput) (string, error) {
	id := protocol.SessionID(in.Session)
	screen, err := s.shown(ctx, id)
	if err != nil {
		return "", err
	}
	info, err := s.Client.SessionInfo(ctx, id)
	if err != nil {
		return "", err
	}
	var t text
	t.line("%s", fullState(info, screen, time.Now()))
	t.line("%d columns, %d rows; cursor at column %d of line %d, from 0", screen.cols, screen.rows, screen.column, screen.line)
	t.lastLines(screen.lines, limitBytes(in.MaxBytes))
	return t.String(), nil
}

type historyInput struct {
	Session  string `json:"session"`
	Before   uint64 `json:"before,omitempty" jsonschema:"only lines before this number; default those above the screen"`
	Lines    int    `json:"lines,omitempty" jsonschema:"default 100"`
	Command  int    `json:"command,omitempty" jsonschema:"the output of a command instead: -1 is the last that has ended, -2 the one before"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

func (s *server) history(ctx context.Context, in historyInput) (string, error) {
	if in.Lines < 0 || in.Lines > protocol.MaxHistoryLines {
		return "", protocol.Errorf(protocol.CodeInvalidArgument, "lines must be at least 0 and at most %d", protocol.MaxHistoryLines)
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
	t.earlier(h, limitBytes(in.MaxBytes))
	return t.String(), nil
}

const (
	// shellTime is how long a new shell may take until it reports its first prompt.
	shellTime = 5 * time.Second
	// settled is how long a program must have printed nothing after input until its answer counts as
	// complete, if neither the program nor the caller tells more.
	settled = 500 * time.Millisecond
)

type waitInput struct {
	Session  string  `json:"session"`
	Text     string  `json:"text,omitempty" jsonschema:"wait for a line that matches this RE2, also if it is on the screen already"`
	Prompt   bool    `json:"prompt,omitempty" jsonschema:"wait until the shell waits for a command, if it reports that"`
	IdleMS   int64   `json:"idle_ms,omitempty" jsonschema:"wait until it is silent for so long"`
	TimeoutS float64 `json:"timeout_s,omitempty"`
	MaxBytes int     `json:"max_bytes,omitempty"`
}

func (s *server) wait(ctx context.Context, in waitInput) (string, error) {
	id := protocol.SessionID(in.Session)
	timeout, err := timeLimit(in.TimeoutS)
	if err != nil {
		return "", err
	}
	a := answer{session: id, maxBytes: in.MaxBytes}
	if in.Text == "" && !in.Prompt && in.IdleMS == 0 {
		_, err = s.Client.Wait(ctx, id, timeout)
		return s.newsAfter(ctx, a, err)
	}
	found, err := s.Client.Await(ctx, protocol.AwaitSpec{SessionID: id, Text: in.Text, Prompt: in.Prompt, IdleMS: in.IdleMS}, timeout)
	return s.awaited(ctx, a, found, err)
}

type runInput struct {
	Command  string   `json:"command,omitempty" jsonschema:"for sh; absent: start the user's shell, and send it commands"`
	Session  string   `json:"session,omitempty" jsonschema:"id that you choose; default random"`
	Cwd      string   `json:"cwd,omitempty" jsonschema:"absolute"`
	Env      []string `json:"env,omitempty" jsonschema:"each NAME=VALUE"`
	TimeoutS float64  `json:"timeout_s,omitempty"`
	MaxBytes int      `json:"max_bytes,omitempty" jsonschema:"default: the last screen"`
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
	a := answer{session: id, isNew: in.Session == "", maxBytes: in.MaxBytes}
	if isShell { // bash, zsh and fish report their prompts, and other shells do not
		_, err := s.Client.Await(ctx, protocol.AwaitSpec{SessionID: id, Prompt: true}, min(timeout, shellTime))
		return s.newsAfter(ctx, a, err)
	}
	err = s.untilInput(ctx, id, timeout, func(part time.Duration) error {
		_, err := s.Client.Wait(ctx, id, part)
		return err
	})
	return s.newsAfter(ctx, a, err)
}

const (
	// firstCheck is the time after which a tool that waits checks for the first time whether the program waits for
	// input: settled, and some time for its output.
	firstCheck = settled + settled/5
	// longestCheck is the longest time between two such checks.
	longestCheck = 2 * time.Second
)

// untilInput waits for an event: it calls wait, which returns the error timeout if the event has not happened within a part of
// the timeout. If the program waits for input, untilInput returns nil, because the event then needs input.
func (s *server) untilInput(ctx context.Context, id protocol.SessionID, timeout time.Duration, wait func(part time.Duration) error) error {
	end := time.Now().Add(timeout)
	for part := firstCheck; ; part = min(2*part, longestCheck) {
		left := max(0, time.Until(end))
		err := wait(min(part, left))
		if protocol.CodeOf(err) != protocol.CodeTimeout || left <= part {
			return err
		}
		info, err := s.Client.SessionInfo(ctx, id)
		if err != nil {
			return err
		}
		if info.State != protocol.StateRunning || !mayWaitForInput(info, time.Now()) {
			continue // a request for the screen would wait until the supervisor has shown what the program prints
		}
		screen, err := s.shown(ctx, id)
		if err != nil {
			return err
		}
		if waitsForInput(info, screen, time.Now()) {
			return nil
		}
	}
}

type sendInput struct {
	Session  string   `json:"session"`
	Text     string   `json:"text,omitempty" jsonschema:"text with line breaks is pasted"`
	Keys     []string `json:"keys,omitempty" jsonschema:"to press after the text: Enter, Tab, Escape, Up, PageDown, F1, C-c, M-x"`
	Enter    bool     `json:"enter,omitempty" jsonschema:"press Enter at the end"`
	WaitText string   `json:"wait_text,omitempty" jsonschema:"wait for a new line that matches this RE2, other than the echo"`
	IdleMS   int64    `json:"idle_ms,omitempty" jsonschema:"wait until it is silent for so long; default: until the shell waits for a command, if it reports that, or the program for input, else 500"`
	TimeoutS float64  `json:"timeout_s,omitempty"`
	MaxBytes int      `json:"max_bytes,omitempty"`
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
	// Wrong arguments must be found before the text is sent, because the agent repeats its call with the text.
	if err := keyname.Check(in.Keys); err != nil {
		return "", protocol.Errorf(protocol.CodeInvalidArgument, "%v", err)
	}
	spec := protocol.AwaitSpec{SessionID: id, Text: in.WaitText, IdleMS: in.IdleMS}
	hasCondition := in.WaitText != "" || in.IdleMS != 0
	if err := spec.Validate(); hasCondition && err != nil {
		return "", err
	}
	if err := s.mayControl(ctx, id); err != nil {
		return "", err
	}
	mark, err := s.Client.Mark(ctx, id)
	if err != nil {
		return "", err
	}
	q := s.Client.Sequence(id)
	if err := typeText(ctx, q, in.Text, len(in.Keys) > 0); err != nil {
		return "", err
	}
	if shown := echo.Of([]byte(in.Text)); in.WaitText != "" && shown != "" && len(in.Keys) > 0 && in.Keys[0] == "Enter" {
		if mark, err = echo.MarkBehind(ctx, s.Client, id, shown, mark); err != nil {
			return "", err
		}
	}
	for i, key := range in.Keys {
		if err := sent(q.Keys(ctx, i+1 < len(in.Keys), key)); err != nil {
			return "", err
		}
	}
	spec.Since = mark.Mark
	if !hasCondition {
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
	found := &protocol.AwaitedInfo{}
	if spec.Prompt {
		err = s.untilInput(ctx, id, timeout, func(part time.Duration) error {
			_, err := s.Client.Await(ctx, spec, part)
			return err
		})
	} else {
		found, err = s.Client.Await(ctx, spec, timeout)
	}
	a := answer{session: id, maxBytes: in.MaxBytes}
	if len(in.Keys) > 0 && in.Keys[0] == "Enter" {
		a.typed = in.Text
	}
	return s.awaited(ctx, a, found, err)
}

// typeText types a text, or pastes it if it has line breaks. more tells that keys follow.
func typeText(ctx context.Context, q *client.Sequence, text string, more bool) error {
	if strings.ContainsAny(text, "\r\n") {
		return sent(q.Paste(ctx, []byte(text), more))
	}
	return sent(q.Type(ctx, []byte(text), more))
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
	Session string `json:"session"`
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
	return s.newsAfter(ctx, answer{session: id}, err)
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
		return protocol.Errorf(protocol.CodePermissionDenied, "session %s was not started by the tool run, and the user has permitted only such sessions; proxy mcp --control all permits all", id)
	}
	return nil
}

// An answer tells the news of a session.
type answer struct {
	session  protocol.SessionID
	isNew    bool   // the agent does not know the id of the session, and needs it if there is more to come or to read
	typed    string // line that the agent has typed, and ended with Enter
	found    string // line for which the tool has waited
	late     string // remark if the time of the tool was over
	maxBytes int    // of the text of the session; 0 is DefaultBytes
}

// awaited answers the news after an await with this result. If the time was over, that is no error.
func (s *server) awaited(ctx context.Context, a answer, found *protocol.AwaitedInfo, err error) (string, error) {
	if err == nil {
		a.found = found.Line
	}
	a.late = "the time is over, and it has not happened"
	return s.newsAfter(ctx, a, err)
}

// newsAfter answers the news after a request that has waited with this error.
func (s *server) newsAfter(ctx context.Context, a answer, err error) (string, error) {
	switch {
	case err == nil:
		a.late = ""
	case protocol.CodeOf(err) != protocol.CodeTimeout:
		return "", err
	}
	return s.news(ctx, a)
}

// news returns the state of a session, and its changes since the last answer. The answer names the session only if the
// agent needs its id.
func (s *server) news(ctx context.Context, a answer) (string, error) {
	info, err := s.Client.SessionInfo(ctx, a.session)
	if err != nil {
		return "", err
	}
	was := s.reading(a.session)
	changes, err := s.Client.Changes(ctx, a.session, was.mark, limitBytes(a.maxBytes))
	if protocol.CodeOf(err) == protocol.CodeInstanceMismatch {
		// The id has a new instance since the last answer, because a person or the agent has forgotten the session and
		// started it again, or has reopened it. The agent has read nothing of the new instance.
		was = reading{}
		changes, err = s.Client.Changes(ctx, a.session, nil, limitBytes(a.maxBytes))
	}
	if err != nil {
		return "", err
	}
	away, err := s.Client.Away(ctx, a.session)
	if err != nil {
		return "", err
	}
	bells := away.Bells - was.bells
	if bells < 0 { // the count began anew, because a person has left the session
		bells = away.Bells
	}
	screen := &shown{} // for evidence of a question, which only a running session asks
	if info.State == protocol.StateRunning {
		if screen, err = s.shown(ctx, a.session); err != nil {
			return "", err
		}
	}
	e := exchange{next: was.next, seen: was.seen, prompt: was.prompt, typed: strings.TrimSpace(a.typed)}
	if c := info.Command; c != nil {
		e.ended = c.Count
		if e.typed != "" && strings.TrimSpace(c.Line) == e.typed {
			known := *c
			known.Line, info.Command = "", &known
		}
	}
	state := fullState(info, screen, time.Now())
	prompt := screen.before
	if prompt == was.prompt && info.Command != nil && info.Command.Prompt || prompt != "" && strings.Contains(state, encoded(prompt)) {
		e.told = prompt
	}
	var lines text
	if changes.Whole && changes.LeftOut == nil && changes.From > changes.First {
		if err := s.linesAbove(ctx, &lines, a, changes); err != nil {
			return "", err
		}
	}
	if err := ctx.Err(); err != nil { // the agent does not read the answer
		return "", err
	}
	s.setReading(a.session, reading{changes.Mark, changes.Next, was.seen.after(changes), prompt, away.Bells})
	lines.changes(changes, e)
	if a.isNew && (info.Exit == nil || lines.leftOut) {
		state = string(a.session) + ": " + state
	}
	var t text
	t.line("%s%s", state, bellText(bells))
	if a.late != "" {
		t.line("%s", a.late)
	}
	if a.found != "" && !hasLine(changes, a.found) {
		t.line("found: %s", a.found)
	}
	t.WriteString(lines.String())
	return t.String(), nil
}

// linesAbove adds the lines above the screen to a first answer if the caller has named the size of the text. Otherwise, it
// adds how to read them.
func (s *server) linesAbove(ctx context.Context, t *text, a answer, changes *protocol.ChangesContent) error {
	room := limitBytes(a.maxBytes)
	for _, l := range changes.Lines {
		room -= sizeOf(l.Texts)
	}
	if a.maxBytes == 0 || room <= 0 {
		t.earlierLines(changes.From)
		return nil
	}
	h, err := s.Client.History(ctx, a.session, client.HistoryOptions{Before: &changes.From, Lines: protocol.MaxHistoryLines})
	if err != nil {
		return err
	}
	t.earlier(h, room)
	return nil
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
		return 0, protocol.Errorf(protocol.CodeInvalidArgument, "timeout_s must be at least 0 and at most %v", maxWait.Seconds())
	}
	if seconds == 0 {
		return defaultWait, nil
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
