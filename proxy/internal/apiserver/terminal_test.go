package apiserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/policy"
	"holdfast/shared/config"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// tasks is a policy that knows some tasks by their ids.
type tasks map[string]policy.Task

func (tasks) Authenticate(context.Context, policy.Credentials) (policy.Principal, error) {
	return policy.Principal{All: true}, nil
}
func (tasks) Authorize(context.Context, policy.Access) error { return nil }
func (tasks) Observe(context.Context, policy.Event) error    { return nil }

func (p tasks) ResolveTask(_ context.Context, r policy.TaskRequest) (policy.Task, error) {
	task, ok := p[r.TaskID]
	switch {
	case !ok:
		return task, policy.Refuse(policy.CodeTaskNotFound, "no task "+r.TaskID)
	case r.WorkspaceID != "ours":
		return task, policy.Refuse(policy.CodeWorkspaceMismatch, "the task is of another workspace")
	}
	return task, nil
}

var someTasks = tasks{
	"good": {
		WorkDir: "/work", Env: []string{"A=1", "HOLDFAST_ISSUE_ID=8"}, Labels: map[string]string{"title": "T", "user_id": "policy says"},
		IssueID: "7", PriorAgentSessionID: "x",
	},
	"command": {WorkDir: "/work", Argv: []string{"make", "test"}},
	"nowhere": {},
}

func withTasks(c *Config) { c.Policy, c.EarlyExit = someTasks, -1 }

// terminals is a supervisor that starts every requested session.
func terminals(w *world) *stage {
	s := newStage(w, protocol.AttachInfo{InputOffset: 0, Writer: "w"})
	w.Answer(func(st *link.Stream, m protocol.Message) {
		if m, ok := m.(*wire.Create); ok {
			_ = st.Send(wire.Session{Session: protocol.SessionInfo{ID: "made", Instance: "life", Argv: m.Argv, Cwd: m.Cwd}})
			return
		}
		if m, ok := m.(*wire.Info); ok {
			_ = st.Send(wire.Session{Session: protocol.SessionInfo{ID: m.SessionID, Instance: "life"}})
			return
		}
		s.answer(st, m)
	})
	return s
}

