package acp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// fake has sessions that print "output" and end when they are terminated.
type fake struct {
	ended chan struct{}
	kill  func()
}

func newFake() *fake {
	ended := make(chan struct{})
	return &fake{ended: ended, kill: func() {
		select {
		case <-ended:
		default:
			close(ended)
		}
	}}
}

func (f *fake) Spawn(_ context.Context, r client.SpawnRequest) (*client.Spawned, error) {
	return &client.Spawned{SessionID: r.ID, Session: protocol.SessionInfo{ID: r.ID, Argv: r.Argv, Labels: r.Labels, Originator: r.Originator}}, nil
}

func (f *fake) SessionInfo(_ context.Context, id protocol.SessionID) (*protocol.SessionInfo, error) {
	return nil, protocol.Errorf(protocol.CodeSessionNotFound, "%s", id)
}

func (f *fake) History(context.Context, protocol.SessionID, client.HistoryOptions) (*protocol.HistoryContent, error) {
	return &protocol.HistoryContent{Lines: []protocol.HistoryLine{{}, {Spans: []protocol.Span{{Text: "out"}, {Text: "put"}}}}}, nil
}

func (f *fake) Screen(context.Context, protocol.SessionID, client.ScreenOptions) (*protocol.ScreenContent, error) {
	return &protocol.ScreenContent{}, nil
}

func (f *fake) Wait(ctx context.Context, _ protocol.SessionID, _ time.Duration) (*protocol.ExitRecord, error) {
	select {
	case <-f.ended:
		return &protocol.ExitRecord{Signal: "SIGHUP"}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fake) Terminate(context.Context, protocol.SessionID, client.End) error {
	f.kill()
	return nil
}

// A peer is an editor or an agent: it sends lines, and receives lines.
type peer struct {
	t testing.TB
	w *io.PipeWriter
	r *bufio.Reader
}

func (p *peer) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.w, line); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) receive() string {
	p.t.Helper()
	line, err := p.r.ReadString('\n')
	testkit.Must(p.t, err)
	return line
}

