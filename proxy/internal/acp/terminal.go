package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/plain"
)

const (
	// maxTerminals bounds the terminals that an agent has not released.
	maxTerminals = 1024
	// maxOutput is the largest output in an answer, in bytes, also if the agent asks for more.
	maxOutput = 1 << 20
	// maxShown is the largest output of a terminal that the editor gets as a text, in bytes.
	maxShown = 32 << 10
	// maxContent is the largest content of a tool call that is kept until its terminals have ended, in bytes. The
	// editor does not get the output of the terminals of a larger one.
	maxContent = 16 << 10
	// maxKept is the size of the outputs of ended terminals that are kept, in bytes. They are the answer after
	// the supervisor has forgotten the session (setting exit_keep).
	maxKept = 16 << 20
	// endTime is how long kill and release wait for the end that they have asked for.
	endTime = 5 * time.Second
	// retryTime is the time between two attempts to reach the proxy.
	retryTime = time.Second
)

// originator is the originator of the sessions of agents.
const originator = "acp"

// Labels of a session. They make a terminal usable by a later process of this package.
const (
	labelConversation = "acp_session"      // the sessionId of ACP
	labelOutputLimit  = "acp_output_limit" // the outputByteLimit in bytes
)

// answers has the function for each method of the agent that this package answers. Its result is encoded as JSON.
var answers = map[string]func(context.Context, *bridge, json.RawMessage) (any, error){
	"terminal/create":        answer((*bridge).create),
	"terminal/output":        answer(about((*bridge).output)),
	"terminal/wait_for_exit": answer(about((*bridge).waitForExit)),
	"terminal/kill":          answer(about((*bridge).kill)),
	"terminal/release":       answer(about((*bridge).release)),
}

// answer makes a method from a function that takes its parameters.
func answer[P, R any](method func(*bridge, context.Context, P) (R, error)) func(context.Context, *bridge, json.RawMessage) (any, error) {
	return func(ctx context.Context, b *bridge, raw json.RawMessage) (any, error) {
		var params P
		if err := json.Unmarshal(raw, &params); err != nil {
			return nil, &rpcError{Code: codeInvalidParams, Message: fmt.Sprintf("params: %v", err)}
		}
		return method(b, ctx, params)
	}
}

// about makes a method from a function that takes the terminal that the parameters name.
func about[R any](method func(*bridge, context.Context, *terminal) (R, error)) func(*bridge, context.Context, terminalParams) (R, error) {
	return func(b *bridge, ctx context.Context, p terminalParams) (result R, err error) {
		t, err := b.terminal(ctx, p)
		if err != nil {
			return result, err
		}
		return method(b, ctx, t)
	}
}

// A terminal is a session that the agent has not released.
type terminal struct {
	id      protocol.SessionID
	session string // of ACP
	command string // for people
	limit   int    // of the output in bytes

	ended chan struct{} // closed when the session has ended; the fields below are valid then
	exit  exitStatus

	// The mutex of the bridge is held for the following fields.
	final   *outputResult // the output at the end, if it is kept
	shownIn string        // the tool call that shows the terminal, or ""
	content []json.RawMessage
}

func (t *terminal) hasEnded() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

type createParams struct {
	SessionID string   `json:"sessionId"`
	Command   string   `json:"command"`
	Args      []string `json:"args"`
	Env       []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	Cwd             string  `json:"cwd"`
	OutputByteLimit *uint64 `json:"outputByteLimit"`
}

type createResult struct {
	TerminalID protocol.SessionID `json:"terminalId"`
}

