package protocol_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/internal/drift"
	"holdfast/protocol/link"
)

// wires are both registries with their names.
var wires = []struct {
	name string
	reg  *protocol.Registry
}{{"link", link.Messages}, {"api", api.Messages}}

// Unknown fields in a message of a newer peer must be ignored.
func TestUnknownFields(t *testing.T) {
	for _, w := range wires {
		for _, line := range drift.GoldenMessages(t, w.name, protocol.Version) {
			want, _, err := w.reg.Decode(line)
			if err != nil {
				t.Fatal(err)
			}
			newer := bytes.Replace(line, []byte(`{`), []byte(`{"from_the_future":{"a":[1,null]},`), 1)
			newer = bytes.ReplaceAll(newer, []byte(`:{"`), []byte(`:{"later":7,"`)) // also in nested objects
			newer = bytes.ReplaceAll(newer, []byte(`"labels":{"later":7,`), []byte(`"labels":{`))
			got, _, err := w.reg.Decode(newer)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %+v and %v, want %+v", want.MessageType(), got, err, want)
			}
		}
	}
}

func TestDecode(t *testing.T) {
	tests := []struct {
		name, in string
		env      protocol.Envelope
		want     protocol.Code
	}{
		{name: "known", in: `{"type":"list"}`, env: protocol.Envelope{Type: "list"}},
		{name: "unknown type", in: `{"type":"teleport","request_id":"r-7","to":[1]}`,
			env: protocol.Envelope{Type: "teleport", RequestID: "r-7"}, want: protocol.CodeUnsupported},
		{name: "field of another type", in: `{"request_id":"r-7","type":"info","session_id":7}`,
			env: protocol.Envelope{Type: "info", RequestID: "r-7"}, want: protocol.CodeBadFrame},
		{name: "negative offset", in: `{"type":"events","after":-1}`, env: protocol.Envelope{Type: "events"}, want: protocol.CodeBadFrame},
		{name: "no type", in: `{"request_id":"r-7"}`, env: protocol.Envelope{RequestID: "r-7"}, want: protocol.CodeBadFrame},
		{name: "empty type", in: `{"type":""}`, want: protocol.CodeBadFrame},
		{name: "nothing", want: protocol.CodeBadFrame},
		{name: "not JSON", in: "ls -l\r", want: protocol.CodeBadFrame},
		{name: "cut", in: `{"type":"list"`, want: protocol.CodeBadFrame},
		{name: "two", in: `{"type":"list"}{"type":"list"}`, want: protocol.CodeBadFrame},
		{name: "null", in: `null`, want: protocol.CodeBadFrame},
		{name: "list", in: `[{"type":"list"}]`, want: protocol.CodeBadFrame},
		{name: "type of another type", in: `{"type":1}`, want: protocol.CodeBadFrame},
	}
	for _, w := range wires {
		for _, tt := range tests {
			t.Run(w.name+" "+tt.name, func(t *testing.T) {
				m, env, err := w.reg.Decode([]byte(tt.in))
				if protocol.CodeOf(err) != tt.want || env != tt.env || (m == nil) != (err != nil) {
					t.Errorf("got %v, %+v and %v, want %+v and %q", m, env, err, tt.env, tt.want)
				}
			})
		}
	}
}

// The error about an unknown type must stay short, whatever the peer has sent.
func TestDecodeSaysLittle(t *testing.T) {
	_, _, err := api.Messages.Decode([]byte(`{"type":"` + strings.Repeat("x", 1<<20) + `"}`))
	if len(err.Error()) > 200 {
		t.Errorf("the error has %d bytes, want at most 200", len(err.Error()))
	}
}

