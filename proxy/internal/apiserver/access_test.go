package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/proxy/policy"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// house is a policy: a token is "user@workspace", or "root", and verbs can be forbidden to a user. It stores the
// questions and events that it receives.
type house struct {
	mu        sync.Mutex
	forbidden map[policy.Verb]string // the user to whom a verb is forbidden
	broken    error                  // the error that it returns instead of every answer
	asked     []policy.Access
	told      []policy.Event
}

func (h *house) Authenticate(_ context.Context, c policy.Credentials) (policy.Principal, error) {
	user, workspace, ok := strings.Cut(c.Token, "@")
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.broken != nil:
		return policy.Principal{}, h.broken
	case c.Token == "root", c.Token == "" && c.UID >= 0:
		return policy.Principal{User: "root", All: true}, nil
	case !ok:
		return policy.Principal{}, policy.Refuse(policy.CodeUnauthorized, "unknown token")
	}
	return policy.Principal{User: user, Workspace: workspace}, nil
}

func (h *house) ResolveTask(_ context.Context, r policy.TaskRequest) (policy.Task, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return policy.Task{WorkDir: "/", Labels: map[string]string{protocol.LabelWorkspace: "b"}}, h.broken
}

func (h *house) Authorize(_ context.Context, a policy.Access) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, a)
	if h.forbidden[a.Verb] == a.Principal.User {
		return policy.Refuse(policy.CodePermissionDenied, "not you")
	}
	return h.broken
}

func (h *house) Observe(_ context.Context, e policy.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, e)
	return nil
}

// saw reports whether the policy has received an event.
func (h *house) saw(kind, user string, id protocol.SessionID, code protocol.Code) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.told, func(e policy.Event) bool {
		return e.Kind == kind && e.Principal.User == user && e.SessionID == string(id) && e.Code == string(code)
	})
}

// A vault is a supervisor that has some sessions, and notes the requests about them.
type vault struct {
	w        *world
	mu       sync.Mutex
	sessions map[protocol.SessionID]protocol.SessionInfo
	done     []protocol.Message // requests that were executed, except info
	events   []wire.Event
	between  func(request protocol.Message) // called before a request is answered
}

func newVault(w *world, sessions map[protocol.SessionID]string) *vault {
	v := &vault{w: w, sessions: map[protocol.SessionID]protocol.SessionInfo{}}
	for id, workspace := range sessions {
		v.put(id, "life-"+protocol.Instance(id), workspace)
	}
	w.Answer(v.answer)
	return v
}

