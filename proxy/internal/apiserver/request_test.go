package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

var someInfo = protocol.SessionInfo{
	ID: "s", Instance: "life", PID: 42, State: protocol.StateRunning, Size: protocol.Size{Cols: 80, Rows: 24},
	Argv: []string{"sh"}, Cwd: "/", CreatedAt: time.Unix(1000, 0).UTC(), LastIOAt: time.Unix(2000, 0).UTC(),
}

// For each request: the request that the supervisor receives, its reply, and the reply that the client receives.
// demand: S1 S4 K6 M6
func TestRequests(t *testing.T) {
	id := req("r-1")
	ms, tester := new(int64(1234)), protocol.Asker{By: "tester"}
	shown := protocol.ScreenSpec{SessionID: "s", Format: "cells", Lines: 3, Scrollback: -1, Skip: 1, NonEmpty: true, Cols: 90, Rows: 30}
	numbers := protocol.LineNumbers{First: 1, Screen: 7, Next: 9}
	older := protocol.HistorySpec{SessionID: "s", Before: new(uint64(7)), Lines: 3}
	lines := protocol.HistoryContent{
		Instance: "life", Offset: 9, LineNumbers: numbers, Looks: []protocol.Look{{}, {Bold: true}}, More: true,
		Lines: []protocol.HistoryLine{{Line: 6, Spans: []protocol.Span{{Text: "a"}, {Text: "b", Look: 1}}, Open: true}, {Line: 5, Cut: true}},
	}
	ended := protocol.CommandsContent{Instance: "life", Offset: 9, Count: 2, Commands: []protocol.CommandInfo{{Line: "make", Count: 2}}}
	behind := protocol.ChangesSpec{SessionID: "s", Since: []byte("x\xff"), MaxBytes: 300}
	changed := protocol.ChangesContent{
		Instance: "life", Offset: 9, Mark: []byte("y"), LineNumbers: numbers, Whole: true, From: 1, Lines: []protocol.ChangedLines{{Line: 6, Texts: []string{"ab"}, Cut: true}}, Alternate: true,
		Rows: []protocol.ChangedRows{{Row: 2, Texts: []string{"c", ""}}}, Title: new("t"), Size: &protocol.Size{Cols: 80, Rows: 24},
		Commands: []protocol.ChangedCommand{{Count: 2, Line: "make", ExitCode: new(1), DurationMS: 3}}, LeftOut: &protocol.LineRange{First: 1, End: 6}, LeftOutRows: 1,
	}
	wanted := protocol.SearchSpec{SessionID: "s", Pattern: "a|b", IgnoreCase: true, Before: new(uint64(0)), Limit: 2}
	matches := protocol.SearchContent{
		Instance: "life", Offset: 9, LineNumbers: numbers, Before: 4, More: true,
		Matches: []protocol.Match{{Line: 6, Text: "ab", Ranges: []protocol.Range{{Start: 0, End: 1}, {Start: 1, End: 2}}, Cut: true}},
	}
	content := protocol.ScreenContent{
		Instance: "life", Offset: 9, Cols: 80, Rows: 24, Cursor: protocol.Cursor{X: 1, Y: 2}, Title: "t", Looks: []protocol.Look{{}, {Fg: "1"}},
		Cells: []protocol.ScreenLine{{Cells: []protocol.ScreenCell{{Text: "世", Width: 2, Look: 1}}}}, Truncated: true,
	}
	was := protocol.PastContent{
		Instance: "life", Mode: protocol.DurableFull, Start: 1, End: 9, Times: []protocol.PastTime{{Offset: 1}}, Gaps: []protocol.PastGap{{From: 2, To: 3}},
		Commands: []protocol.PastCommand{{Line: "ls", Start: 4, End: 5}}, MoreCommands: true,
	}
	old := protocol.PastSearchContent{Instance: "life", Start: 1, End: 9, Matches: []protocol.PastMatch{{Offset: 3, Text: "x", Ranges: []protocol.Range{{End: 1}}}}, Before: 3, More: true}
	exit := protocol.ExitRecord{ExitCode: 3, Reason: protocol.ReasonExited, LastLines: []string{"a"}, Tail: []string{"a"}}
	mark := protocol.MarkInfo{Instance: "life", Offset: 9, Mark: []byte("x\xff"), Inclusive: []byte("y\xff")}
	awaited := protocol.AwaitSpec{SessionID: "s", Text: "a(b)", Since: mark.Mark}
	found := protocol.AwaitedInfo{
		Instance: "life", Offset: 9, Line: "xab", Groups: []string{"ab", "b"}, Command: &protocol.CommandInfo{Prompt: true, Count: 2}, Exit: &exit,
	}
	tests := []struct {
		name    string
		request protocol.Message
		asked   protocol.Message
		reply   protocol.Message
		answer  protocol.Message
	}{
		{name: "info", request: api.Info{Request: id, SessionID: "s"},
			asked: wire.Info{SessionID: "s"}, reply: wire.Session{Session: someInfo}, answer: api.Session{Request: id, Session: someInfo}},
		{name: "list", request: api.List{Request: id, Originator: "me"},
			asked: wire.List{Originator: "me"}, reply: wire.Sessions{Sessions: []protocol.SessionInfo{someInfo}}, answer: api.Sessions{Request: id, Sessions: []protocol.SessionInfo{someInfo}}},
		{name: "list of none", request: api.List{Request: id},
			asked: wire.List{}, reply: wire.Sessions{}, answer: api.Sessions{Request: id, Sessions: []protocol.SessionInfo{}}},
		{name: "scrollback", request: api.Scrollback{Request: id, SessionID: "s", Offset: 5, MaxBytes: 7},
			asked: wire.Read{SessionID: "s", Offset: 5, MaxBytes: 7}, reply: wire.Data{Instance: "life", Offset: 6, End: 9, Data: []byte("x\xff")},
			answer: api.ScrollbackData{Request: id, Instance: "life", Offset: 6, End: 9, Data: []byte("x\xff")}},
		{name: "scrollback of the past", request: api.Scrollback{Request: id, SessionID: "s", Past: true},
			asked:  wire.Read{SessionID: "s", Past: true},
			reply:  wire.Data{Instance: "life", Offset: 6, End: 9, Data: []byte("x"), Times: was.Times, Sizes: []protocol.PastSize{{Offset: 6, Size: protocol.Size{Cols: 80}}}},
			answer: api.ScrollbackData{Request: id, Instance: "life", Offset: 6, End: 9, Data: []byte("x"), Times: was.Times, Sizes: []protocol.PastSize{{Offset: 6, Size: protocol.Size{Cols: 80}}}}},
		{name: "search of the past", request: api.SearchPast{Request: id, PastSearchSpec: protocol.PastSearchSpec{SessionID: "s", Pattern: "x", Limit: 3}},
			asked: wire.SearchPast{PastSearchSpec: protocol.PastSearchSpec{SessionID: "s", Pattern: "x", Limit: 3}},
			reply: wire.SearchPastContent{PastSearchContent: old}, answer: api.SearchPastContent{Request: id, PastSearchContent: old}},
		{name: "screen", request: api.Screen{Request: id, ScreenSpec: shown},
			asked: wire.Screen{ScreenSpec: shown}, reply: wire.ScreenContent{ScreenContent: content}, answer: api.ScreenContent{Request: id, ScreenContent: content}},
		{name: "past", request: api.Past{Request: id, PastSpec: protocol.PastSpec{SessionID: "s", From: 3}},
			asked: wire.Past{PastSpec: protocol.PastSpec{SessionID: "s", From: 3}}, reply: wire.PastContent{PastContent: was}, answer: api.PastContent{Request: id, PastContent: was}},
		{name: "changes", request: api.Changes{Request: id, ChangesSpec: behind},
			asked: wire.Changes{ChangesSpec: behind}, reply: wire.ChangesContent{ChangesContent: changed}, answer: api.ChangesContent{Request: id, ChangesContent: changed}},
		{name: "commands", request: api.Commands{Request: id, SessionID: "s"},
			asked: wire.Commands{SessionID: "s"}, reply: wire.CommandsContent{CommandsContent: ended}, answer: api.CommandsContent{Request: id, CommandsContent: ended}},
		{name: "environment", request: api.Environment{Request: id, SessionID: "s"},
			asked: wire.Environment{SessionID: "s"}, reply: wire.EnvironmentContent{Env: []string{"A=1"}}, answer: api.EnvironmentContent{Request: id, Env: []string{"A=1"}}},
		{name: "away", request: api.Away{Request: id, SessionID: "s"},
			asked: wire.Away{SessionID: "s"}, reply: wire.AwayContent{AwayInfo: protocol.AwayInfo{Bells: 1}}, answer: api.AwayContent{Request: id, AwayInfo: protocol.AwayInfo{Bells: 1}}},
		{name: "history", request: api.History{Request: id, HistorySpec: older},
			asked: wire.History{HistorySpec: older}, reply: wire.HistoryContent{HistoryContent: lines}, answer: api.HistoryContent{Request: id, HistoryContent: lines}},
		{name: "search", request: api.Search{Request: id, SearchSpec: wanted},
			asked: wire.Search{SearchSpec: wanted}, reply: wire.SearchContent{SearchContent: matches}, answer: api.SearchContent{Request: id, SearchContent: matches}},
		{name: "size policy", request: api.SizePolicy{Request: id, SessionID: "s", Policy: protocol.SizeFixed, Cols: 5, Rows: 6},
			asked: wire.SizePolicy{SessionID: "s", Policy: protocol.SizeFixed, Cols: 5, Rows: 6}, reply: wire.OK{}, answer: api.OK{Request: id}},
		{name: "clear", request: api.Clear{Request: id, SessionID: "s", Screen: true},
			asked: wire.Clear{SessionID: "s", Screen: true}, reply: wire.OK{}, answer: api.OK{Request: id}},
		{name: "rename", request: api.Rename{Request: id, SessionID: "s", Title: "mine"},
			asked: wire.Relabel{SessionID: "s", Labels: map[string]string{"title": "mine"}}, reply: wire.Session{Session: someInfo}, answer: api.Session{Request: id, Session: someInfo}},
		{name: "resize", request: api.Resize{Request: id, SessionID: "s", Cols: 5, Rows: 6},
			asked: wire.Resize{SessionID: "s", Cols: 5, Rows: 6}, reply: wire.OK{}, answer: api.OK{Request: id}},
		{name: "interrupt", request: api.Interrupt{Request: id, SessionID: "s"},
			asked: wire.Interrupt{SessionID: "s"}, reply: wire.OK{}, answer: api.OK{Request: id}},
		{name: "signal", request: api.Signal{Request: id, SessionID: "s", Signal: "USR1"},
			asked: wire.Signal{SessionID: "s", Signal: "USR1", Asker: tester}, reply: wire.OK{}, answer: api.OK{Request: id}},
		{name: "limit", request: api.Limit{Request: id, SessionID: "s", Limits: protocol.Limits{PIDsMax: new(uint64(9))}},
			asked: wire.Limit{SessionID: "s", Limits: protocol.Limits{PIDsMax: new(uint64(9))}}, reply: wire.Session{Session: someInfo}, answer: api.Session{Request: id, Session: someInfo}},
		{name: "freeze", request: api.Freeze{Request: id, SessionID: "s", Frozen: true},
			asked: wire.Freeze{SessionID: "s", Frozen: true}, reply: wire.OK{}, answer: api.OK{Request: id}},
		{name: "terminate all", request: api.Terminate{Request: id, SessionID: "s", All: true},
			asked: wire.Terminate{SessionID: "s", All: true, Asker: tester}, reply: wire.OK{}, answer: api.OK{Request: id}},
		{name: "terminate", request: api.Terminate{Request: id, SessionID: "s", Instance: "life", GraceMS: ms, SoftSignal: "TERM", Reason: "bored"},
			asked: wire.Terminate{SessionID: "s", Instance: "life", GraceMS: ms, SoftSignal: "TERM", Reason: "bored", Asker: tester}, reply: wire.OK{}, answer: api.OK{Request: id}},
		{name: "forget", request: api.Forget{Request: id, SessionID: "s", Instance: "life"},
			asked: wire.Forget{SessionID: "s", Instance: "life"}, reply: wire.OK{}, answer: api.OK{Request: id}},
		{name: "wait", request: api.Wait{Request: id, SessionID: "s", Instance: "life", TimeoutMS: ms},
			asked: wire.Wait{SessionID: "s", Instance: "life", TimeoutMS: ms}, reply: wire.Exited{SessionID: "s", Instance: "life", Exit: exit},
			answer: api.Waited{Request: id, SessionID: "s", Instance: "life", Exit: exit}},
		{name: "mark", request: api.Mark{Request: id, SessionID: "s"},
			asked: wire.Mark{SessionID: "s"}, reply: wire.Marked{MarkInfo: mark}, answer: api.Marked{Request: id, MarkInfo: mark}},
		{name: "await", request: api.Await{Request: id, AwaitSpec: awaited, TimeoutMS: ms},
			asked: wire.Await{AwaitSpec: awaited, TimeoutMS: ms}, reply: wire.Awaited{AwaitedInfo: found}, answer: api.Awaited{Request: id, AwaitedInfo: found}},
		{name: "input", request: api.Input{Request: id, SessionID: "s", Data: []byte("ls\n"), Writer: "w", Offset: 8},
			asked: wire.Write{SessionID: "s", Data: []byte("ls\n"), Writer: "w", Offset: 8}, reply: wire.Accepted{Offset: 11}, answer: api.Accepted{Request: id, Offset: 11}},
		{name: "paste", request: api.Input{Request: id, SessionID: "s", Data: []byte("ls\n"), Writer: "w", Offset: 8, Paste: true},
			asked: wire.Write{SessionID: "s", Data: []byte("ls\n"), Writer: "w", Offset: 8, Paste: true}, reply: wire.Accepted{Offset: 11}, answer: api.Accepted{Request: id, Offset: 11}},
		{name: "keys", request: api.Input{Request: id, SessionID: "s", Data: []byte{}, Keys: []string{"C-c", "Up"}, Writer: "w", Offset: 8, HoldMS: 9},
			asked: wire.Write{SessionID: "s", Data: []byte{}, Keys: []string{"C-c", "Up"}, Writer: "w", Offset: 8, HoldMS: 9}, reply: wire.Accepted{Offset: 10}, answer: api.Accepted{Request: id, Offset: 10}},
		{name: "input with a line too long", request: api.Input{Request: id, SessionID: "s", Data: []byte("ls\n")},
			asked: wire.Write{SessionID: "s", Data: []byte("ls\n")}, reply: wire.Error{Error: protocol.Error{Code: protocol.CodeLineTooLong, Message: "m", Offset: new(uint64(3))}},
			answer: api.Error{Request: id, Error: protocol.Error{Code: protocol.CodeLineTooLong, Message: "m", Offset: new(uint64(3))}}},
		{name: "spawn", request: api.Spawn{Request: id, SessionID: "s", SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}, Env: []string{"A=1"}}, EarlyExitMS: new(int64), Token: "t"},
			asked: wire.Create{SessionID: "s", SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}, Env: []string{"A=1"}}, Token: "t"}, reply: wire.Session{Session: someInfo},
			answer: api.Spawned{Request: id, SessionID: "s", PID: 42, CreatedAt: someInfo.CreatedAt, Session: someInfo}},
		{name: "spawn with limits", request: api.Spawn{Request: id, SessionID: "s", SpawnSpec: protocol.SpawnSpec{
			Argv: []string{"sh"}, Limits: protocol.Limits{CPUMax: new(uint64(500))}, Labels: map[string]string{"memory_max": "64M"}}, EarlyExitMS: new(int64), Token: "t"},
			asked: wire.Create{SessionID: "s", SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}, Limits: protocol.Limits{CPUMax: new(uint64(500))}, Labels: map[string]string{"memory_max": "64M"}},
				DefaultLimits: protocol.Limits{MemoryMax: new(uint64(64 << 20))}, Token: "t"}, reply: wire.Session{Session: someInfo},
			answer: api.Spawned{Request: id, SessionID: "s", PID: 42, CreatedAt: someInfo.CreatedAt, Session: someInfo}},
		{name: "spawn with a durable label", request: api.Spawn{Request: id, SessionID: "s", SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}, Labels: map[string]string{"durable": "full"}}, EarlyExitMS: new(int64), Token: "t"},
			asked: wire.Create{SessionID: "s", SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}, Labels: map[string]string{"durable": "full"}, Durable: protocol.DurableFull}, Token: "t"}, reply: wire.Session{Session: someInfo},
			answer: api.Spawned{Request: id, SessionID: "s", PID: 42, CreatedAt: someInfo.CreatedAt, Session: someInfo}},
		{name: "reopen", request: api.Reopen{Request: id, SessionID: "s", RespawnSpec: protocol.RespawnSpec{Cwd: "/tmp"}, EarlyExitMS: new(int64), Token: "t"},
			asked: wire.Reopen{SessionID: "s", RespawnSpec: protocol.RespawnSpec{Cwd: "/tmp"}, Token: "t"}, reply: wire.Session{Session: someInfo},
			answer: api.Spawned{Request: id, SessionID: "s", PID: 42, CreatedAt: someInfo.CreatedAt, Session: someInfo}},
		{name: "events", request: api.Events{Request: id, Instance: "life", After: 4},
			asked: wire.Events{Instance: "life", After: 4}, reply: wire.Subscribed{Instance: "life", Seq: 4}, answer: api.Subscribed{Request: id, Instance: "life", Seq: 4}},
		{name: "a wrong answer", request: api.Info{Request: id, SessionID: "s"},
			asked: wire.Info{SessionID: "s"}, reply: wire.Stolen{}, answer: api.Error{Request: id, Error: *protocol.Errorf(protocol.CodeInternal, "the supervisor answered with stolen")}},
		{name: "an error", request: api.Forget{Request: id, SessionID: "s"},
			asked: wire.Forget{SessionID: "s"}, reply: wire.Error{Error: protocol.Error{Code: protocol.CodeSpawnFailed, Message: "m", Cause: protocol.CodeNotFound, Retryable: true, RetryAfterMS: 5, Exit: &exit, Offset: new(uint64(7))}},
			answer: api.Error{Request: id, Error: protocol.Error{Code: protocol.CodeSpawnFailed, Message: "m", Cause: protocol.CodeNotFound, Retryable: true, RetryAfterMS: 5, Exit: &exit, Offset: new(uint64(7))}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.Reply(func(protocol.Message) (protocol.Message, error) { return tt.reply, nil })
			c := w.client()
			c.send(tt.request)
			answer, ok := c.mustNext().(protocol.Message)
			if !ok {
				t.Fatal("data came")
			}
			equal(t, "reply to the client", answer, tt.answer)
			equal(t, "request of the link", asGiven(w.Requests()[0], tt.asked), tt.asked)
		})
	}
}