// create starts a command. Without args the command is a command line for sh, as agents expect it of editors.
func (b *bridge) create(ctx context.Context, p createParams) (*createResult, error) {
	if p.SessionID == "" || p.Command == "" {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "sessionId and command must not be empty")
	}
	argv := append([]string{p.Command}, p.Args...)
	if len(p.Args) == 0 {
		argv = []string{"/bin/sh", "-c", p.Command}
	}
	// A pager would wait for keys, but the agent cannot send input to a terminal of ACP.
	env := append(slices.Clone(b.Env), "PAGER=cat", "GIT_PAGER=cat")
	for _, v := range p.Env {
		if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") {
			return nil, protocol.Errorf(protocol.CodeInvalidArgument, "env: %.40q is not the name of a variable", v.Name)
		}
		env = append(env, v.Name+"="+v.Value)
	}
	limit := maxOutput
	if p.OutputByteLimit != nil {
		limit = int(min(*p.OutputByteLimit, maxOutput))
	}
	b.mu.Lock()
	cwd := cmp.Or(p.Cwd, b.cwds[p.SessionID], b.Cwd)
	full := len(b.terminals) >= maxTerminals
	b.mu.Unlock()
	if full {
		return nil, protocol.Errorf(protocol.CodeLimitExceeded, "there are %d terminals, which is the most; release one first", maxTerminals)
	}
	if !filepath.IsAbs(cwd) {
		return nil, protocol.Errorf(protocol.CodeInvalidArgument, "cwd must be an absolute path, but it is %.200q", cwd)
	}
	noWatch := time.Duration(0) // a command may end at once
	// If Spawn had ctx, a command that is just being started would run unknown after a cancellation.
	s, err := b.Sessions.Spawn(b.ctx, client.SpawnRequest{
		ID: protocol.SessionID("acp-" + protocol.NewToken(6)), EarlyExit: &noWatch,
		SpawnSpec: protocol.SpawnSpec{
			Argv: argv, Cwd: cwd, Env: env, Cols: 120, Rows: 40, Originator: originator, Unattended: true,
			Labels: map[string]string{labelConversation: p.SessionID, labelOutputLimit: strconv.Itoa(limit)},
		},
	})
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil && b.ctx.Err() == nil { // cancelled, so the agent gets no id with which it could end the session
		return nil, errors.Join(b.Sessions.Terminate(b.ctx, s.SessionID, client.End{}), ctx.Err())
	}
	t := b.add(&s.Session)
	return &createResult{t.id}, nil
}

// add returns the terminal of a session, and watches it if that is new.
func (b *bridge) add(s *protocol.SessionInfo) *terminal {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.terminals[s.ID]; t != nil {
		return t
	}
	argv := s.Argv
	if len(argv) == 3 && argv[0] == "/bin/sh" && argv[1] == "-c" {
		argv = argv[2:]
	}
	t := &terminal{id: s.ID, session: s.Labels[labelConversation], command: plain.Text(strings.Join(argv, " ")), limit: maxOutput, ended: make(chan struct{})}
	if n, err := strconv.Atoi(s.Labels[labelOutputLimit]); err == nil && n >= 0 {
		t.limit = min(n, maxOutput)
	}
	b.terminals[s.ID] = t
	b.requests.Go(func() { b.watch(t) })
	return t
}

// watch waits for the end of a session, keeps its output, and shows it to the editor.
func (b *bridge) watch(t *terminal) {
	for {
		exit, err := b.Sessions.Wait(b.ctx, t.id, -1)
		if b.ctx.Err() != nil {
			return
		}
		if err == nil {
			t.exit = statusOf(exit)
			break
		}
		if protocol.CodeOf(err) == protocol.CodeSessionNotFound { // its end was missed, so how it ended is not known
			break
		}
		select { // the proxy cannot be reached; the session may continue
		case <-time.After(retryTime):
		case <-b.ctx.Done():
			return
		}
	}
	final, err := b.text(b.ctx, t)
	if err == nil {
		b.keep(t, final)
	}
	close(t.ended)
	b.showEnd(t)
}

// keep keeps the final output of a terminal. Because the outputs of all have a limit, it may drop that of another one.
func (b *bridge) keep(t *terminal, final *outputResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known(t.id) != t {
		return // it was released long ago
	}
	for _, terminals := range []map[protocol.SessionID]*terminal{b.released, b.terminals} { // only the editor needs the outputs of the first
		for _, other := range terminals {
			if b.kept+len(final.Output) <= maxKept {
				break
			}
			b.drop(other)
		}
	}
	t.final = final
	b.kept += len(final.Output)
}

// known returns a terminal, also if it was released: the editor shows its output after that. The caller holds the mutex.
func (b *bridge) known(id protocol.SessionID) *terminal {
	if t := b.terminals[id]; t != nil {
		return t
	}
	return b.released[id]
}

// drop drops the final output of a terminal. The caller holds the mutex.
func (b *bridge) drop(t *terminal) {
	if t.final != nil {
		b.kept -= len(t.final.Output)
		t.final = nil
	}
}

type terminalParams struct {
	SessionID  string             `json:"sessionId"`
	TerminalID protocol.SessionID `json:"terminalId"`
}