func (v *vault) put(id protocol.SessionID, life protocol.Instance, workspace string) {
	labels := map[string]string{}
	if workspace != "" {
		labels[protocol.LabelWorkspace] = workspace
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sessions[id] = protocol.SessionInfo{ID: id, Instance: life, State: protocol.StateRunning, Argv: []string{"sh"}, Cwd: "/", Labels: labels}
}

func (v *vault) answer(st *link.Stream, m protocol.Message) {
	if v.between != nil {
		v.between(m)
	}
	v.mu.Lock()
	reply, err := v.reply(m)
	events := v.events
	v.mu.Unlock()
	if err != nil {
		_ = st.Fail(err)
		return
	}
	_ = st.Send(reply)
	if _, ok := reply.(wire.Subscribed); ok {
		for _, e := range events {
			_ = st.Send(e)
		}
	}
	switch m.(type) {
	case *wire.Attach, *wire.Events:
		_, _ = st.Next() // until the proxy ends the stream
	}
}

func (v *vault) reply(m protocol.Message) (protocol.Message, error) {
	switch m := m.(type) {
	case *wire.List:
		return wire.Sessions{Sessions: slices.SortedFunc(maps.Values(v.sessions), func(a, b protocol.SessionInfo) int {
			return strings.Compare(string(a.ID), string(b.ID))
		})}, nil
	case *wire.Status:
		return wire.StatusReport{Supervisor: protocol.ProcessStatus{PID: 7, Sessions: len(v.sessions)}}, nil
	case *wire.Events:
		return wire.Subscribed{Instance: "supervisor", Seq: 0}, nil
	case *wire.Create:
		if _, ok := v.sessions[m.SessionID]; ok {
			return nil, &protocol.Error{Code: protocol.CodeSessionExists, Message: "it exists"}
		}
		if m.SessionID == "" {
			m.SessionID = "made"
		}
		v.done = append(v.done, m)
		info := protocol.SessionInfo{ID: m.SessionID, Instance: "new", State: protocol.StateRunning, Argv: m.Argv, Cwd: m.Cwd, Labels: m.Labels}
		v.sessions[m.SessionID] = info
		return wire.Session{Session: info}, nil
	}
	var of struct {
		ID       protocol.SessionID `json:"session_id"`
		Instance protocol.Instance  `json:"instance"`
	}
	b, _ := protocol.Encode(m)
	_ = json.Unmarshal(b, &of)
	info, ok := v.sessions[of.ID]
	switch {
	case !ok:
		return nil, protocol.Errorf(protocol.CodeSessionNotFound, "no session %s", of.ID)
	case of.Instance != "" && of.Instance != info.Instance:
		return nil, protocol.Errorf(protocol.CodeInstanceMismatch, "another life")
	}
	if _, ok := m.(*wire.Info); ok {
		return wire.Session{Session: info}, nil
	}
	v.done = append(v.done, m)
	kind, _ := wire.Messages.Request(m.MessageType())
	switch kind.Reply.(type) {
	case wire.Session:
		return wire.Session{Session: info}, nil
	case wire.Attached:
		return wire.Attached{AttachInfo: protocol.AttachInfo{Session: info, Writer: "w"}}, nil
	}
	return kind.Reply, nil
}

// did returns the requests that were executed since the last call.
func (v *vault) did() []protocol.Message {
	v.mu.Lock()
	defer v.mu.Unlock()
	defer func() { v.done = nil }()
	return v.done
}

// guarded returns a server that asks the policy h, and its supervisor.
func guarded(t *testing.T, h *house, sessions map[protocol.SessionID]string) (*world, *vault) {
	w := newWorld(t, func(c *Config) { c.Policy, c.EarlyExit, c.Token, c.Web = h, -1, "own", "127.0.0.1:1" })
	return w, newVault(w, sessions)
}

// as returns a client with a token.
func (w *world) as(token string) *client {
	w.t.Helper()
	c := w.connect(trusted)
	c.send(api.Hello{Protocol: protocol.Supported(), Client: "tester", Token: token})
	expect[*api.Welcome](c)
	return c
}

// verbs has every request that names a session, as a client sends it.
var verbs = map[string]func(id protocol.SessionID) protocol.Message{
	"reopen": func(id protocol.SessionID) protocol.Message { return api.Reopen{Request: req("r"), SessionID: id} },
	"info":   func(id protocol.SessionID) protocol.Message { return api.Info{Request: req("r"), SessionID: id} },
	"scrollback": func(id protocol.SessionID) protocol.Message {
		return api.Scrollback{Request: req("r"), SessionID: id}
	},
	"screen": func(id protocol.SessionID) protocol.Message {
		return api.Screen{Request: req("r"), ScreenSpec: protocol.ScreenSpec{SessionID: id}}
	},
	"history": func(id protocol.SessionID) protocol.Message {
		return api.History{Request: req("r"), HistorySpec: protocol.HistorySpec{SessionID: id}}
	},
	"changes": func(id protocol.SessionID) protocol.Message {
		return api.Changes{Request: req("r"), ChangesSpec: protocol.ChangesSpec{SessionID: id}}
	},
	"commands": func(id protocol.SessionID) protocol.Message { return api.Commands{Request: req("r"), SessionID: id} },
	"search": func(id protocol.SessionID) protocol.Message {
		return api.Search{Request: req("r"), SearchSpec: protocol.SearchSpec{SessionID: id, Pattern: "x"}}
	},
	"past": func(id protocol.SessionID) protocol.Message {
		return api.Past{Request: req("r"), PastSpec: protocol.PastSpec{SessionID: id}}
	},
	"search_past": func(id protocol.SessionID) protocol.Message {
		return api.SearchPast{Request: req("r"), PastSearchSpec: protocol.PastSearchSpec{SessionID: id, Pattern: "x"}}
	},
	"size_policy": func(id protocol.SessionID) protocol.Message {
		return api.SizePolicy{Request: req("r"), SessionID: id, Policy: protocol.SizeSmallest}
	},
	"clear": func(id protocol.SessionID) protocol.Message {
		return api.Clear{Request: req("r"), SessionID: id, Screen: true}
	},
	"rename": func(id protocol.SessionID) protocol.Message {
		return api.Rename{Request: req("r"), SessionID: id, Title: "mine"}
	},
	"attach": func(id protocol.SessionID) protocol.Message {
		return api.Attach{Request: req("r"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: id, Cols: 10, Steal: true}}
	},
	"resize": func(id protocol.SessionID) protocol.Message {
		return api.Resize{Request: req("r"), SessionID: id, Cols: 10}
	},
	"interrupt": func(id protocol.SessionID) protocol.Message { return api.Interrupt{Request: req("r"), SessionID: id} },
	"signal": func(id protocol.SessionID) protocol.Message {
		return api.Signal{Request: req("r"), SessionID: id, Signal: "TERM"}
	},
	"limit": func(id protocol.SessionID) protocol.Message {
		return api.Limit{Request: req("r"), SessionID: id, Limits: protocol.Limits{PIDsMax: new(uint64(9))}}
	},
	"freeze": func(id protocol.SessionID) protocol.Message {
		return api.Freeze{Request: req("r"), SessionID: id, Frozen: true}
	},
	"terminate": func(id protocol.SessionID) protocol.Message { return api.Terminate{Request: req("r"), SessionID: id} },
	"forget":    func(id protocol.SessionID) protocol.Message { return api.Forget{Request: req("r"), SessionID: id} },
	"wait":      func(id protocol.SessionID) protocol.Message { return api.Wait{Request: req("r"), SessionID: id} },
	"mark":      func(id protocol.SessionID) protocol.Message { return api.Mark{Request: req("r"), SessionID: id} },
	"await": func(id protocol.SessionID) protocol.Message {
		return api.Await{Request: req("r"), AwaitSpec: protocol.AwaitSpec{SessionID: id, Prompt: true}}
	},
	"input": func(id protocol.SessionID) protocol.Message {
		return api.Input{Request: req("r"), SessionID: id, Data: []byte("x")}
	},
	"environment": func(id protocol.SessionID) protocol.Message {
		return api.Environment{Request: req("r"), SessionID: id}
	},
	"away": func(id protocol.SessionID) protocol.Message { return api.Away{Request: req("r"), SessionID: id} },
	"terminal.data": func(id protocol.SessionID) protocol.Message {
		return api.TerminalData{SessionID: id, Data: []byte("x")}
	},
	"terminal.resize": func(id protocol.SessionID) protocol.Message { return api.TerminalResize{SessionID: id, Cols: 10} },
	"terminal.close":  func(id protocol.SessionID) protocol.Message { return api.TerminalClose{SessionID: id} },

	"share": func(id protocol.SessionID) protocol.Message { return api.Share{Request: req("r"), SessionID: id} },
}

// looksOnly are the requests for which the proxy asks the supervisor only which session has the id.
var looksOnly = []string{"info", "share"}

// others are the messages that name no session, or that clients do not send, or whose replies TestWorkspaces checks.
var others = []string{
	"vouch", "hello", "welcome", "error", "ok", "goaway", "spawn", "spawned", "list", "sessions", "session", "scrollback_data", "screen_content",
	"history_content", "commands_content", "changes_content", "search_content", "past_content", "search_past_content", "appearance", "attached", "detach", "detached", "waited", "marked", "awaited", "accepted", "resync", "resized", "stolen",
	"pty_exited", "exit", "events", "subscribed", "event", "ping", "status", "status_report", "ticket", "ticket_issued", "terminal.open",
	"terminal.opened", "terminal.exit", "terminal.error", "environment_content", "away_content", "typed", "shared",
}

// A client of one workspace gets the same error for every request about a session of another workspace as for an id
// that does not exist, and the request is not executed.
func TestWorkspacesVerbByVerb(t *testing.T) {
	for _, name := range api.Messages.Types() {
		ask, ok := verbs[name]
		if !ok {
			if !slices.Contains(others, name) {
				t.Errorf("%s is in neither verbs nor others", name)
			}
			continue
		}
		t.Run(name, func(t *testing.T) {
			h := &house{}
			w, v := guarded(t, h, map[protocol.SessionID]string{"theirs": "b", "mine": "a", "loose": ""})
			c := w.as("ann@a")
			var answers []string
			for _, id := range []protocol.SessionID{"theirs", "loose", "nobody"} {
				c.send(ask(id))
				m := c.mustNext()
				switch e := m.(type) {
				case *api.Error:
					if e.Code != protocol.CodeSessionNotFound {
						t.Errorf("%s: received %+v", id, e)
					}
				case *api.TerminalError:
					if e.Code != protocol.CodeSessionNotFound {
						t.Errorf("%s: received %+v", id, e)
					}
				default:
					t.Fatalf("%s: received %T %+v", id, m, m)
				}
				b, _ := json.Marshal(m)
				answers = append(answers, strings.ReplaceAll(string(b), string(id), "ID"))
			}
			if answers[0] != answers[2] || answers[1] != answers[2] {
				t.Errorf("the errors for another workspace, for no workspace and for an unknown id differ:\n%s", strings.Join(answers, "\n"))
			}
			if did := v.did(); len(did) > 0 {
				t.Errorf("a request was executed: %+v", did)
			}
			if strings.HasPrefix(name, "terminal.") && name != "terminal.close" {
				return // these concern only terminals of the connection itself
			}
			// A request about the client's own session is executed, and names its instance.
			c.send(ask("mine"))
			if name != "terminal.close" {
				if e, ok := c.mustNext().(*api.Error); ok {
					t.Errorf("the request about its own session failed: %+v", e)
				}
			}
			testkit.Eventually(t, patience, func() bool {
				v.mu.Lock()
				defer v.mu.Unlock()
				return slices.Contains(looksOnly, name) || len(v.done) == 1
			}, "the request is executed")
			for _, m := range v.did() {
				if f := reflect.ValueOf(m).Elem().FieldByName("Asker"); f.IsValid() && f.FieldByName("ByUser").String() != "ann" {
					t.Errorf("the request has the asker %+v", f)
				}
				if f := reflect.ValueOf(m).Elem().FieldByName("Instance"); f.IsValid() && f.String() != "life-mine" {
					t.Errorf("the request has the instance %q: %+v", f, m)
				}
			}
			// A client that sees all workspaces may do the same.
			if name != "terminal.close" {
				r := w.as("root")
				r.send(ask("theirs"))
				if e, ok := r.mustNext().(*api.Error); ok {
					t.Errorf("the request of root failed: %+v", e)
				}
			}
			if !h.saw(policy.EventRefused, "ann", "theirs", protocol.CodeSessionNotFound) && !strings.HasPrefix(name, "terminal.") {
				t.Error("the policy has not received the refused attempt")
			}
		})
	}
}

// Lists, status, events, spawns and tickets show a client only its own workspace.
func TestWorkspaces(t *testing.T) {
	h := &house{}
	w, v := guarded(t, h, map[protocol.SessionID]string{"theirs": "b", "mine": "a", "loose": ""})
	gone := v.sessions["theirs"]
	gone.Exit = &protocol.ExitRecord{ExitCode: 1}
	mine := v.sessions["mine"]
	v.events = []wire.Event{
		{Seq: 1, Event: protocol.EventExited, Session: &gone}, {Seq: 2, Event: protocol.EventTitle, Session: &gone},
		{Seq: 3, Event: "unheard-of"}, {Seq: 4, Event: protocol.EventBell, Session: &mine},
	}
	c, d := w.as("ann@a"), w.as("bob@b")

	for who, want := range map[*client]protocol.SessionID{c: "mine", d: "theirs"} {
		who.send(api.List{Request: req("l")})
		if m := expect[*api.Sessions](who); len(m.Sessions) != 1 || m.Sessions[0].ID != want {
			t.Errorf("the list is %+v, want %s", m.Sessions, want)
		}
		who.send(api.Status{Request: req("s")})
		if m := expect[*api.StatusReport](who); m.Proxy.Sessions != 1 || m.Supervisor.Sessions != 1 || m.Proxy.Clients != 0 {
			t.Errorf("status %+v %+v", m.Proxy, m.Supervisor)
		}
	}
	c.send(api.Events{Request: req("e")})
	expect[*api.Subscribed](c)
	if m := expect[*api.Event](c); m.Event != protocol.EventBell || m.Session.ID != "mine" || m.Seq == 4 || w.server.places.decode(m.Seq) != 4 {
		t.Errorf("the event is %+v", m)
	}

	// An id that another workspace uses can be used in this one, and is found by the name that the client has chosen.
	v.did()
	for _, id := range []protocol.SessionID{"theirs", "fresh"} {
		c.send(api.Spawn{Request: req("n"), SessionID: id, SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}, Labels: map[string]string{"x": "y", protocol.LabelUser: "bob"}}})
		made := expect[*api.Spawned](c)
		if made.SessionID == id || !strings.HasPrefix(string(made.SessionID), string(id)+"-") {
			t.Errorf("session %s has the id %s", id, made.SessionID)
		}
		want := map[string]string{"x": "y", protocol.LabelWorkspace: "a", protocol.LabelUser: "ann"}
		if created := v.did()[0].(*wire.Create); !maps.Equal(created.Labels, want) || created.Account != "workspace:a" {
			t.Errorf("labels %v, want %v", created.Labels, want)
		}
		for _, name := range []protocol.SessionID{id, made.SessionID} {
			c.send(api.Info{Request: req("i"), SessionID: name})
			if m := expect[*api.Session](c); m.Session.ID != made.SessionID {
				t.Errorf("info of %s returned %s", name, m.Session.ID)
			}
		}
		// The second session with the id in the same workspace is refused.
		c.send(api.Spawn{Request: req("n"), SessionID: id, SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}}})
		c.wantError(protocol.CodeSessionExists)
	}
	for name, spawn := range map[string]api.Spawn{
		string(protocol.CodeWorkspaceMismatch): {SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}, Labels: map[string]string{protocol.LabelWorkspace: "b"}}},
		string(protocol.CodeInvalidArgument):   {SessionID: protocol.SessionID(strings.Repeat("x", protocol.MaxIDLen)), SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}}},
	} {
		spawn.RequestID = "n"
		c.send(spawn)
		c.wantError(protocol.Code(name))
	}
	// A reopen cannot move a session to another workspace.
	c.send(api.Reopen{Request: req("o"), SessionID: "mine", RespawnSpec: protocol.RespawnSpec{Labels: map[string]string{protocol.LabelWorkspace: "b"}}})
	c.wantError(protocol.CodeWorkspaceMismatch)
	v.did()
	c.send(api.Reopen{Request: req("o"), SessionID: "mine", RespawnSpec: protocol.RespawnSpec{Labels: map[string]string{}}})
	expect[*api.Spawned](c)
	if m := v.did()[0].(*wire.Reopen); m.Labels[protocol.LabelWorkspace] != "a" || m.Instance != "life-mine" {
		t.Errorf("the reopen is %+v", m)
	}
	// A task's terminal cannot be in another workspace either, even if the policy says so.
	c.send(api.TerminalOpen{Request: req("t"), TaskID: "t", WorkspaceID: "b"})
	if m := expect[*api.TerminalError](c); m.Code != protocol.CodeWorkspaceMismatch {
		t.Errorf("received %+v", m)
	}
	c.send(api.TerminalOpen{Request: req("t"), TaskID: "t", WorkspaceID: "a"})
	if m := expect[*api.TerminalError](c); m.Code != protocol.CodeWorkspaceMismatch {
		t.Errorf("received %+v", m)
	}
	// A ticket has the principal of the client that requested it.
	c.send(api.Ticket{Request: req("k")})
	who, ok := w.server.Redeem(expect[*api.TicketIssued](c).Ticket, "")
	if !ok || who == nil || who.User != "ann" || who.All {
		t.Errorf("the ticket's principal is %+v", who)
	}
	p := w.connect(Origin{Transport: TransportWeb, Trusted: true, Principal: who})
	p.send(api.Hello{Protocol: protocol.Supported(), Client: "page", Token: "root"}) // the token is ignored
	expect[*api.Welcome](p)
	p.send(api.Info{Request: req("i"), SessionID: "loose"})
	p.wantError(protocol.CodeSessionNotFound)
}