// asGiven returns the request without the names and tokens that the link client has added.
func asGiven(asked, want protocol.Message) protocol.Message {
	switch m := asked.(type) {
	case *wire.Create:
		if w, ok := want.(wire.Create); ok && w.Token == "" {
			m.Token = ""
			if w.SessionID == "" {
				m.SessionID = ""
			}
		}
	case *wire.Reopen:
		if w, ok := want.(wire.Reopen); ok && w.Token == "" {
			m.Token = ""
		}
	case *wire.Write:
		if w, ok := want.(wire.Write); ok && w.Writer == "" {
			m.Writer = ""
		}
	case *wire.Attach:
		if w, ok := want.(wire.Attach); ok && w.Writer == "" {
			m.Writer = ""
		}
	}
	return asked
}

// A long list is sent in parts on both wires.
func TestLongList(t *testing.T) {
	w := newWorld(t, nil)
	all := make([]protocol.SessionInfo, 1000)
	for i := range all {
		all[i] = someInfo
		all[i].ID = protocol.SessionID(fmt.Sprint("s", i))
		all[i].Argv = []string{strings.Repeat("x", 1000)}
	}
	w.Answer(func(st *link.Stream, _ protocol.Message) { _ = st.SendSessions(all) })
	c := w.client()
	c.send(api.List{Request: req("l")})
	var got []protocol.SessionInfo
	parts := 0
	for more := true; more; parts++ {
		m := expect[*api.Sessions](c)
		if m.RequestID != "l" {
			t.Errorf("a part of request %q", m.RequestID)
		}
		got, more = append(got, m.Sessions...), m.More
	}
	if parts < 2 || !reflect.DeepEqual(got, all) {
		t.Errorf("%d sessions in %d parts", len(got), parts)
	}
}