// terminal returns a terminal of a conversation that was not released. It may be one of an earlier process.
func (b *bridge) terminal(ctx context.Context, p terminalParams) (*terminal, error) {
	b.mu.Lock()
	t, released := b.terminals[p.TerminalID], b.released[p.TerminalID]
	b.mu.Unlock()
	if t == nil && released == nil && p.TerminalID.Validate() == nil {
		info, err := b.Sessions.SessionInfo(ctx, p.TerminalID)
		if err != nil && protocol.CodeOf(err) != protocol.CodeSessionNotFound {
			return nil, err
		}
		if err == nil && info.Originator == originator && info.Labels[labelConversation] == p.SessionID {
			t = b.add(info)
		}
	}
	if t == nil || t.session != p.SessionID {
		return nil, protocol.Errorf(protocol.CodeSessionNotFound, "this conversation has no terminal %.80q", string(p.TerminalID))
	}
	return t, nil
}

// exitStatus tells how a command has ended. Both fields are nil if that is not known.
type exitStatus struct {
	ExitCode *int    `json:"exitCode"`
	Signal   *string `json:"signal"`
}

func statusOf(e *protocol.ExitRecord) exitStatus {
	switch {
	case e.Signal != "":
		return exitStatus{Signal: &e.Signal}
	case e.ExitCode < 0:
		return exitStatus{}
	}
	return exitStatus{ExitCode: &e.ExitCode}
}

type outputResult struct {
	Output     string      `json:"output"`
	Truncated  bool        `json:"truncated"`
	ExitStatus *exitStatus `json:"exitStatus,omitempty"`
}

// output returns the output so far, and how the command has ended if it has.
func (b *bridge) output(ctx context.Context, t *terminal) (*outputResult, error) {
	ended := t.hasEnded() // before the text is read, so that the text of an ended command is whole
	b.mu.Lock()
	final := t.final
	b.mu.Unlock()
	if final == nil {
		var err error
		final, err = b.text(ctx, t)
		if ended && protocol.CodeOf(err) == protocol.CodeSessionNotFound { // its output was not kept
			final, err = &outputResult{Truncated: true}, nil
		}
		if err != nil {
			return nil, err
		}
	}
	r := *final
	if ended {
		r.ExitStatus = &t.exit
	}
	return &r, nil
}

// text reads the output of a session: its lines without escape sequences, as a terminal shows them. If a program shows the
// alternate screen, the rows of that screen follow.
func (b *bridge) text(ctx context.Context, t *terminal) (*outputResult, error) {
	content, err := b.Sessions.Screen(ctx, t.id, client.ScreenOptions{})
	if err != nil {
		return nil, err
	}
	var rows []string
	if content.Alternate {
		rows = content.Lines
	}
	var lines []string // the newest first
	size, truncated, hasCut := 0, false, false
	before := uint64(math.MaxUint64)
	for size <= t.limit {
		h, err := b.Sessions.History(ctx, t.id, client.HistoryOptions{Before: &before, Lines: protocol.MaxHistoryLines})
		if err != nil {
			return nil, err
		}
		for _, l := range h.Lines {
			text := l.Text()
			if before = l.Line; text == "" && len(lines) == 0 { // the screen below the output
				continue
			}
			lines = append(lines, text)
			size += len(text) + 1
			hasCut = hasCut || l.Cut // its end is missing
		}
		if !h.More || len(h.Lines) == 0 {
			truncated = h.First > 0
			break
		}
	}
	slices.Reverse(lines)
	return cut(append(lines, rows...), t.limit, truncated || hasCut), nil
}

// cut returns lines as one text of at most limit bytes. If it is longer, its beginning is cut off at a character.
func cut(lines []string, limit int, truncated bool) *outputResult {
	var text string
	if len(lines) > 0 {
		text = strings.ToValidUTF8(strings.Join(lines, "\n"), "\uFFFD") + "\n"
	}
	if start := len(text) - limit; start > 0 {
		for start < len(text) && !utf8.RuneStart(text[start]) {
			start++
		}
		text, truncated = text[start:], true
	}
	return &outputResult{Output: text, Truncated: truncated}
}