// If a session of another workspace takes the id while a request is in progress, the request is not executed on it.
func TestWorkspacesRace(t *testing.T) {
	for name, ask := range verbs {
		if strings.HasPrefix(name, "terminal.") || slices.Contains(looksOnly, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			w, v := guarded(t, &house{}, map[protocol.SessionID]string{"mine": "a"})
			v.between = func(m protocol.Message) {
				if _, ok := m.(*wire.Info); !ok {
					v.put("mine", "another", "b")
				}
			}
			c := w.as("ann@a")
			c.send(ask("mine"))
			if e := c.wantError(protocol.CodeSessionNotFound); e.Message != notFound("mine").(*protocol.Error).Message {
				t.Errorf("received %+v", e)
			}
			for _, m := range v.did() {
				if _, ok := m.(*wire.Attach); !ok { // which is closed at once
					t.Errorf("executed on another workspace's session: %+v", m)
				}
			}
		})
	}
}

// Requests that the policy forbids are not executed. The question has the verb, the session and its labels.
func TestAuthorize(t *testing.T) {
	for name, verb := range map[string]policy.Verb{
		"reopen": policy.VerbSpawn, "info": policy.VerbList, "wait": policy.VerbList, "scrollback": policy.VerbRead, "screen": policy.VerbRead,
		"history": policy.VerbRead, "share": policy.VerbRead, "search": policy.VerbRead, "attach": policy.VerbType, "input": policy.VerbType, "resize": policy.VerbType,
		"size_policy": policy.VerbType, "clear": policy.VerbType, "interrupt": policy.VerbType, "signal": policy.VerbTerminate, "terminate": policy.VerbTerminate,
		"forget": policy.VerbTerminate, "terminal.close": policy.VerbTerminate,
	} {
		t.Run(name, func(t *testing.T) {
			h := &house{forbidden: map[policy.Verb]string{verb: "ann"}}
			w, v := guarded(t, h, map[protocol.SessionID]string{"mine": "a"})
			c := w.as("ann@a")
			c.send(verbs[name]("mine"))
			switch e := c.mustNext().(type) {
			case *api.Error:
				if e.Code != protocol.CodePermissionDenied || !strings.Contains(e.Message, "not you") {
					t.Errorf("received %+v", e)
				}
			case *api.TerminalError:
				if e.Code != protocol.CodePermissionDenied {
					t.Errorf("received %+v", e)
				}
			default:
				t.Errorf("received %T %+v", e, e)
			}
			if did := v.did(); len(did) > 0 {
				t.Errorf("a request was executed: %+v", did)
			}
			h.mu.Lock()
			a := h.asked[0]
			h.mu.Unlock()
			if a.Verb != verb || a.SessionID != "mine" || a.Labels[protocol.LabelWorkspace] != "a" || a.Principal.User != "ann" || verb == policy.VerbSpawn && a.Argv[0] != "sh" {
				t.Errorf("asked %+v", a)
			}
			if !h.saw(policy.EventRefused, "ann", "mine", protocol.CodePermissionDenied) {
				t.Error("the policy has not received the refusal")
			}
		})
	}
	h := &house{forbidden: map[policy.Verb]string{policy.VerbType: "ann", policy.VerbList: "ann", policy.VerbSpawn: "bob"}}
	w, v := guarded(t, h, map[protocol.SessionID]string{"mine": "a"})
	c, d := w.as("ann@a"), w.as("bob@b")
	for who, m := range map[*client][]protocol.Message{
		c: {api.List{Request: req("x")}, api.Events{Request: req("x")}}, d: {api.Spawn{Request: req("x"), SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}}}},
	} {
		for _, m := range m {
			who.send(m)
			who.wantError(protocol.CodePermissionDenied)
		}
	}
	// A read-only attach needs the verb for reading, and a task's terminal needs both verbs.
	c.send(api.Attach{Request: req("r"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "mine", Mode: protocol.ModeReadOnly}})
	expect[*api.Attached](c)
	v.did()
	d.send(api.TerminalOpen{Request: req("t"), TaskID: "t", WorkspaceID: "b"})
	if m := expect[*api.TerminalError](d); m.Code != protocol.CodePermissionDenied || len(v.did()) > 0 {
		t.Errorf("received %+v", m)
	}
}