// A task's terminal from its opening to its exit.
// demand: M2 M4 M15
func TestTerminal(t *testing.T) {
	w := newWorld(t, withTasks)
	s := terminals(w)
	c := w.client(protocol.CapTerminalExit)
	c.send(api.TerminalOpen{Request: req("o"), TaskID: "good", WorkspaceID: "ours", UserID: "me", Cols: 100, Rows: 0})
	if m := expect[*api.TerminalOpened](c); m.RequestID != "o" || m.SessionID != "made" || m.WorkDir != "/work" || m.Shell != config.LoginShell() {
		t.Errorf("received %+v", m)
	}
	create := w.Requests("create")[0].(*wire.Create)
	env := []string{
		"HOLDFAST_WORKSPACE_ID=ours", "HOLDFAST_TASK_ID=good", "HOLDFAST_ISSUE_ID=7", "HOLDFAST_USER_ID=me",
		"HOLDFAST_PRIOR_AGENT_SESSION_ID=x", "A=1", "HOLDFAST_ISSUE_ID=8", // the last one counts
	}
	if create.Cwd != "/work" || !slices.Equal(create.Argv, []string{config.LoginShell(), "-l"}) || !slices.Equal(create.Env, env) || create.ClearInheritedEnv || create.Cols != 100 || create.Rows != 0 {
		t.Errorf("created %+v", create)
	}
	for label, want := range map[string]string{"task_id": "good", "workspace_id": "ours", "user_id": "policy says", "title": "T"} {
		if create.Labels[label] != want {
			t.Errorf("label %s is %q, want %q", label, create.Labels[label], want)
		}
	}
	a := s.next()
	if a.spec.SessionID != "made" || a.spec.Client != "tester" || a.spec.Cols != 0 {
		t.Errorf("the attach is %+v", a.spec)
	}

	_ = a.st.SendRaw(frame.AppendData(nil, frame.Snapshot, a.spec.Attachment, 0, []byte("$ ")))
	a.print(0, "\xff\x00")
	for _, want := range []string{"$ ", "\xff\x00"} {
		if m := expect[*api.TerminalData](c); m.SessionID != "made" || string(m.Data) != want {
			t.Errorf("received %+v, want %q", m, want)
		}
	}
	c.send(api.TerminalData{SessionID: "made", Data: []byte("ls\n")})
	c.send(api.TerminalData{SessionID: "made"})
	if got := testkit.Within(t, patience, "the session hears it", a.heard); got != (typed{a.spec.Attachment, 0, "ls\n"}) {
		t.Errorf("received %+v", got)
	}
	a.say(wire.Accepted{Offset: 3})
	c.send(api.TerminalResize{SessionID: "made", Cols: 50, Rows: 20})
	equal(t, "heard", testkit.Within(t, patience, "the session hears it", a.heard), &wire.Resize{Cols: 50, Rows: 20})
	c.send(api.TerminalClose{SessionID: "made", Reason: "bored"})
	c.send(api.Resize{Request: req("r"), SessionID: "made"})
	expect[*api.OK](c)
	a.say(wire.Exited{SessionID: "made", Instance: "life", Exit: protocol.ExitRecord{ExitCode: 129, Reason: "bored"}})
	if m := expect[*api.TerminalExit](c); m.SessionID != "made" || m.ExitCode != 129 || m.Reason != "bored" || *m.Attachment != a.spec.Attachment {
		t.Errorf("received %+v", m)
	}
	for m := range a.heard {
		t.Errorf("received %+v", m)
	}
	// The close does not wait for an earlier request.
	testkit.Eventually(t, patience, func() bool { return len(w.Requests("terminate")) > 0 }, "the end was not asked for")
	testTerminate := w.Requests("terminate")
	if len(testTerminate) != 1 || testTerminate[0].(*wire.Terminate).Reason != "bored" || testTerminate[0].(*wire.Terminate).SessionID != "made" {
		t.Errorf("the terminates are %+v", testTerminate)
	}
	c.send(api.TerminalData{SessionID: "made", Data: []byte("x")})
	if m := expect[*api.TerminalError](c); m.SessionID != "made" || m.Code != protocol.CodeSessionNotFound {
		t.Errorf("received %+v", m)
	}
}

// A terminal.open that fails leaves no session.
// demand: M2 M3 M14 M15
func TestTerminalRefused(t *testing.T) {
	for _, tt := range []struct {
		name       string
		task, ws   string
		supervisor error // the error of create
		want       protocol.Code
		created    bool
	}{
		{name: "unknown task", task: "none", ws: "ours", want: protocol.CodeTaskNotFound},
		{name: "another workspace", task: "good", ws: "theirs", want: protocol.CodeWorkspaceMismatch},
		{name: "no work dir", task: "nowhere", ws: "ours", want: protocol.CodeTaskNotFound},
		{name: "shutting down", task: "good", ws: "ours", supervisor: protocol.Errorf(protocol.CodeClosed, "no"), want: protocol.CodeClosed, created: true},
		{name: "not started", task: "good", ws: "ours", supervisor: &protocol.Error{Code: protocol.CodeSpawnFailed, Cause: protocol.CodeNotFound}, want: protocol.CodeSpawnFailed, created: true},
		{name: "no terminals here", task: "good", ws: "ours", supervisor: &protocol.Error{Code: protocol.CodeSpawnFailed, Cause: protocol.CodeUnsupportedOS}, want: protocol.CodeUnsupportedOS, created: true},
		{name: "our fault", task: "good", ws: "ours", supervisor: errors.New("oops"), want: protocol.CodeInternal, created: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, withTasks)
			w.Reply(func(protocol.Message) (protocol.Message, error) { return nil, tt.supervisor })
			c := w.client()
			c.send(api.TerminalOpen{Request: req("o"), TaskID: tt.task, WorkspaceID: tt.ws})
			if m := expect[*api.TerminalError](c); m.RequestID != "o" || m.SessionID != "" || m.Code != tt.want || m.Message == "" && !tt.created {
				t.Errorf("received %+v, want %s", m, tt.want)
			}
			if created := len(w.Requests()) > 0; created != tt.created {
				t.Errorf("the supervisor received a create: %+v", w.Requests())
			}
			c.ping()
		})
	}
}

