//go:build linux || darwin

package linkserver

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/session"
)

// demand: S5 S11
func TestHello(t *testing.T) {
	r := newRig(t, session.Config{}, "the right one")
	s := r.session(t, sleeper)
	for _, tt := range []struct {
		secret string
		want   protocol.Code
	}{{"", protocol.CodeUnauthorized}, {"the right on", protocol.CodeUnauthorized}, {"the right one!", protocol.CodeUnauthorized}, {"the right one", ""}} {
		hello := someHello
		hello.Secret = tt.secret
		c, welcome, sessions, err := link.Dial(r.connect(t), hello, zerolog.Nop())
		wantCode(t, fmt.Sprintf("secret %q", tt.secret), err, tt.want)
		if err != nil {
			continue
		}
		defer c.Close()
		if welcome.PID != os.Getpid() || welcome.Version == "" || welcome.Instance == "" {
			t.Errorf("welcomed with %+v", welcome)
		}
		if len(sessions) != 1 || sessions[0].ID != s.ID() || sessions[0].Instance != s.Instance() || sessions[0].State != protocol.StateRunning {
			t.Errorf("enumerated %+v", sessions)
		}
	}
	testkit.Eventually(t, patience, func() bool { return strings.Count(r.log.String(), `"security":true`) == 3 }, "three security events")
	if strings.Contains(r.log.String(), "the right") {
		t.Error("a secret stands in the log")
	}
}

// While the secret cannot be read, everyone is refused, also a proxy without a secret. Afterwards it is not read again.
// demand: S11
func TestUnreadSecret(t *testing.T) {
	var reads int
	text, failure := "", errors.New("mode 0644")
	s := New(Config{Sessions: session.NewTable(session.Config{}), Log: zerolog.Nop(), ReadSecret: func() (string, error) {
		reads++
		return text, failure
	}})
	check := func(what, secret string, want protocol.Code) {
		t.Helper()
		_, _, err := s.welcome(&wire.Hello{Secret: secret})
		wantCode(t, what, err, want)
	}
	check("unread", "", protocol.CodeUnauthorized)
	check("unread", "the right one", protocol.CodeUnauthorized)
	if _, _, err := s.welcome(&wire.Hello{}); !strings.Contains(err.Error(), "until it can read its secret: mode 0644") {
		t.Errorf("refused with %v", err)
	}
	failure = nil
	check("empty", "", protocol.CodeUnauthorized)
	text = "the right one"
	check("read, without a secret", "", protocol.CodeUnauthorized)
	text = "another"
	check("read, with a wrong one", "another", protocol.CodeUnauthorized)
	check("read, with the right one", "the right one", "")
	if reads != 5 {
		t.Errorf("the secret was read %d times, want 5", reads)
	}
}