// If the policy fails, requests are refused, and connections and sessions stay.
func TestPolicyDoesNotWork(t *testing.T) {
	for _, broken := range []error{
		fmt.Errorf("it hangs"), &protocol.Error{Code: protocol.CodePolicyUnavailable, Retryable: true, RetryAfterMS: 7},
	} {
		h := &house{}
		w, v := guarded(t, h, map[protocol.SessionID]string{"mine": "a"})
		c := w.as("ann@a")
		h.mu.Lock()
		h.broken = broken
		h.mu.Unlock()
		for name, ask := range verbs {
			if strings.HasPrefix(name, "terminal.") {
				continue
			}
			c.send(ask("mine"))
			if e := c.wantError(protocol.CodePolicyUnavailable); !e.Retryable || e.RetryAfterMS == 0 {
				t.Errorf("received %+v", e)
			}
		}
		c.send(api.TerminalOpen{Request: req("t"), TaskID: "t", WorkspaceID: "a"})
		if m := expect[*api.TerminalError](c); m.Code != protocol.CodePolicyUnavailable {
			t.Errorf("received %+v", m)
		}
		if did := v.did(); len(did) > 0 {
			t.Errorf("a request was executed: %+v", did)
		}
		e := w.connect(trusted)
		e.send(api.Hello{Protocol: protocol.Supported(), Client: "tester", Token: "ann@a"})
		e.wantError(protocol.CodePolicyUnavailable)
		e.wantEnd()
		h.mu.Lock()
		h.broken = nil
		h.mu.Unlock()
		c.send(verbs["attach"]("mine"))
		expect[*api.Attached](c)
	}
}