// demand: S8
func TestStatus(t *testing.T) {
	w := newWorld(t, nil)
	supervisor := protocol.ProcessStatus{PID: 7, Version: "1", Protocol: protocol.Supported(), Instance: "life", Sessions: 3, Clients: 1}
	w.Reply(func(protocol.Message) (protocol.Message, error) {
		return wire.StatusReport{Supervisor: supervisor}, nil
	})
	c, _ := w.client(), w.client()
	c.send(api.Status{Request: req("s")})
	m := expect[*api.StatusReport](c)
	if m.RequestID != "s" || m.Supervisor == nil || *m.Supervisor != supervisor {
		t.Errorf("received %+v", m)
	}
	if p := m.Proxy; p.PID != os.Getpid() || p.Clients != 2 || p.Sessions != 3 || p.Protocol != protocol.Supported() {
		t.Errorf("the proxy is %+v", p)
	}

	// If the supervisor is not reachable, status still reports about the proxy.
	w.Reply(func(protocol.Message) (protocol.Message, error) {
		return nil, protocol.Errorf(protocol.CodeInternal, "no")
	})
	c.send(api.Status{Request: req("t")})
	if m := expect[*api.StatusReport](c); m.RequestID != "t" || m.Supervisor != nil {
		t.Errorf("received %+v", m)
	}
}