// If the child ends early, terminal.open fails. If the attach fails, the error names the session.
func TestTerminalOpensAndEnds(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Policy = someTasks })
	w.Reply(child(&someExit))
	c := w.client()
	c.send(api.TerminalOpen{Request: req("o"), TaskID: "command", WorkspaceID: "ours"})
	if m := expect[*api.TerminalError](c); m.RequestID != "o" || m.Code != protocol.CodeExitedEarly {
		t.Errorf("received %+v", m)
	}
	if create := w.Requests("create")[0].(*wire.Create); !slices.Equal(create.Argv, []string{"make", "test"}) {
		t.Errorf("created %+v", create)
	}
	w.Reply(func(m protocol.Message) (protocol.Message, error) {
		if _, ok := m.(*wire.Attach); ok {
			return nil, protocol.Errorf(protocol.CodeLimitExceeded, "no")
		}
		return child(nil)(m)
	})
	c.send(api.TerminalOpen{Request: req("p"), TaskID: "good", WorkspaceID: "ours"})
	if m := expect[*api.TerminalError](c); m.RequestID != "p" || m.Code != protocol.CodeLimitExceeded || m.SessionID != "s" {
		t.Errorf("received %+v", m)
	}
}

// Every terminal message about a session that is not a terminal of this connection fails.
// demand: M6 M15
func TestNoTerminal(t *testing.T) {
	w := newWorld(t, nil)
	w.Reply(func(protocol.Message) (protocol.Message, error) {
		return nil, protocol.Errorf(protocol.CodeSessionNotFound, "no session x")
	})
	c := w.client()
	for _, m := range []protocol.Message{
		api.TerminalData{SessionID: "x", Data: []byte("x")}, api.TerminalResize{SessionID: "x"}, api.TerminalClose{SessionID: "x"},
	} {
		c.send(m)
		if e := expect[*api.TerminalError](c); e.SessionID != "x" || e.Code != protocol.CodeSessionNotFound {
			t.Errorf("%s: received %+v", m.MessageType(), e)
		}
	}
	// A close of a session that has exited causes no error, because the exit is reported anyway.
	w.Reply(func(protocol.Message) (protocol.Message, error) {
		return nil, &protocol.Error{Code: protocol.CodeSessionExited}
	})
	c.send(api.TerminalClose{SessionID: "x"})
	c.ping()
	testkit.Eventually(t, patience, func() bool { return len(w.Requests("terminate")) == 2 }, "the supervisor is asked")
	c.ping()
}