// Encode must write required lists as [], never as null, and must not change the caller's message.
func TestEncodeLists(t *testing.T) {
	exit := &protocol.ExitRecord{}
	sessions := []protocol.SessionInfo{{ID: "a", Exit: exit}}
	const zero = `"0001-01-01T00:00:00Z"`
	tests := []struct {
		name string
		m    protocol.Message
		want string
	}{
		{name: "its own", m: api.Sessions{}, want: `{"type":"sessions","sessions":[]}`},
		{name: "of a pointer", m: &api.Sessions{}, want: `{"type":"sessions","sessions":[]}`},
		{name: "bytes", m: api.TerminalData{SessionID: "a"}, want: `{"type":"terminal.data","session_id":"a","data_b64":""}`},
		{name: "embedded", m: link.Create{}, want: `{"type":"create"}`},
		{name: "empty and not nil", m: link.Create{SpawnSpec: protocol.SpawnSpec{Argv: []string{}}}, want: `{"type":"create","argv":[]}`},
		{name: "optional", m: link.Reopen{SessionID: "a"}, want: `{"type":"reopen","session_id":"a"}`},
		{name: "nested", m: api.Sessions{Sessions: sessions},
			want: `{"type":"sessions","sessions":[{"id":"a","instance":"","pid":0,"state":"","size":{"cols":0,"rows":0},"argv":[],"cwd":"",` +
				`"created_at":` + zero + `,"last_io_at":` + zero + `,"output_offset":0,"ring_start":0,"scrollback_lines":0,"attachments":0,` +
				`"exit":{"exit_code":0,"outcome":"","reason":"","timed_out":false,"last_lines":[],"tail":[],"started_at":` + zero + `,"exited_at":` + zero + `}}]}`},
		{name: "empty", m: link.OK{}, want: `{"type":"ok"}`},
		{name: "as it is", m: api.Goaway{Reason: "a < b && c > d"}, want: `{"type":"goaway","retry_after_ms":0,"reason":"a < b && c > d"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := protocol.Encode(tt.m)
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s and %v, want %s", got, err, tt.want)
			}
		})
	}
	if sessions[0].Argv != nil || exit.Tail != nil || sessions[0].Exit != exit {
		t.Error("the caller's message was changed")
	}
}

// exit_code must be absent until the session has exited, and must then be present, even if it is 0.
//
// demand: K4
func TestExitCodeOnTheWire(t *testing.T) {
	zero := 0
	for _, tt := range []struct {
		code *int
		want bool
	}{{nil, false}, {&zero, true}} {
		b, err := protocol.Encode(api.Session{Session: protocol.SessionInfo{ExitCode: tt.code}})
		if err != nil || bytes.Contains(b, []byte(`"exit_code"`)) != tt.want {
			t.Errorf("%v: got %s and %v", tt.code, b, err)
		}
	}
}

type text string

func (text) MessageType() string { return "text" }

func TestEncodeRefuses(t *testing.T) {
	year := time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, m := range []protocol.Message{text("x"), api.TicketIssued{ExpiresAt: year}} {
		if b, err := protocol.Encode(m); err == nil {
			t.Errorf("got %s, want an error", b)
		}
	}
}

func TestRegistry(t *testing.T) {
	if m := api.Messages.New("teleport"); m != nil {
		t.Errorf("got %v for an unknown type", m)
	}
	defer func() {
		if recover() == nil {
			t.Error("a registry accepts two messages of one type")
		}
	}()
	protocol.NewRegistry(func() []protocol.RequestKind { return nil }, api.OK{}, link.Error{}, api.Error{}).Types()
}

// FuzzDecode checks that no input makes Decode panic, that it returns only the two documented codes, and that
// a decoded message keeps its meaning when it is encoded again.
func FuzzDecode(f *testing.F) {
	for _, w := range wires {
		for _, line := range drift.GoldenMessages(f, w.name, protocol.Version) {
			f.Add(line)
		}
	}
	f.Add([]byte(`{"type":"exited","exit":null,"labels":{"":null}}`))
	f.Add([]byte(`{"TYPE":"list","type":"info"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, w := range wires {
			m, env, err := w.reg.Decode(in)
			if err != nil {
				if code := protocol.CodeOf(err); m != nil || code != protocol.CodeBadFrame && code != protocol.CodeUnsupported {
					t.Fatalf("got %v and %v", m, err)
				}
				continue
			}
			if m.MessageType() != env.Type {
				t.Fatalf("got a %s for %q", m.MessageType(), env.Type)
			}
			once, err := protocol.Encode(m)
			if err != nil {
				t.Fatalf("%s was decoded but cannot be encoded: %v", env.Type, err)
			}
			again, _, err := w.reg.Decode(once)
			if err != nil {
				t.Fatalf("%v: %s", err, once)
			}
			if twice, err := protocol.Encode(again); err != nil || !bytes.Equal(once, twice) {
				t.Fatalf("got %s and %v, want %s", twice, err, once)
			}
		}
	})
}