// A request whose link is lost is answered over the next link. A request that must not be repeated fails with
// supervisor_unreachable, because the sessions still exist.
// demand: S8
func TestUnreachable(t *testing.T) {
	w := newWorld(t, nil)
	asked := make(chan struct{}, 2)
	w.Answer(func(st *link.Stream, _ protocol.Message) {
		asked <- struct{}{}
		_, _ = st.Next()
	})
	c := w.client()
	c.send(api.Signal{Request: req("s"), SessionID: "s", Signal: "USR1"})
	testkit.Within(t, patience, "the supervisor is asked", asked)
	w.Cut()
	if e := c.wantError(protocol.CodeSupervisorUnreachable); e.RequestID != "s" || !e.Retryable {
		t.Errorf("received %+v", e)
	}
	c.send(api.Forget{Request: req("f"), SessionID: "s"})
	testkit.Within(t, patience, "the supervisor is asked", asked)
	w.Reply(func(protocol.Message) (protocol.Message, error) {
		return nil, protocol.ErrSessionNotFound // the first request has removed the session
	})
	w.Cut()
	if m := expect[*api.OK](c); m.RequestID != "f" {
		t.Errorf("received %+v", m)
	}
}

// Unknown messages, and messages that are not requests, are answered only if they have a request id.
func TestNoRequest(t *testing.T) {
	w := newWorld(t, nil)
	c := w.client()
	for _, raw := range []string{`{"type":"teleport"}`, `{"type":"welcome"}`, `{"type":"pty_exited"}`, `{"type":"hello"}`} {
		c.raw(text(raw)) // ignored, because there is no request id
		c.ping()
		c.raw(text(strings.Replace(raw, "{", `{"request_id":"x",`, 1)))
		if e := c.wantError(protocol.CodeUnsupported); e.RequestID != "x" {
			t.Errorf("%s: received %+v", raw, e)
		}
	}
	if asked := w.Requests(); len(asked) > 0 {
		t.Errorf("the supervisor received %v", asked)
	}
}