// An attach with Text receives text messages, and its input continues at the offset of its writer.
func TestTextAttachment(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{Writer: "w", InputOffset: 100})
	c := w.client()
	c.send(api.Attach{Request: req("a"), Attachment: 4, Text: true, AttachSpec: protocol.AttachSpec{SessionID: "s", Writer: "w"}})
	if m := expect[*api.Attached](c); m.InputOffset != 100 {
		t.Errorf("received %+v", m)
	}
	a := s.next()
	a.print(0, "hi")
	if m := expect[*api.TerminalData](c); m.SessionID != "s" || string(m.Data) != "hi" {
		t.Errorf("received %+v", m)
	}
	_ = a.st.SendRaw(frame.AppendData(nil, frame.View, 4, 2, []byte("view")))
	if m := expect[*api.TerminalData](c); string(m.Data) != "view" {
		t.Errorf("received %+v", m)
	}
	c.send(api.TerminalData{SessionID: "s", Data: []byte("abc")})
	if got := testkit.Within(t, patience, "the session hears it", a.heard); got != (typed{4, 100, "abc"}) {
		t.Errorf("received %+v", got)
	}
	// The proxy sends input again that the session has not accepted, without a message to the client.
	_ = a.st.Fail(&protocol.Error{Code: protocol.CodeInputGap, Offset: new(uint64(101))})
	if got := testkit.Within(t, patience, "the session hears it", a.heard); got != (typed{4, 101, "bc"}) {
		t.Errorf("received %+v", got)
	}
	a.say(wire.Accepted{Offset: 103})
	w.Cut()
	s2 := s.next()
	a.say(wire.Accepted{Offset: 103})
	c.send(api.TerminalData{SessionID: "s", Data: []byte("d")})
	for got := range s2.heard {
		if m, ok := got.(typed); ok && strings.HasSuffix(m.bytes, "d") {
			break
		}
	}
	c.ping()
	c.send(api.Detach{Request: req("d"), Attachment: 4})
	expect[*api.Detached](c)
	c.send(api.TerminalData{SessionID: "s", Data: []byte("x")})
	expect[*api.TerminalError](c)
}

// Input to a read-only attachment is refused once, and not sent to the supervisor again and again.
func TestTextInputToReadOnly(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{Writer: "w"})
	c := w.client()
	c.send(api.Attach{Request: req("a"), Attachment: 4, Text: true, AttachSpec: protocol.AttachSpec{SessionID: "s", Mode: protocol.ModeReadOnly}})
	expect[*api.Attached](c)
	a := s.next()
	c.send(api.TerminalData{SessionID: "s", Data: []byte("x")})
	if m := expect[*api.TerminalError](c); m.SessionID != "s" || m.Code != protocol.CodePermissionDenied {
		t.Errorf("received %+v", m)
	}
	c.send(api.TerminalResize{SessionID: "s", Cols: 50, Rows: -20})
	if m := expect[*api.TerminalError](c); m.SessionID != "s" || m.Code != protocol.CodeInvalidArgument {
		t.Errorf("received %+v", m)
	}
	c.send(api.TerminalResize{SessionID: "s", Cols: 50, Rows: 20})
	equal(t, "heard", testkit.Within(t, patience, "the session hears it", a.heard), &wire.Resize{Cols: 50, Rows: 20})
}

// If too much input waits, further input is dropped, and the client receives an error.
func TestTerminalInputBound(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	c.send(api.Attach{Request: req("a"), Attachment: 4, Text: true, AttachSpec: protocol.AttachSpec{SessionID: "s"}})
	expect[*api.Attached](c)
	s.next() // the session accepts no input
	for range 3 {
		c.send(api.TerminalData{SessionID: "s", Data: make([]byte, 512<<10)})
	}
	if m := expect[*api.TerminalError](c); m.SessionID != "s" || m.Code != protocol.CodeInputFull {
		t.Errorf("received %+v", m)
	}
}

// The built-in policy permits everything.
func TestAllowAll(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.EarlyExit = -1 })
	terminals(w)
	t.Setenv("HOME", "/home/me")
	c := w.client()
	c.send(api.TerminalOpen{Request: req("o"), TaskID: "any", WorkspaceID: "ws", UserID: "me"})
	if m := expect[*api.TerminalOpened](c); m.WorkDir != "/home/me" {
		t.Errorf("received %+v", m)
	}
	want := []string{"HOLDFAST_WORKSPACE_ID=ws", "HOLDFAST_TASK_ID=any", "HOLDFAST_USER_ID=me"}
	if create := w.Requests("create")[0].(*wire.Create); !slices.Equal(create.Env, want) {
		t.Errorf("the environment is %q", create.Env)
	}
	c.send(api.TerminalOpen{Request: req("o")})
	if m := expect[*api.TerminalError](c); m.Code != protocol.CodeTaskNotFound {
		t.Errorf("received %+v", m)
	}
}