// The principal of a client, by its origin and its token.
func TestPrincipals(t *testing.T) {
	for _, tt := range []struct {
		name  string
		from  Origin
		token string
		want  string // "" if the client is refused
	}{
		{"this user", trusted, "", "root"},
		{"this user with a token", trusted, "ann@a", "ann"},
		{"this user with a token that is none", trusted, "x", ""},
		{"the proxy's own token", Origin{Transport: TransportWeb}, "own", "root"},
		{"a token over TCP", Origin{Transport: TransportWeb}, "ann@a", "ann"},
		{"a token that is none", Origin{Transport: TransportWeb}, "x", ""},
		{"nothing", Origin{Transport: TransportWeb}, "", ""},
		{"a ticket", Origin{Transport: TransportWeb, Trusted: true, Principal: &policy.Principal{User: "eve"}}, "", "eve"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := &house{}
			w, _ := guarded(t, h, nil)
			c := w.connect(tt.from)
			c.send(api.Hello{Protocol: protocol.Supported(), Client: "tester", Token: tt.token})
			if tt.want == "" {
				c.wantError(protocol.CodeUnauthorized)
				c.wantEnd()
				if !h.saw(policy.EventRefused, "", "", protocol.CodeUnauthorized) || !strings.Contains(w.log.String(), `"security":true`) {
					t.Error("the refusal is not reported")
				}
				return
			}
			expect[*api.Welcome](c)
			testkit.Eventually(t, patience, func() bool { return h.saw(policy.EventHello, tt.want, "", "") }, "the policy receives the hello")
		})
	}
}