// A ping is answered by the proxy itself.
func TestPing(t *testing.T) {
	w := newWorld(t, nil)
	c := w.client()
	c.send(api.Ping{Request: req("p")})
	if m := expect[*api.OK](c); m.RequestID != "p" || len(w.Requests()) > 0 {
		t.Errorf("received %+v, and the supervisor received %v", m, w.Requests())
	}
}

// TestHandlers checks that each request of the api has a handler, and that there is no other handler.
func TestHandlers(t *testing.T) {
	for _, k := range api.Messages.Requests() {
		if handlers[k.Type()] == nil && orderedHandlers[k.Type()] == nil {
			t.Errorf("request %s has no handler", k.Type())
		}
	}
	for _, typ := range slices.Concat(slices.Collect(maps.Keys(handlers)), slices.Collect(maps.Keys(orderedHandlers))) {
		if _, ok := api.Messages.Request(typ); !ok {
			t.Errorf("%s has a handler, but it is no request", typ)
		}
	}
}

// TestLinkRequests checks that the supervisor receives the link's request that the row of a request
// names, and that the client receives the reply of that row.
func TestLinkRequests(t *testing.T) {
	for _, k := range api.Messages.Requests() {
		ask, ok := verbs[k.Type()]
		if !ok || k.Link == nil || k.Reply == nil {
			continue
		}
		t.Run(k.Type(), func(t *testing.T) {
			w := newWorld(t, nil)
			on, _ := wire.Messages.Request(k.Link.MessageType())
			w.Reply(func(protocol.Message) (protocol.Message, error) { return on.Reply, nil })
			c := w.client()
			c.send(ask("s"))
			if m, ok := c.mustNext().(protocol.Message); !ok || m.MessageType() != k.Reply.MessageType() {
				t.Errorf("got %T %+v, want %s", m, m, k.Reply.MessageType())
			}
			if asked := w.Requests(); len(asked) == 0 || asked[0].MessageType() != on.Type() {
				t.Errorf("the supervisor received %v, want %s", asked, on.Type())
			}
		})
	}
}

