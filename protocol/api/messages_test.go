package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/internal/drift"
)

func TestWire(t *testing.T) { drift.CheckWire(t, "api", Messages, "..") }

// TestGenerated checks that the npm client and the Python client have the types that are generated from the schema. It runs after
// TestWire, which updates the schema.
func TestGenerated(t *testing.T) {
	schema, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for path, generate := range map[string]func(wire string, schema []byte) ([]byte, error){
		"../../proxy/internal/web/client/src/wire.ts": drift.TypeScript,
		"../../proxy/client/python/holdfast/wire.py":  drift.Python,
	} {
		types, err := generate("api", schema)
		if err != nil {
			t.Fatal(err)
		}
		drift.Golden(t, path, types)
	}
}

// The frame of a session's end must have these fields, of these types, and must not require a field that it
// may omit.
//
// demand: B1
func TestPTYExited(t *testing.T) {
	agent := "planner"
	tests := []struct {
		name string
		m    PTYExited
		want string
	}{
		{name: "least", m: PTYExited{SessionID: "s-1", PaneID: "s-1"},
			want: `{"type":"pty_exited","session_id":"s-1","pane_id":"s-1","exit_code":0,"last_lines":[],` +
				`"session_title":"","session_description":"","timed_out":false}`},
		{name: "with its parent", m: PTYExited{
			SessionID: "s-1", PaneID: "pane_2", ExitCode: -1, LastLines: []string{"a", "b"},
			SessionTitle: "Build", SessionDescription: "all of it", ParentAgent: &agent, TimedOut: true},
			want: `{"type":"pty_exited","session_id":"s-1","pane_id":"pane_2","exit_code":-1,"last_lines":["a","b"],` +
				`"session_title":"Build","session_description":"all of it","parent_agent":"planner","timed_out":true}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := protocol.Encode(tt.m)
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s and %v, want %s", got, err, tt.want)
			}
		})
	}
	m, _, err := Messages.Decode([]byte(`{"type":"pty_exited","session_id":"s-1","pane_id":"s-1","parent_agent":null}`))
	if err != nil || m.(*PTYExited).ParentAgent != nil {
		t.Errorf("parent_agent null: got %+v and %v", m, err)
	}
	checkFields(t, "pty_exited", map[string]string{
		"session_id": "id, required", "pane_id": "id, required", "exit_code": "int, required",
		"last_lines": "string[], required", "session_title": "string, required", "session_description": "string, required",
		"parent_agent": "string?, optional", "timed_out": "bool, required",
	})
}

// checkFields compares the named fields of a message. The message may have more fields.
func checkFields(t *testing.T, typ string, want map[string]string) {
	t.Helper()
	for _, m := range drift.Describe("api", Messages).Messages {
		if m.Name != typ {
			continue
		}
		got := map[string]string{}
		for _, f := range m.Fields {
			need := "optional"
			if f.Required {
				need = "required"
			}
			if _, ok := want[f.Name]; ok {
				got[f.Name] = fmt.Sprintf("%s, %s", f.Type, need)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", typ, got, want)
		}
		return
	}
	t.Errorf("the message %s does not exist", typ)
}

// The messages of text clients must have these fields, and their codes must exist.
//
// demand: M15
func TestTerminalMessages(t *testing.T) {
	const id, request = "id, required", "string, optional"
	checkFields(t, "terminal.open", map[string]string{
		"request_id": request, "task_id": "string, required", "workspace_id": "string, required",
		"user_id": "string, optional", "cols": "int, optional", "rows": "int, optional",
	})
	checkFields(t, "terminal.opened", map[string]string{
		"request_id": request, "session_id": id, "work_dir": "string, required", "shell": "string, required",
	})
	checkFields(t, "terminal.data", map[string]string{"session_id": id, "data_b64": "base64, required"})
	checkFields(t, "terminal.resize", map[string]string{"session_id": id, "cols": "int, required", "rows": "int, required"})
	checkFields(t, "terminal.close", map[string]string{"session_id": id, "reason": "string, optional"})
	checkFields(t, "terminal.exit", map[string]string{"session_id": id, "exit_code": "int, required", "reason": "string, optional"})
	checkFields(t, "terminal.error", map[string]string{
		"request_id": request, "session_id": "id, optional", "code": "Code, required", "message": "string, required", "cause": "Code, optional",
	})
	for _, code := range []protocol.Code{
		"workspace_mismatch", "task_not_found", "session_not_found", "unsupported_os", "spawn_failed", "internal",
	} {
		if !slices.Contains(protocol.Codes(), code) {
			t.Errorf("the code %s does not exist", code)
		}
	}
}

// Each message with a request id must encode it.
func TestRequestID(t *testing.T) {
	for _, typ := range Messages.Types() {
		r, ok := Messages.New(typ).(interface {
			protocol.Message
			ID() string
			SetID(string)
		})
		if !ok {
			continue
		}
		r.SetID("r-1")
		b, err := protocol.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		var env protocol.Envelope
		if err := json.Unmarshal(b, &env); err != nil || env.RequestID != "r-1" || r.ID() != "r-1" {
			t.Errorf("%s: got %+v and %v", typ, env, err)
		}
	}
}