// The agent of a gate vouches for a client with the proxy's token. The client then has the principal that the gate
// has named: it sees its workspace, and the policy decides about its requests, but does not authenticate it.
func TestVouch(t *testing.T) {
	ann := protocol.Principal{User: "ann", Workspace: "a", Roles: []string{"r"}}
	h := &house{forbidden: map[policy.Verb]string{policy.VerbTerminate: "ann"}}
	w, _ := guarded(t, h, map[protocol.SessionID]string{"theirs": "b", "mine": "a"})
	c := w.connect(trusted)
	c.send(api.Vouch{Token: "own", Principal: ann})
	c.send(api.Hello{Protocol: protocol.Supported(), Client: "tester", Token: "root"}) // its own token has no effect
	expect[*api.Welcome](c)
	c.send(api.List{Request: req("l")})
	if m := expect[*api.Sessions](c); len(m.Sessions) != 1 || m.Sessions[0].ID != "mine" {
		t.Errorf("ann sees %+v", m.Sessions)
	}
	c.send(api.Terminate{Request: req("t"), SessionID: "theirs"})
	c.wantError(protocol.CodeSessionNotFound)
	c.send(api.Terminate{Request: req("t"), SessionID: "mine"})
	c.wantError(protocol.CodePermissionDenied)

	for _, tt := range []struct {
		name   string
		from   Origin
		first  api.Vouch
		change func(*Config)
	}{
		{"a wrong token", trusted, api.Vouch{Token: "owm", Principal: ann}, nil},
		{"no token", trusted, api.Vouch{Principal: ann}, nil},
		{"on TCP", Origin{Transport: "websocket"}, api.Vouch{Token: "own", Principal: ann}, nil},
		{"with a ticket", Origin{Transport: "test", Trusted: true, Principal: &policy.Principal{User: "bob", Workspace: "b"}}, api.Vouch{Token: "own", Principal: ann}, nil},
		{"a long name", trusted, api.Vouch{Token: "own", Principal: protocol.Principal{User: strings.Repeat("u", 257)}}, nil},
		{"without a policy", trusted, api.Vouch{Token: "own", Principal: ann}, func(c *Config) { c.Policy = policy.Allow{} }},
		{"without a policy and a token", trusted, api.Vouch{Principal: protocol.Principal{User: "root", All: true}}, func(c *Config) { c.Policy, c.Token = policy.Allow{}, "" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) {
				c.Policy, c.Token = &house{}, "own"
				if tt.change != nil {
					tt.change(c)
				}
			})
			c := w.connect(tt.from)
			c.send(tt.first)
			c.wantError(protocol.CodeUnauthorized)
			c.wantEnd()
			if log := w.log.String(); !strings.Contains(log, `"security":true`) || strings.Contains(log, `"own"`) {
				t.Errorf("the log is %s", log)
			}
		})
	}

	c = w.connect(trusted)
	c.send(api.Vouch{Token: "own", Principal: ann})
	c.send(api.Vouch{Token: "own", Principal: protocol.Principal{User: "root", All: true}}) // which a client may try to send
	c.wantError(protocol.CodeHelloRequired)
	c.wantEnd()
}