// Each request, with a success and with errors.
// demand: S4
func TestRequests(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	c := r.link(t)
	made := call[*wire.Session](t, c, wire.Create{SessionID: "s", SpawnSpec: protocol.SpawnSpec{
		Argv: []string{"bash", "-c", cat}, Originator: "me", Labels: map[string]string{"title": "A"}, Cols: 100,
	}, Token: "t"}).Session
	if made.ID != "s" || made.PID == 0 || made.State != protocol.StateRunning || made.Size != (protocol.Size{Cols: 100, Rows: 24}) || made.ExitCode != nil {
		t.Errorf("created %+v", made)
	}
	v := attach(t, c, 1, protocol.AttachSpec{SessionID: "s"})
	v.until(t, "READY")
	ms := int64(0)
	end := len("READY\n")

	for _, tt := range []struct {
		name    string
		request protocol.Message
		want    protocol.Code
		check   func(protocol.Message) bool // nil if the reply must be OK
	}{
		{name: "create, again", request: wire.Create{SessionID: "s", SpawnSpec: bash(cat), Token: "t"}, check: func(m protocol.Message) bool {
			return m.(*wire.Session).Session.Instance == made.Instance
		}},
		{name: "create, taken", request: wire.Create{SessionID: "s", SpawnSpec: bash(cat)}, want: protocol.CodeSessionExists},
		{name: "create, no program", request: wire.Create{SpawnSpec: protocol.SpawnSpec{Argv: []string{"/none"}}}, want: protocol.CodeSpawnFailed},
		{name: "create, no argv", request: wire.Create{}, want: protocol.CodeInvalidArgument},
		{name: "create, bad id", request: wire.Create{SessionID: "a/b", SpawnSpec: bash(cat)}, want: protocol.CodeInvalidArgument},
		{name: "info", request: wire.Info{SessionID: "s"}, check: func(m protocol.Message) bool {
			i := m.(*wire.Session).Session
			return i.PID == made.PID && i.Labels["title"] == "A" && i.Originator == "me" && i.Attachments == 1 && i.OutputOffset == uint64(end)
		}},
		{name: "info, unknown", request: wire.Info{SessionID: "x"}, want: protocol.CodeSessionNotFound},
		{name: "list", request: wire.List{}, check: func(m protocol.Message) bool { return len(m.(*wire.Sessions).Sessions) == 1 }},
		{name: "list of one", request: wire.List{Originator: "me"}, check: func(m protocol.Message) bool { return len(m.(*wire.Sessions).Sessions) == 1 }},
		{name: "list of another", request: wire.List{Originator: "you"}, check: func(m protocol.Message) bool {
			return m.(*wire.Sessions).Sessions != nil && len(m.(*wire.Sessions).Sessions) == 0
		}},
		{name: "read", request: wire.Read{SessionID: "s", Offset: 2, MaxBytes: 3}, check: func(m protocol.Message) bool {
			return reflect.DeepEqual(m, &wire.Data{Instance: made.Instance, Offset: 2, End: uint64(end), Data: []byte("ADY")})
		}},
		{name: "read, behind the end", request: wire.Read{SessionID: "s", Offset: 1 << 60}, check: func(m protocol.Message) bool {
			return m.(*wire.Data).Offset == uint64(end) && len(m.(*wire.Data).Data) == 0
		}},
		{name: "read, unknown", request: wire.Read{SessionID: "x"}, want: protocol.CodeSessionNotFound},
		{name: "screen", request: wire.Screen{ScreenSpec: protocol.ScreenSpec{SessionID: "s", Lines: 1}}, check: func(m protocol.Message) bool {
			c := m.(*wire.ScreenContent)
			return reflect.DeepEqual(c.Lines, []string{"READY"}) && c.Instance == made.Instance && c.Offset == uint64(end) && c.Cols == 100 && c.Cursor == protocol.Cursor{X: 5, Y: 1}
		}},
		{name: "screen, unknown", request: wire.Screen{ScreenSpec: protocol.ScreenSpec{SessionID: "x"}}, want: protocol.CodeSessionNotFound},
		{name: "screen, bad format", request: wire.Screen{ScreenSpec: protocol.ScreenSpec{SessionID: "s", Format: "png"}}, want: protocol.CodeInvalidArgument},
		{name: "resize", request: wire.Resize{SessionID: "s", Cols: 0, Rows: 7}},
		{name: "resize, unknown", request: wire.Resize{SessionID: "x"}, want: protocol.CodeSessionNotFound},
		{name: "write", request: wire.Write{SessionID: "s", Data: []byte("one\n")}, check: func(m protocol.Message) bool { return m.(*wire.Accepted).Offset == 4 }},
		{name: "write, as a writer", request: wire.Write{SessionID: "s", Data: []byte("two\n"), Writer: "w"}, check: func(m protocol.Message) bool { return m.(*wire.Accepted).Offset == 4 }},
		{name: "write, again", request: wire.Write{SessionID: "s", Data: []byte("two\nthree\n"), Writer: "w"}, check: func(m protocol.Message) bool {
			v.until(t, "one\ntwo\nthree\n")
			return m.(*wire.Accepted).Offset == 10
		}},
		{name: "write, with a gap", request: wire.Write{SessionID: "s", Data: []byte("x"), Writer: "w", Offset: 11}, want: protocol.CodeInputGap},
		{name: "write, a bad writer", request: wire.Write{SessionID: "s", Writer: "a b"}, want: protocol.CodeInvalidArgument},
		{name: "write, a paste", request: wire.Write{SessionID: "s", Data: []byte("four\r\n"), Paste: true, Writer: "w", Offset: 10}, check: func(m protocol.Message) bool {
			v.until(t, "four")
			return m.(*wire.Accepted).Offset == 16
		}},
		{name: "write, keys", request: wire.Write{SessionID: "s", Keys: []string{"5", "Tab", "Enter"}, Writer: "w", Offset: 16}, check: func(m protocol.Message) bool {
			v.until(t, "5\t")
			return m.(*wire.Accepted).Offset == 19
		}},
		{name: "write, to be continued", request: wire.Write{SessionID: "s", Data: []byte("6"), Writer: "w", Offset: 19, HoldMS: protocol.MaxHoldMS}, check: func(m protocol.Message) bool {
			return m.(*wire.Accepted).Offset == 20
		}},
		{name: "write, in between", request: wire.Write{SessionID: "s", Data: []byte("x")}, want: protocol.CodeInputFull},
		{name: "write, continued", request: wire.Write{SessionID: "s", Keys: []string{"Enter"}, Writer: "w", Offset: 20}, check: func(m protocol.Message) bool {
			v.until(t, "6")
			return m.(*wire.Accepted).Offset == 21
		}},
		{name: "write, no key", request: wire.Write{SessionID: "s", Keys: []string{"x", "Hyper"}, Writer: "w", Offset: 21}, want: protocol.CodeInvalidArgument},
		{name: "write, too many keys", request: wire.Write{SessionID: "s", Keys: make([]string, protocol.MaxKeys+1)}, want: protocol.CodeLimitExceeded},
		{name: "write, keys and data", request: wire.Write{SessionID: "s", Keys: []string{"x"}, Data: []byte("x")}, want: protocol.CodeInvalidArgument},
		{name: "write, a part of a paste again", request: wire.Write{SessionID: "s", Data: []byte("abcd"), Paste: true, Writer: "w", Offset: 19}, want: protocol.CodeInvalidArgument},
		{name: "write, unknown", request: wire.Write{SessionID: "x", Data: []byte("x")}, want: protocol.CodeSessionNotFound},
		{name: "status", request: wire.Status{}, check: func(m protocol.Message) bool {
			s := m.(*wire.StatusReport).Supervisor
			return s.PID == os.Getpid() && s.Sessions == 1 && s.Clients == 1 && s.Protocol == protocol.Supported() && s.Instance != ""
		}},
		{name: "wait, not yet", request: wire.Wait{SessionID: "s", TimeoutMS: &ms}, want: protocol.CodeTimeout},
		{name: "wait, another life", request: wire.Wait{SessionID: "s", Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "wait, unknown", request: wire.Wait{SessionID: "x"}, want: protocol.CodeSessionNotFound},
		{name: "mark", request: wire.Mark{SessionID: "s"}, check: func(m protocol.Message) bool {
			mark := m.(*wire.Marked)
			return mark.Instance == made.Instance && mark.Offset > uint64(end) && len(mark.Mark) > 0 && len(mark.Mark) <= protocol.MaxMark
		}},
		{name: "mark, another life", request: wire.Mark{SessionID: "s", Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "await", request: wire.Await{AwaitSpec: protocol.AwaitSpec{SessionID: "s", Text: "t(w)o$"}}, check: func(m protocol.Message) bool {
			a := m.(*wire.Awaited)
			return strings.TrimSpace(a.Line) == "two" && reflect.DeepEqual(a.Groups, []string{"two", "w"}) && a.Instance == made.Instance && a.Exit == nil
		}},
		{name: "await, not yet", request: wire.Await{AwaitSpec: protocol.AwaitSpec{SessionID: "s", Text: "never"}, TimeoutMS: &ms}, want: protocol.CodeTimeout},
		{name: "await, nothing", request: wire.Await{AwaitSpec: protocol.AwaitSpec{SessionID: "s"}}, want: protocol.CodeInvalidArgument},
		{name: "await, two things", request: wire.Await{AwaitSpec: protocol.AwaitSpec{SessionID: "s", Text: "x", Prompt: true}}, want: protocol.CodeInvalidArgument},
		{name: "await, no pattern", request: wire.Await{AwaitSpec: protocol.AwaitSpec{SessionID: "s", Text: "("}}, want: protocol.CodeInvalidArgument},
		{name: "await, no mark", request: wire.Await{AwaitSpec: protocol.AwaitSpec{SessionID: "s", Text: "x", Since: []byte("x")}}, want: protocol.CodeInvalidArgument},
		{name: "await, another life", request: wire.Await{AwaitSpec: protocol.AwaitSpec{SessionID: "s", Text: "x"}, Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "await, unknown", request: wire.Await{AwaitSpec: protocol.AwaitSpec{SessionID: "x", Text: "x"}}, want: protocol.CodeSessionNotFound},
		{name: "forget, running", request: wire.Forget{SessionID: "s"}, want: protocol.CodeSessionRunning},
		{name: "forget, another life", request: wire.Forget{SessionID: "s", Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "signal, another life", request: wire.Signal{SessionID: "s", Instance: "x", Signal: "KILL"}, want: protocol.CodeInstanceMismatch},
		{name: "interrupt, another life", request: wire.Interrupt{SessionID: "s", Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "resize, another life", request: wire.Resize{SessionID: "s", Instance: "x", Cols: 9}, want: protocol.CodeInstanceMismatch},
		{name: "size policy, another life", request: wire.SizePolicy{SessionID: "s", Instance: "x", Policy: protocol.SizeFixed}, want: protocol.CodeInstanceMismatch},
		{name: "relabel, another life", request: wire.Relabel{SessionID: "s", Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "relabel, no key", request: wire.Relabel{SessionID: "s", Labels: map[string]string{"": "x"}}, want: protocol.CodeInvalidArgument},
		{name: "relabel", request: wire.Relabel{SessionID: "s", Labels: map[string]string{"b": "2"}}, check: func(m protocol.Message) bool {
			return reflect.DeepEqual(m.(*wire.Session).Session.Labels, map[string]string{"title": "A", "b": "2"})
		}},
		{name: "write, another life", request: wire.Write{SessionID: "s", Instance: "x", Data: []byte("x")}, want: protocol.CodeInstanceMismatch},
		{name: "read, another life", request: wire.Read{SessionID: "s", Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "screen, another life", request: wire.Screen{ScreenSpec: protocol.ScreenSpec{SessionID: "s"}, Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "away", request: wire.Away{SessionID: "s"}, check: func(m protocol.Message) bool {
			c := m.(*wire.AwayContent)
			return c.Instance == made.Instance && !c.BackAt.IsZero()
		}},
		{name: "environment", request: wire.Environment{SessionID: "s"}, check: func(m protocol.Message) bool {
			c := m.(*wire.EnvironmentContent)
			return c.Env != nil && len(c.Env) == 0
		}},
		{name: "away, another life", request: wire.Away{SessionID: "s", Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "environment, unknown", request: wire.Environment{SessionID: "x"}, want: protocol.CodeSessionNotFound},
		{name: "history, another life", request: wire.History{HistorySpec: protocol.HistorySpec{SessionID: "s"}, Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "search, another life", request: wire.Search{SearchSpec: protocol.SearchSpec{SessionID: "s", Pattern: "x"}, Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "past, another life", request: wire.Past{PastSpec: protocol.PastSpec{SessionID: "s"}, Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "past", request: wire.Past{PastSpec: protocol.PastSpec{SessionID: "s"}}, check: func(m protocol.Message) bool {
			c := m.(*wire.PastContent)
			return c.Instance == made.Instance && c.Mode == protocol.DurableOff
		}},
		{name: "screen at a moment that was not yet", request: wire.Screen{ScreenSpec: protocol.ScreenSpec{SessionID: "s", At: &protocol.Moment{Offset: new(uint64(1 << 40))}}}, want: protocol.CodeNotStored},
		{name: "screen at two moments", request: wire.Screen{ScreenSpec: protocol.ScreenSpec{SessionID: "s", At: &protocol.Moment{Offset: new(uint64(1)), Command: -1}}}, want: protocol.CodeInvalidArgument},
		{name: "terminate, another life", request: wire.Terminate{SessionID: "s", Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "reopen, another life", request: wire.Reopen{SessionID: "s", Instance: "x"}, want: protocol.CodeInstanceMismatch},
		{name: "reopen, running", request: wire.Reopen{SessionID: "s"}, want: protocol.CodeSessionRunning},
		{name: "shutdown, running", request: wire.Shutdown{}, want: protocol.CodeSessionRunning},
		{name: "attach, bad mode", request: wire.Attach{AttachSpec: protocol.AttachSpec{SessionID: "s", Mode: "x"}}, want: protocol.CodeInvalidArgument},
		{name: "attach, unknown", request: wire.Attach{AttachSpec: protocol.AttachSpec{SessionID: "x"}}, want: protocol.CodeSessionNotFound},
		{name: "attach, another life", request: wire.Attach{AttachSpec: protocol.AttachSpec{SessionID: "s", Resume: &protocol.Resume{Instance: "x"}}}, want: protocol.CodeInstanceMismatch},
		{name: "attach, in the way", request: wire.Attach{AttachSpec: protocol.AttachSpec{SessionID: "s", Mode: protocol.ModeExclusive}}, want: protocol.CodeAlreadyAttached},
		{name: "signal", request: wire.Signal{SessionID: "s", Signal: "CONT"}},
		{name: "signal, none such", request: wire.Signal{SessionID: "s", Signal: "NONE"}, want: protocol.CodeInvalidArgument},
		{name: "signal, unknown", request: wire.Signal{SessionID: "x", Signal: "CONT"}, want: protocol.CodeSessionNotFound},
		{name: "terminate, none such", request: wire.Terminate{SessionID: "s", SoftSignal: "NONE"}, want: protocol.CodeInvalidArgument},
		{name: "terminate, a long reason", request: wire.Terminate{SessionID: "s", Reason: protocol.Reason(strings.Repeat("x", 201))}, want: protocol.CodeInvalidArgument},
		{name: "terminate, grace", request: wire.Terminate{SessionID: "s", GraceMS: new(int64(-1))}, want: protocol.CodeInvalidArgument},
		{name: "terminate, more grace", request: wire.Terminate{SessionID: "s", GraceMS: new(maxGrace.Milliseconds() + 1)}, want: protocol.CodeInvalidArgument},
		{name: "terminate, unknown", request: wire.Terminate{SessionID: "x"}, want: protocol.CodeSessionNotFound},
		{name: "interrupt, unknown", request: wire.Interrupt{SessionID: "x"}, want: protocol.CodeSessionNotFound},
		// The following requests end the session.
		{name: "interrupt", request: wire.Interrupt{SessionID: "s"}},
		{name: "wait", request: wire.Wait{SessionID: "s", Instance: made.Instance}, check: func(m protocol.Message) bool {
			e := m.(*wire.Exited)
			return e.SessionID == "s" && e.Instance == made.Instance && e.Exit.Signal == "SIGINT" && e.Exit.ExitCode == 130 && e.Labels["title"] == "A"
		}},
		{name: "info, exited", request: wire.Info{SessionID: "s"}, check: func(m protocol.Message) bool {
			i := m.(*wire.Session).Session
			return i.State == protocol.StateExited && i.ExitCode != nil && *i.ExitCode == 130 && i.Exit != nil
		}},
		{name: "terminate, exited", request: wire.Terminate{SessionID: "s"}, want: protocol.CodeSessionExited},
		{name: "attach, exited", request: wire.Attach{AttachSpec: protocol.AttachSpec{SessionID: "s"}}, want: protocol.CodeSessionExited},
		{name: "create, exited", request: wire.Create{SessionID: "s", SpawnSpec: bash(cat)}, want: protocol.CodeSessionExists},
		{name: "reopen", request: wire.Reopen{SessionID: "s", RespawnSpec: protocol.RespawnSpec{Argv: []string{"true"}}}, check: func(m protocol.Message) bool {
			i := m.(*wire.Session).Session
			return i.ID == "s" && i.Instance != made.Instance && i.Labels["title"] == "A"
		}},
		{name: "wait for the new life", request: wire.Wait{SessionID: "s"}, check: func(m protocol.Message) bool { return m.(*wire.Exited).Exit.ExitCode == 0 }},
		{name: "forget", request: wire.Forget{SessionID: "s"}},
		{name: "forget, gone", request: wire.Forget{SessionID: "s"}, want: protocol.CodeSessionNotFound},
		{name: "reopen, gone", request: wire.Reopen{SessionID: "s"}, want: protocol.CodeSessionNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reply, err := c.Call(testkit.Soon(t), tt.request)
			wantCode(t, tt.request.MessageType(), err, tt.want)
			switch {
			case err != nil:
			case tt.check == nil:
				if _, ok := reply.(*wire.OK); !ok {
					t.Errorf("the reply is %T", reply)
				}
			case !tt.check(reply):
				t.Errorf("the reply is %+v", reply)
			}
		})
	}
	if e, ok := v.end(t).(*wire.Exited); !ok || e.Instance != made.Instance {
		t.Errorf("the attachment of the first life ended with %+v", e)
	}
}

// TestHandlers checks that each request of the link has a handler, and that there is no other handler.
func TestHandlers(t *testing.T) {
	for _, k := range wire.Messages.Requests() {
		if handlers[k.Type()] == nil {
			t.Errorf("request %s has no handler", k.Type())
		}
	}
	for typ := range handlers {
		if _, ok := wire.Messages.Request(typ); !ok {
			t.Errorf("%s has a handler, but it is no request", typ)
		}
	}
}

// Every message without fields gets a reply: a request any reply of its own, and other messages "unsupported". No
// reply is an internal error.
// demand: S4
func TestEveryMessage(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	s := r.session(t, sleeper)
	c := r.link(t)
	for _, name := range wire.Messages.Types() {
		st, _, err := c.Open(testkit.Soon(t), wire.Messages.New(name))
		_, isRequest := wire.Messages.Request(name)
		isRequest = isRequest && name != "upgrade" // this supervisor has no Upgrader
		if code := protocol.CodeOf(err); isRequest == (code == protocol.CodeUnsupported) || code == protocol.CodeInternal {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			st.Abort()
		}
	}
	select {
	case <-s.Exited():
		t.Error("one of the messages has ended the session")
	default:
	}
}

// Invalid first messages of a stream are answered by an error, and do not disturb other streams.
func TestNonsense(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	s := r.session(t, cat)
	g := newRogue(t, r)
	other := g.stream(t, text(`{"type":"attach","attachment":1,"session_id":"`+string(s.ID())+`"}`))
	if m := heard(t, other); m.MessageType() != "attached" {
		t.Fatalf("received %s", m.MessageType())
	}
	for _, tt := range []struct {
		name string
		raw  []byte
		want protocol.Code
	}{
		{name: "an unknown message", raw: text(`{"type":"teleport"}`), want: protocol.CodeUnsupported},
		{name: "no JSON", raw: text("{{{"), want: protocol.CodeBadFrame},
		{name: "nothing", raw: text(""), want: protocol.CodeBadFrame},
		{name: "a field of another type", raw: text(`{"type":"info","session_id":7}`), want: protocol.CodeBadFrame},
		{name: "an empty frame", raw: []byte{0, 0, 0, 0}, want: protocol.CodeBadFrame},
		{name: "4 GiB", raw: []byte{255, 255, 255, 255, 0}, want: protocol.CodeFrameTooLarge},
		{name: "one byte too long", raw: frame.AppendHeader(nil, frame.Control, frame.Max), want: protocol.CodeFrameTooLarge},
		{name: "hello again", raw: text(`{"type":"hello"}`), want: protocol.CodeUnsupported},
		{name: "a start with negative columns", raw: text(`{"type":"create","session_id":"other","argv":["true"],"cols":-1}`), want: protocol.CodeInvalidArgument},
		{name: "a viewer with negative rows", raw: text(`{"type":"attach","attachment":2,"session_id":"` + string(s.ID()) + `","rows":-1}`), want: protocol.CodeInvalidArgument},
		{name: "a negative size", raw: text(`{"type":"resize","session_id":"` + string(s.ID()) + `","cols":-80,"rows":24}`), want: protocol.CodeInvalidArgument},
		{name: "a policy with negative rows", raw: text(`{"type":"size_policy","session_id":"` + string(s.ID()) + `","policy":"fixed","rows":-1}`), want: protocol.CodeInvalidArgument},
		{name: "a reply", raw: text(`{"type":"ok"}`), want: protocol.CodeUnsupported},
		{name: "data before a request", raw: append(frame.AppendData(nil, frame.Input, 1, 0, []byte("x")), text(`{"type":"info","session_id":"x"}`)...), want: protocol.CodeSessionNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := g.stream(t, tt.raw)
			defer st.Close()
			if e, ok := heard(t, st).(*wire.Error); !ok || e.Code != tt.want {
				t.Errorf("received %+v, want %s", e, tt.want)
			}
			if m, err := hear(st); err == nil {
				t.Errorf("received %s after the error", m.MessageType())
			}
		})
	}
	for _, raw := range [][]byte{nil, {0}, {0, 0, 0, 9, 0, 'x'}} { // streams that are closed without a request
		g.stream(t, raw).Close()
	}
	if _, err := other.Write(frame.AppendData(nil, frame.Input, 1, 0, []byte("still here\n"))); err != nil {
		t.Fatal(err)
	}
	if m, ok := heard(t, other).(*wire.Accepted); !ok || m.Offset != 11 {
		t.Errorf("the other stream: %+v", m)
	}
	other.Close()
}

// A reply is shortened so that it fits into a frame.
func TestLargeReplies(t *testing.T) {
	r := newRig(t, session.Config{RingBytes: 4 << 20}, "")
	// 20,000 lines of quotes, which take two bytes each as JSON.
	s := r.session(t, `stty cols 200; yes "$(printf '"%.0s' {1..150})" | head -20000; echo READY; exec sleep 1000`)
	c := r.link(t)
	for _, tt := range []struct {
		format  protocol.ScreenFormat
		atLeast int
		of      func(*wire.ScreenContent) int
		last    func(*wire.ScreenContent) string
	}{
		{protocol.ScreenText, 1000, func(c *wire.ScreenContent) int { return len(c.Lines) }, func(c *wire.ScreenContent) string { return c.Lines[len(c.Lines)-1] }},
		{protocol.ScreenANSI, 1000, func(c *wire.ScreenContent) int { return strings.Count(c.ANSI, "\n") }, func(c *wire.ScreenContent) string { return c.ANSI[len(c.ANSI)-10:][:5] }},
		{protocol.ScreenCells, 100, func(c *wire.ScreenContent) int { return len(c.Cells) }, func(c *wire.ScreenContent) (text string) {
			for _, cell := range c.Cells[len(c.Cells)-1].Cells {
				text += cell.Text
			}
			return text
		}},
	} {
		got := call[*wire.ScreenContent](t, c, wire.Screen{ScreenSpec: protocol.ScreenSpec{SessionID: s.ID(), Lines: 1 << 30, Format: tt.format}})
		if n := tt.of(got); n < tt.atLeast || !got.Truncated || tt.last(got) != "READY" {
			t.Errorf("%s: %d lines, truncated %v, or not the last ones", tt.format, n, got.Truncated)
		}
	}
	data := call[*wire.Data](t, c, wire.Read{SessionID: s.ID(), MaxBytes: 1 << 30})
	if len(data.Data) != maxReadBytes || data.Offset != 0 || data.End <= maxReadBytes {
		t.Errorf("%d bytes at %d of %d", len(data.Data), data.Offset, data.End)
	}
}

// A proxy that gives up a wait leaves nothing running; newRig checks it.
func TestWaitGivenUp(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	s := r.session(t, sleeper)
	g := newRogue(t, r)
	st := g.stream(t, text(`{"type":"wait","session_id":"`+string(s.ID())+`"}`))
	st.Close()
	if m, err := hear(st); err == nil && m.MessageType() != "error" {
		t.Errorf("received %s", m.MessageType())
	}
}

// demand: M12
func TestShutdown(t *testing.T) {
	r := newRig(t, session.Config{Grace: 10 * time.Millisecond}, "")
	s := r.session(t, `trap "" HUP; echo READY; sleep 1000; sleep 1000`)
	a, b := r.link(t), r.link(t)
	_, err := a.Call(testkit.Soon(t), wire.Shutdown{})
	wantCode(t, "shutdown while a session runs", err, protocol.CodeSessionRunning)

	done := make(chan error, 2)
	for _, c := range []*link.Conn{a, b} {
		go func() {
			_, err := c.Call(testkit.Soon(t), wire.Shutdown{EndSessions: true})
			select {
			case <-s.Exited():
			default:
				t.Error("the reply came before the session had ended")
			}
			done <- err
		}()
	}
	for range 2 {
		wantCode(t, "shutdown", testkit.Within(t, patience, "shutdown is answered", done), "")
	}
	testkit.Within(t, patience, "Stop is called", r.stops)
	if e := s.Exit(); e.Reason != protocol.ReasonShutdown || e.EndedBy != "supervisor stop" || e.Outcome != protocol.OutcomeHard {
		t.Errorf("the session ended as %+v", e)
	}
	_, err = r.link(t).Call(testkit.Soon(t), wire.Create{SpawnSpec: bash(cat)})
	wantCode(t, "create after shutdown", err, protocol.CodeClosed)
	if len(r.stops) > 0 {
		t.Error("Stop was called again")
	}
}