// unanswered are the messages of a client that have no reply.
var unanswered = []string{"terminal.data", "terminal.resize", "terminal.close"}

// Every message with a request id gets a reply.
func TestEveryMessage(t *testing.T) {
	w := newWorld(t, nil)
	w.Reply(func(m protocol.Message) (protocol.Message, error) {
		return nil, protocol.Errorf(protocol.CodeSessionNotFound, "no session")
	})
	for _, name := range api.Messages.Types() {
		if slices.Contains(unanswered, name) {
			continue
		}
		c := w.client()
		c.raw(text(fmt.Sprintf(`{"type":%q,"request_id":"r-7"}`, name)))
		m := c.mustNext()
		r, ok := m.(interface{ ID() string })
		if !ok || r.ID() != "r-7" {
			t.Errorf("the reply to %s is %T %+v", name, m, m)
		}
		if e, ok := m.(*api.Error); ok && e.Code == protocol.CodeInternal {
			t.Errorf("%s: %v", name, e.Error)
		}
		c.nc.Close()
	}
}

// hold makes the supervisor delay its replies to some requests until the returned function is called.
func hold(w *world, names ...string) (goOn func()) {
	release := make(chan struct{})
	w.Answer(func(st *link.Stream, m protocol.Message) {
		if slices.Contains(names, m.MessageType()) {
			gone := make(chan struct{})
			go func() { defer close(gone); _, _ = st.Next() }()
			select {
			case <-release:
			case <-gone:
			}
		}
		_ = st.Send(wire.OK{})
	})
	return func() { close(release) }
}