// waitForExit waits until the command has ended.
func (b *bridge) waitForExit(ctx context.Context, t *terminal) (*exitStatus, error) {
	select {
	case <-t.ended:
		return &t.exit, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type emptyResult struct{}

// kill ends the command. The terminal stays, with its output and its exit status.
func (b *bridge) kill(ctx context.Context, t *terminal) (emptyResult, error) {
	return emptyResult{}, b.end(ctx, t)
}

// release ends the command if it runs, as ACP demands, and makes the terminal unknown to the agent. The tool calls that
// show the terminal still have its output. People can read it until the supervisor forgets the session (setting exit_keep).
func (b *bridge) release(ctx context.Context, t *terminal) (emptyResult, error) {
	if err := b.end(ctx, t); err != nil {
		return emptyResult{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.terminals[t.id] == t {
		delete(b.terminals, t.id)
		for _, other := range b.released {
			if len(b.released) < maxTerminals {
				break
			}
			b.drop(other)
			delete(b.released, other.id)
		}
		b.released[t.id] = t
	}
	return emptyResult{}, nil
}

// end ends the command of a terminal if it runs, and waits for its end for endTime. A request whose connection
// breaks is repeated: it cannot end a later life of the session, because watch sees the end of the first one.
// An agent may end right behind its request, so the request to the proxy has endTime more when ctx is done.
func (b *bridge) end(ctx context.Context, t *terminal) error {
	asking, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(endTime, stop) })()
	for attempt := 0; !t.hasEnded(); attempt++ {
		err := b.Sessions.Terminate(asking, t.id, client.End{})
		switch code := protocol.CodeOf(err); {
		case err == nil, code == protocol.CodeSessionExited, code == protocol.CodeSessionNotFound:
			select {
			case <-t.ended:
			case <-time.After(endTime): // a process that no signal ends; wait_for_exit tells when it has ended
			case <-ctx.Done():
				return ctx.Err()
			}
			return nil
		case errors.Is(err, client.ErrIO) && attempt < 3:
		default:
			return err
		}
	}
	return nil
}

// textContent returns the content of a tool call with texts for the terminals of this package, which the editor does not know. If a
// terminal still runs, its text tells how to attach to it; the editor gets the output when it has ended.
func (b *bridge) textContent(session, call string, content []json.RawMessage) (texts []json.RawMessage, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, terminals := range []map[protocol.SessionID]*terminal{b.terminals, b.released} { // the new content replaces that of an earlier update
		for _, t := range terminals {
			if t.session == session && t.shownIn == call {
				t.shownIn, t.content = "", nil
			}
		}
	}
	texts = slices.Clone(content)
	size := 0
	for _, raw := range content {
		size += len(raw)
	}
	for i, raw := range content {
		part := parseObject(raw)
		t := b.known(protocol.SessionID(part.text("terminalId")))
		if t == nil || part.text("type") != "terminal" || t.session != session {
			continue
		}
		found = true
		texts[i] = t.asText()
		if !t.hasEnded() && call != "" && size <= maxContent {
			t.shownIn, t.content = call, content
		}
	}
	return texts, found
}

// asText returns the content of a tool call that shows a terminal. The caller holds the mutex of the bridge.
func (t *terminal) asText() json.RawMessage {
	text := fmt.Sprintf("`%s` runs in a terminal; `holdfast attach %s` shows it.", t.command, t.id)
	if t.hasEnded() {
		text = fmt.Sprintf("`%s` has ended. Its output is not kept.", t.command)
		if t.final != nil {
			output := cut([]string{strings.TrimSuffix(t.final.Output, "\n")}, maxShown, false)
			fence := "```"
			for strings.Contains(output.Output, fence) {
				fence += "`"
			}
			text = fmt.Sprintf("`%s` has ended.\n%s\n%s%s", t.command, fence, output.Output, fence)
		}
	}
	raw, _ := json.Marshal(map[string]any{"type": "content", "content": map[string]string{"type": "text", "text": text}})
	return raw
}

// showEnd sends the output of a terminal that has ended to the editor if a tool call shows the terminal. It takes the content of the
// tool call while no other line is written, because otherwise an update of the agent that replaces it could be sent before.
func (b *bridge) showEnd(t *terminal) {
	_ = b.toEditor.writeBy(func() []byte { // if it fails, the editor has ended
		b.mu.Lock()
		call, content := t.shownIn, t.content
		t.shownIn, t.content = "", nil
		b.mu.Unlock()
		if call == "" {
			return nil
		}
		texts, found := b.textContent(t.session, call, content)
		if !found {
			return nil
		}
		return object{}.with("jsonrpc", "2.0").with("method", "session/update").with("params", map[string]any{
			"sessionId": t.session,
			"update":    map[string]any{"sessionUpdate": "tool_call_update", "toolCallId": call, "content": texts},
		}).line()
	})
}