// start runs a bridge between an editor and an agent until the end of the test.
func start(t testing.TB, s Sessions) (editor, agent *peer) {
	fromEditor, editorOut := io.Pipe()
	editorIn, toEditor := io.Pipe()
	fromAgent, agentOut := io.Pipe()
	agentIn, toAgent := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), Options{
			Sessions: s, Cwd: "/", FromEditor: fromEditor, ToEditor: toEditor, FromAgent: fromAgent, ToAgent: toAgent,
		})
	}()
	t.Cleanup(func() {
		_ = editorOut.Close()
		_ = agentOut.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &peer{t, editorOut, bufio.NewReader(editorIn)}, &peer{t, agentOut, bufio.NewReader(agentIn)}
}

// Every message that is not for this package passes byte for byte, in both directions.
func TestPass(t *testing.T) {
	for name, line := range map[string]string{
		"a request":                     `{ "id" : 7, "method":"session/prompt", "jsonrpc":"2.0","params":{"sessionId":"a\u0041"}}` + "\r\n",
		"an answer":                     `{"id":"x","result":null,"jsonrpc":"2.0"}` + "\n",
		"no JSON":                       "hello {\n",
		"half of a message":             `{"id":1,"method":"terminal/create","params":{` + "\n",
		"an empty line":                 "\n",
		"an array":                      `[{"id":1,"method":"terminal/create","params":{}}]` + "\n",
		"bytes that are not UTF-8":      "\xff\xfe\x00\n",
		"a terminal without an id":      `{"method":"terminal/create","params":{}}` + "\n",
		"a terminal with a null id":     `{"id":null,"method":"terminal/create","params":{}}` + "\n",
		"another terminal request":      `{"id":1,"method":"terminal/resize","params":{}}` + "\n",
		"a newer initialize":            `{"id":0,"method":"initialize","params":{"protocolVersion":2,"capabilities":{}}}` + "\n",
		"an initialize without version": `{"id":0,"method":"initialize","params":{}}` + "\n",
		"a cancellation of another":     `{"method":"$/cancel_request","params":{"requestId":9}}` + "\n",
		"a tool call without terminals": `{"method":"session/update","params":{"sessionId":"s","update":{"content":[{"type":"terminal","terminalId":"x"}]}}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			editor, agent := start(t, newFake())
			for _, way := range []struct{ from, to *peer }{{agent, editor}, {editor, agent}} {
				go way.from.send(line + "{}\n")
				if got := way.to.receive(); got != line {
					t.Errorf("%.200q, %d bytes", got, len(got))
				}
				if got := way.to.receive(); got != "{}\n" {
					t.Errorf("the next line: %.200q", got)
				}
			}
		})
	}
}

// A line that is too long passes without being examined, whatever its length is. The lines around it are examined.
func TestPassLong(t *testing.T) {
	const most = 256 << 10
	var out bytes.Buffer
	var in, want strings.Builder
	for _, n := range []int{most - 1, most, most + 1, most + 64<<10 - 1, 3 * most} { // of bytes, with the line feed
		line := strings.Repeat("x", n-1) + "\n"
		in.WriteString("short\n" + line)
		want.WriteString("handled\n")
		if n <= most {
			line = "handled\n"
		}
		want.WriteString(line)
	}
	err := pass(strings.NewReader(in.String()), &lineWriter{w: &out}, most, func(line []byte) []byte {
		if len(line) > most {
			t.Errorf("a line of %d bytes is examined", len(line))
		}
		if len(line) == 0 {
			return nil
		}
		return []byte("handled\n")
	})
	if err != nil || out.String() != want.String() {
		t.Errorf("%d bytes, not %d; %v", out.Len(), want.Len(), err)
	}
}

// A last line without an end passes when the connection is closed.
func TestPassLast(t *testing.T) {
	editor, agent := start(t, newFake())
	go func() {
		agent.send(`{"id":1`)
		_ = agent.w.Close()
	}()
	got := make([]byte, 7)
	if _, err := io.ReadFull(editor.r, got); err != nil || string(got) != `{"id":1` {
		t.Errorf("%q, %v", got, err)
	}
}

// Requests that are wrong get an error, and as many as one agent makes at a time have a limit.
func TestRefused(t *testing.T) {
	_, agent := start(t, newFake())
	ask := func(id, method, params string) string {
		go agent.send(fmt.Sprintf(`{"id":%s,"method":"terminal/%s","params":%s}`+"\n", id, method, params))
		return agent.receive()
	}
	for _, tt := range []struct{ method, params, code string }{
		{"create", `null`, "-32602"},
		{"create", `{}`, "-32602"},
		{"create", `[1]`, "-32602"},
		{"create", `{"sessionId":"s","command":"x","outputByteLimit":-1}`, "-32602"},
		{"create", `{"sessionId":"s","command":"x","env":[{"name":"a=b","value":""}]}`, "-32602"},
		{"create", `{"sessionId":"s","command":"x","cwd":"."}`, "-32602"},
		{"output", `{"sessionId":"s","terminalId":"none"}`, "-32002"},
		{"output", `{"sessionId":"s","terminalId":"../../x"}`, "-32002"},
		{"kill", `{"sessionId":"s"}`, "-32002"},
		{"release", `"x"`, "-32602"},
	} {
		if got := ask(`"i"`, tt.method, tt.params); !strings.Contains(got, `"code":`+tt.code) || !strings.Contains(got, `"id":"i"`) {
			t.Errorf("%s %s: %s", tt.method, tt.params, got)
		}
	}
	var created struct{ Result createResult }
	testkit.Must(t, json.Unmarshal([]byte(ask("0", "create", `{"sessionId":"s","command":"x"}`)), &created))
	params := fmt.Sprintf(`{"sessionId":"s","terminalId":%q}`, created.Result.TerminalID)
	go func() {
		for i := range maxRequests + 1 {
			agent.send(fmt.Sprintf(`{"id":%d,"method":"terminal/wait_for_exit","params":%s}`+"\n", i, params))
		}
		agent.send(`{"method":"$/cancel_request","params":{"requestId":5}}` + "\n")
	}()
	got := agent.receive()
	if !strings.Contains(got, "1024 requests") {
		t.Error(got)
	}
	for strings.Contains(got, "1024 requests") { // the request before may still count when the first of these arrives
		got = agent.receive()
	}
	if !strings.Contains(got, `"code":-32800`) || !strings.Contains(got, `"id":5`) {
		t.Error(got)
	}
}

// slowFake starts a session in two steps: a message on starting tells that the command runs, and Spawn returns after one on started.
type slowFake struct {
	*fake
	starting, started chan struct{}
}

func (f *slowFake) Spawn(ctx context.Context, r client.SpawnRequest) (*client.Spawned, error) {
	f.starting <- struct{}{}
	select {
	case <-f.started:
		return f.fake.Spawn(ctx, r)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A terminal whose creation is cancelled while its command starts ends, because the agent never learns its id.
func TestCreateCancelled(t *testing.T) {
	f := &slowFake{fake: newFake(), starting: make(chan struct{}), started: make(chan struct{})}
	_, agent := start(t, f)
	agent.send(`{"id":1,"method":"terminal/create","params":{"sessionId":"s","command":"x"}}` + "\n")
	<-f.starting
	agent.send(`{"method":"$/cancel_request","params":{"requestId":1}}` + "\n" + `{"id":2,"method":"terminal/kill","params":1}` + "\n")
	if got := agent.receive(); strings.Contains(got, `"id":2`) { // the cancellation was read
		close(f.started)
		got = agent.receive()
		if !strings.Contains(got, `"code":-32800`) {
			t.Errorf("the answer is %s", got)
		}
	} else {
		t.Errorf("the answer before the command has started is %s", got)
	}
	select {
	case <-f.ended:
	default:
		t.Error("the command runs")
	}
}

// lateFake ends a session after a message on end, unless the request was given up before.
type lateFake struct {
	*fake
	ending, end chan struct{}
}

func (f *lateFake) Terminate(ctx context.Context, _ protocol.SessionID, _ client.End) error {
	close(f.ending)
	<-f.end
	if ctx.Err() == nil {
		f.kill()
	}
	return ctx.Err()
}

// A command that the agent releases as its last act ends.
func TestReleaseLast(t *testing.T) {
	f := &lateFake{newFake(), make(chan struct{}), make(chan struct{})}
	fromEditor, editorOut := io.Pipe()
	defer func() { _ = editorOut.Close() }()
	fromAgent, agentOut := io.Pipe()
	agentIn, toAgent := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), Options{Sessions: f, Cwd: "/", FromEditor: fromEditor, ToEditor: io.Discard, FromAgent: fromAgent, ToAgent: toAgent})
	}()
	agent := &peer{t, agentOut, bufio.NewReader(agentIn)}
	agent.send(`{"id":1,"method":"terminal/create","params":{"sessionId":"s","command":"x"}}` + "\n")
	var created struct{ Result createResult }
	testkit.Must(t, json.Unmarshal([]byte(agent.receive()), &created))
	agent.send(fmt.Sprintf(`{"id":2,"method":"terminal/release","params":{"sessionId":"s","terminalId":%q}}`+"\n", created.Result.TerminalID))
	<-f.ending
	_ = agentOut.Close()
	if _, err := agent.r.ReadString('\n'); err != io.EOF { // Run has noticed the end of the agent
		t.Error(err)
	}
	close(f.end)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	select {
	case <-f.ended:
	default:
		t.Error("the command runs")
	}
}

// busyFake has sessions whose lines and screen cannot be read.
type busyFake struct{ *fake }

func (busyFake) Screen(context.Context, protocol.SessionID, client.ScreenOptions) (*protocol.ScreenContent, error) {
	return nil, protocol.Errorf(protocol.CodeBusy, "the session is busy")
}

// If the output of an ended terminal cannot be read now, the answer is an error, and not an empty output.
func TestOutputBusy(t *testing.T) {
	f := newFake()
	f.kill()
	_, agent := start(t, busyFake{f})
	agent.send(`{"id":1,"method":"terminal/create","params":{"sessionId":"s","command":"x"}}` + "\n")
	var created struct{ Result createResult }
	testkit.Must(t, json.Unmarshal([]byte(agent.receive()), &created))
	for i, method := range []string{"wait_for_exit", "output"} {
		agent.send(fmt.Sprintf(`{"id":%d,"method":"terminal/%s","params":{"sessionId":"s","terminalId":%q}}`+"\n", i, method, created.Result.TerminalID))
		if got := agent.receive(); method == "output" && !strings.Contains(got, `"code":"busy"`) {
			t.Errorf("the answer is %s", got)
		}
	}
}

// create creates a terminal, and returns its id.
func create(t *testing.T, agent *peer) protocol.SessionID {
	t.Helper()
	agent.send(`{"id":1,"method":"terminal/create","params":{"sessionId":"s","command":"x"}}` + "\n")
	var created struct{ Result createResult }
	testkit.Must(t, json.Unmarshal([]byte(agent.receive()), &created))
	return created.Result.TerminalID
}

// update is an update of a tool call that shows a terminal.
func update(id protocol.SessionID) string {
	return fmt.Sprintf(`{"method":"session/update","params":{"sessionId":"s","update":{"toolCallId":"c","content":[{"type":"terminal","terminalId":%q}]}}}`+"\n", id)
}

// A tool call that shows a terminal has its output also if the agent releases the terminal while its command runs, and in an
// update after the release: ACP lets the editor show the output further, but the editor does not know the terminal.
func TestShowReleased(t *testing.T) {
	editor, agent := start(t, newFake())
	id := create(t, agent)
	go agent.send(update(id) + fmt.Sprintf(`{"id":2,"method":"terminal/release","params":{"sessionId":"s","terminalId":%q}}`+"\n", id))
	if got := editor.receive(); !strings.Contains(got, "runs in a terminal") {
		t.Errorf("while the command runs: %s", got)
	}
	if got := agent.receive(); !strings.Contains(got, `"result":{}`) {
		t.Fatalf("the answer to release is %s", got)
	}
	if got := editor.receive(); !strings.Contains(got, `has ended.\n`+"```"+`\noutput\n`) {
		t.Errorf("at the end: %s", got)
	}
	go agent.send(update(id))
	if got := editor.receive(); !strings.Contains(got, `has ended.\n`+"```"+`\noutput\n`) {
		t.Errorf("after the release: %s", got)
	}
	agent.send(fmt.Sprintf(`{"id":3,"method":"terminal/output","params":{"sessionId":"s","terminalId":%q}}`+"\n", id))
	if got := agent.receive(); !strings.Contains(got, `"code":-32002`) {
		t.Errorf("the answer to output after the release is %s", got)
	}
}

// An update of the agent that replaces the terminal of a tool call is the last one that the editor gets, also if the editor
// has not read for a while, and the command ends meanwhile.
func TestShowReplaced(t *testing.T) {
	for range 200 {
		f := newFake()
		fromAgent, agentOut := io.Pipe()
		editorIn, toEditor := io.Pipe()
		b := newBridge(t.Context(), Options{Sessions: f, ToEditor: toEditor})
		term := b.add(&protocol.SessionInfo{ID: "t", Labels: map[string]string{labelConversation: "s"}})
		passed := make(chan error, 1)
		go func() {
			passed <- pass(fromAgent, b.toEditor, maxMessage, b.fromAgent)
		}()
		r := bufio.NewReader(editorIn)
		text := strings.Replace(update("t"), `"type":"terminal"`, `"type":"content"`, 1)
		go func() {
			_, _ = io.WriteString(agentOut, update("t")+"a message\n"+text)
			_ = agentOut.Close()
		}()
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		f.kill()
		<-term.ended // the editor has not read the message
		go func() {
			<-passed
			b.requests.Wait()
			_ = toEditor.Close()
		}()
		var last string
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				break
			}
			last = line
		}
		if last != text {
			t.Fatalf("the last message is %s", last)
		}
	}
}

// cutFake has sessions with a line that is longer than its text in the history.
type cutFake struct{ *fake }

func (cutFake) History(context.Context, protocol.SessionID, client.HistoryOptions) (*protocol.HistoryContent, error) {
	return &protocol.HistoryContent{Lines: []protocol.HistoryLine{{Spans: []protocol.Span{{Text: "out"}}, Cut: true}}}, nil
}

// An output that lacks the end of a line is not whole.
func TestOutputCut(t *testing.T) {
	_, agent := start(t, cutFake{newFake()})
	agent.send(fmt.Sprintf(`{"id":2,"method":"terminal/output","params":{"sessionId":"s","terminalId":%q}}`+"\n", create(t, agent)))
	if got := agent.receive(); !strings.Contains(got, `"output":"out\n","truncated":true`) {
		t.Errorf("the answer is %s", got)
	}
}

// The directories of conversations that an editor names take a limited amount of memory.
func TestLongCwd(t *testing.T) {
	b := newBridge(t.Context(), Options{Sessions: newFake()})
	long := strings.Repeat("x", maxCwd+1)
	for _, names := range [][3]string{{"1", "s", "/" + long}, {long, long, "/"}, {"1", "s", "/"}} {
		if n := len(b.cwds) + len(b.newCwds); n != 0 {
			t.Errorf("%d long names are kept", n)
		}
		b.fromEditor(fmt.Appendf(nil, `{"id":%q,"method":"session/load","params":{"sessionId":%q,"cwd":%q}}`, names[0], names[1], names[2]))
	}
	b.fromAgent(fmt.Appendf(nil, `{"id":"1","result":{"sessionId":%q}}`, long))
	if len(b.cwds) != 1 || len(b.newCwds) != 0 {
		t.Errorf("the directories of %d conversations and %d requests are kept", len(b.cwds), len(b.newCwds))
	}
}

// The outputs of ended terminals are kept up to their limit, so that a later answer has the newest ones.
func TestKept(t *testing.T) {
	f := newFake()
	b := newBridge(t.Context(), Options{Sessions: f})
	big := &outputResult{Output: strings.Repeat("x", maxOutput)}
	for i := range 2 * maxKept / maxOutput {
		term := &terminal{id: protocol.SessionID(fmt.Sprint("t", i))}
		b.terminals[term.id] = term
		b.keep(term, big)
		if b.kept > maxKept || term.final == nil {
			t.Fatalf("%d bytes are kept", b.kept)
		}
	}
	for _, term := range b.terminals {
		b.drop(term)
	}
	if b.kept != 0 {
		t.Errorf("%d bytes are counted, but none is kept", b.kept)
	}
}

// A text is cut at its beginning, between characters.
func TestCut(t *testing.T) {
	for _, tt := range []struct {
		lines []string
		limit int
		want  string
		cut   bool
	}{
		{nil, 10, "", false},
		{[]string{"", "a"}, 3, "\na\n", false},
		{[]string{"äöü"}, 7, "äöü\n", false},
		{[]string{"äöü"}, 6, "öü\n", true},
		{[]string{"äöü"}, 1, "\n", true},
		{[]string{"äöü"}, 0, "", true},
		{[]string{"😀"}, 4, "\n", true},
		{[]string{"\xff"}, 9, "\uFFFD\n", false},
	} {
		if got := cut(tt.lines, tt.limit, false); got.Output != tt.want || got.Truncated != tt.cut {
			t.Errorf("%q, %d: %+v", tt.lines, tt.limit, got)
		}
	}
}

// FuzzMessages sends any bytes in both directions. Nothing panics, each line of the result is the line that was sent or JSON,
// and the agent gets an answer to each request for a terminal.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"id":1,"method":"terminal/create","params":{"sessionId":"s","command":"x","args":null,"outputByteLimit":3}}`))
	f.Add([]byte(`{"id":"a","method":"terminal/output","params":{"sessionId":"s","terminalId":"acp-1"}}`))
	f.Add([]byte(`{"method":"session/update","params":{"sessionId":"s","update":{"toolCallId":"c","content":[{"type":"terminal","terminalId":"acp-1"},7,null]}}}`))
	f.Add([]byte(`{"id":2,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":null}}`))
	f.Add([]byte("{\"id\":3,\"result\":{\"sessionId\":\"s\"}}\n{\"method\":\"$/cancel_request\",\"params\":{\"requestId\":1}}"))
	f.Add([]byte(`{"id":{},"method":"terminal/kill","params":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newFake()
		s.kill()
		ctx, cancel := context.WithCancel(t.Context())
		var toAgent bytes.Buffer
		b := newBridge(ctx, Options{Sessions: s, Cwd: "/", ToEditor: io.Discard, ToAgent: closer{&toAgent}})
		b.add(&protocol.SessionInfo{ID: "acp-1", Labels: map[string]string{labelConversation: "s"}})
		requests := 0
		for _, handle := range []func([]byte) []byte{b.fromEditor, b.fromAgent} {
			for _, line := range bytes.SplitAfter(data, []byte("\n")) {
				sent := handle(bytes.Clone(line))
				if sent == nil && parseObject(line).id() != "" {
					requests++
				}
				if sent != nil && !bytes.Equal(sent, line) && (!json.Valid(sent) || bytes.Count(sent, []byte("\n")) != 1) {
					t.Errorf("%q became %q", line, sent)
				}
			}
		}
		b.requests.Wait()
		cancel()
		for line := range bytes.Lines(toAgent.Bytes()) {
			requests--
			if !json.Valid(line) || !utf8.Valid(line) && utf8.Valid(data) {
				t.Errorf("an answer to %q is %q", data, line)
			}
		}
		if requests != 0 {
			t.Errorf("%d requests of %q have no answer", requests, data)
		}
	})
}

type closer struct{ io.Writer }

func (closer) Close() error { return nil }