// A client has a limited number of requests in progress. Further requests wait, and those of other clients do not.
func TestRequestsLimit(t *testing.T) {
	w := newWorld(t, nil)
	goOn := hold(w, "forget")
	c, other := w.client(), w.client()
	for i := range maxRequests + 1 {
		c.send(api.Forget{Request: req(fmt.Sprint(i)), SessionID: "s"})
	}
	testkit.Eventually(t, patience, func() bool { return len(w.Requests("forget")) == maxRequests }, "all places are taken")
	other.send(api.Signal{Request: req("x"), SessionID: "s", Signal: "USR1"})
	expect[*api.OK](other)
	if n := len(w.Requests("forget")); n != maxRequests {
		t.Errorf("%d requests are in progress", n)
	}
	goOn()
	seen := map[string]bool{}
	for range maxRequests + 1 {
		seen[expect[*api.OK](c).RequestID] = true
	}
	if len(seen) != maxRequests+1 {
		t.Errorf("%d answers", len(seen))
	}
}

// A client that reads no replies holds only a few large ones. Its other requests do not wait for these.
func TestLargeRepliesLimit(t *testing.T) {
	w := newWorld(t, nil)
	goOn := hold(w, "read")
	defer goOn()
	c := w.client()
	for range 2 * maxLargeReplies {
		c.send(api.Scrollback{SessionID: "s"})
	}
	testkit.Eventually(t, patience, func() bool { return len(w.Requests("read")) == maxLargeReplies }, "all places are taken")
	c.send(api.Forget{Request: req("f"), SessionID: "s"})
	expect[*api.OK](c)
	if n := len(w.Requests("read")); n != maxLargeReplies {
		t.Errorf("%d reads are in progress", n)
	}
}

// Waits may last for any time, so they do not count as other requests, and have a limit of their own.
func TestWaitsLimit(t *testing.T) {
	w := newWorld(t, nil)
	goOn := hold(w, "wait", "await")
	defer goOn()
	c := w.client()
	for i := range maxWaits {
		if i%2 == 0 {
			c.send(api.Await{Request: req(fmt.Sprint(i)), AwaitSpec: protocol.AwaitSpec{SessionID: "s", Prompt: true}})
			continue
		}
		c.send(api.Wait{Request: req(fmt.Sprint(i)), SessionID: "s"})
	}
	c.send(api.Wait{Request: req("beyond"), SessionID: "s"})
	if e := c.wantError(protocol.CodeLimitExceeded); e.RequestID != "beyond" {
		t.Errorf("received %+v", e)
	}
	c.send(api.Forget{Request: req("f"), SessionID: "s"})
	if m := expect[*api.OK](c); m.RequestID != "f" {
		t.Errorf("received %+v", m)
	}
}

// The waits of all clients together have a limit, so that some streams of the link are free for other requests.
func TestAllWaitsLimit(t *testing.T) {
	w := newWorld(t, nil)
	hold(w, "wait")
	c := w.client()
	c.send(api.Wait{Request: req("first"), SessionID: "s"})
	testkit.Eventually(t, patience, func() bool { return len(w.Requests("wait")) == 1 }, "the wait has begun")
	for range maxAllWaits - 1 {
		w.server.waitSlots <- struct{}{} // as waits of other clients do
	}
	c.send(api.Wait{Request: req("beyond"), SessionID: "s"})
	if e := c.wantError(protocol.CodeLimitExceeded); e.RequestID != "beyond" {
		t.Errorf("received %+v", e)
	}
	c.send(api.Wait{Request: req(strings.Repeat("x", maxWaitBytes)), SessionID: "s"})
	c.wantError(protocol.CodeLimitExceeded)
	_ = c.nc.Close()
	testkit.Eventually(t, patience, func() bool { return len(w.server.waitSlots) == maxAllWaits-1 }, "the place of the first wait is free")
}

// A wait that is moved to another proxy lasts no longer than the client has asked.
func TestMovedWaitHasTheTimeThatIsLeft(t *testing.T) {
	ms := int64(60_000)
	for _, m := range []protocol.Message{&api.Wait{TimeoutMS: &ms}, &api.Await{TimeoutMS: &ms}} {
		raw, err := protocol.Encode(m)
		testkit.Must(t, err)
		var p pendingRequests
		q := p.add(m, raw)
		q.begun = q.begun.Add(-20 * time.Second)
		q.cancel = func() {}
		moved := p.freeze()
		var got struct {
			Type      string `json:"type"`
			TimeoutMS int64  `json:"timeout_ms"`
		}
		testkit.Must(t, json.Unmarshal(moved[0], &got))
		if got.Type != m.MessageType() || got.TimeoutMS > 40_000 || got.TimeoutMS < 30_000 {
			t.Errorf("moved as %s", moved[0])
		}
	}
}

// A server ends its connections also while their readers wait for a request to end.
func TestGoawayBesideManyRequests(t *testing.T) {
	w := newWorld(t, nil)
	hold(w, "forget")
	c := w.client()
	for i := range maxRequests + 1 {
		c.send(api.Forget{Request: req(fmt.Sprint(i)), SessionID: "s"})
	}
	testkit.Eventually(t, patience, func() bool { return len(w.Requests("forget")) == maxRequests }, "all places are taken")
	ended := make(chan struct{})
	go func() {
		w.server.Goaway("test", time.Second)
		close(ended)
	}()
	testkit.Within(t, patience, "the end of the connections", ended)
}

// A client that has disconnected is noticed by the first reply that cannot be written, also while the reader waits for a
// request to end.
func TestGoneClientBesideManyRequests(t *testing.T) {
	w := newWorld(t, nil)
	answer := make(chan struct{})
	w.Answer(func(st *link.Stream, m protocol.Message) {
		if m.MessageType() == "forget" {
			_, _ = st.Next() // ends when the request is canceled
			return
		}
		<-answer
		_ = st.Send(wire.OK{})
	})
	c := w.client()
	c.send(api.Signal{Request: req("s"), SessionID: "s", Signal: "USR1"})
	for range 2 * maxRequests { // the reader has those that it has no place for, and so does not read
		c.send(api.Forget{SessionID: "s"})
	}
	testkit.Eventually(t, patience, func() bool { return len(w.Requests("forget")) == maxRequests-1 }, "all places are taken")
	c.nc.Close()
	close(answer)
	testkit.Within(t, patience, "the end of the connection", c.served)
}

// The requests of a client that disconnects are canceled.
func TestGoneClient(t *testing.T) {
	for _, request := range []protocol.Message{
		api.Wait{Request: req("r"), SessionID: "s"},
		api.Await{Request: req("r"), AwaitSpec: protocol.AwaitSpec{SessionID: "s", Text: "x"}},
		api.Search{Request: req("r"), SearchSpec: protocol.SearchSpec{SessionID: "s", Pattern: "x"}},
		api.Past{Request: req("r"), PastSpec: protocol.PastSpec{SessionID: "s"}},
		api.SearchPast{Request: req("r"), PastSearchSpec: protocol.PastSearchSpec{SessionID: "s", Pattern: "x"}},
	} {
		t.Run(request.MessageType(), func(t *testing.T) {
			w := newWorld(t, nil)
			given := make(chan error, 1)
			asked := make(chan struct{})
			w.Answer(func(st *link.Stream, _ protocol.Message) {
				close(asked)
				_, err := st.Next()
				given <- err
			})
			c := w.client()
			c.send(request)
			testkit.Within(t, patience, "the supervisor is asked", asked)
			c.nc.Close()
			testkit.Within(t, patience, "the request is canceled", given)
			testkit.Within(t, patience, "the server is done", c.served)
		})
	}
}
