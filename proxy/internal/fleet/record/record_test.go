package record

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"holdfast/protocol"
)

func TestSessionFits(t *testing.T) {
	s := protocol.SessionInfo{
		ID: "a", Argv: []string{strings.Repeat("x", 300), "é"}, Title: "t",
		Labels: map[string]string{"k": strings.Repeat("\x01", protocol.MaxLabelBytes-1)}, // six bytes each in JSON
	}
	got, err := ParseSession(Of(s))
	if err != nil || got.ID != "a" || len(got.Command) != maxCommand || got.Labels != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	s.Labels[protocol.LabelWorkspace] = "w"
	if got, err := ParseSession(Of(s)); err != nil || len(got.Labels) != 1 || got.Labels[protocol.LabelWorkspace] != "w" {
		t.Errorf("of a workspace: got %+v, %v", got, err)
	}
	s.Labels = map[string]string{"k": "<v>"}
	if got, err := ParseSession(Of(s)); err != nil || got.Labels["k"] != "<v>" || got.Title != "t" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	sum := strings.Repeat("0", 64)
	for _, tt := range []struct {
		name, text, says string
		decode           func([]byte) error
	}{
		{"no JSON", `{`, "not valid", decode[Host]},
		{"a sum that is too short", `{"sum":"00"}`, "sum of 2 digits", decode[Host]},
		{"too many sessions", `{"count":65537,"sum":"` + sum + `"}`, "65537 sessions", decode[Host]},
		{"large labels", `{"sum":"` + sum + `","labels":{"a":"` + strings.Repeat("x", 16<<10) + `"}}`, "labels of", decode[Host]},
		{"an id that is none", `{"id":"a/b"}`, "session id", decode[Change]},
		{"another session", `{"id":"a","session":{"id":"b"}}`, "describes session", decode[Change]},
		{"a large session", `{"id":"a","session":{"id":"a","title":"` + strings.Repeat("x", MaxSession) + `"}}`, "at most 32768", decode[Change]},
		{"a piece beyond the last", `{"index":2,"total":2}`, "piece 2 of 2", decode[Piece]},
		{"a negative piece", `{"index":-1,"total":2}`, "piece -1 of 2", decode[Piece]},
		{"too many pieces", `{"index":0,"total":5000}`, "of 5000", decode[Piece]},
		{"sessions that are too short", `{"index":0,"total":1,"sessions":[{"id":"a"}]}`, "at least 32", decode[Piece]},
		{"sessions that are no list", `{"index":0,"total":1,"sessions":{"id":"a"}}`, "begin with {", decode[Piece]},
		{"a short ticket", `{"ticket":"00"}`, "32 bytes", decode[Dial]},
		{"a long user", `{"ticket":"` + strings.Repeat("0f", 32) + `","principal":{"user":"` + strings.Repeat("u", 257) + `"}}`, "user: more than", decode[Dial]},
		{"a large message", `{"ticket":"` + strings.Repeat("0", MaxMessage) + `"}`, "at most", decode[Dial]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.decode([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
		})
	}
}

func decode[T Message](data []byte) error { _, err := Decode[T](data); return err }

// A host cannot make a gate need much more memory and time than its messages have bytes.
func TestManySessionsInPiece(t *testing.T) {
	piece := []byte(`{"index":0,"total":4096,"sessions":[` + strings.Repeat("1,", MaxMessage/2-50) + `1]}`)
	n := testing.AllocsPerRun(1, func() {
		if _, err := Decode[Piece](piece); err == nil {
			t.Error("many numbers count as sessions")
		}
	})
	if n > 100 {
		t.Errorf("to refuse many short sessions takes %v allocations", n)
	}
	whole := Piece{Total: 1, Sessions: Sessions{Of(protocol.SessionInfo{ID: "a"}), Of(protocol.SessionInfo{ID: "b"})}}
	if got, err := Decode[Piece](Encode(whole)); err != nil || !reflect.DeepEqual(got, whole) {
		t.Errorf("got %+v, %v, want %+v", got, err, whole)
	}
	for _, none := range []string{"", `,"sessions":null`, `,"sessions":[]`} {
		if got, err := Decode[Piece]([]byte(`{"index":0,"total":1` + none + `}`)); err != nil || len(got.Sessions) != 0 {
			t.Errorf("a host without sessions, %q: %+v, %v", none, got, err)
		}
	}
}

// FuzzDecode: whatever bytes come, no panic, and a message that is accepted is the same after another
// way over the bus.
func FuzzDecode(f *testing.F) {
	sum := strings.Repeat("0f", 32)
	f.Add([]byte(`{"epoch":1,"seq":2,"release":"r","system":"s","labels":{"a":"b"},"serving":true,"count":1,"sum":"` + sum + `"}`))
	f.Add([]byte(`{"epoch":1,"seq":3,"id":"a","session":{"id":"a","state":"running","size":{"cols":80,"rows":24}}}`))
	f.Add([]byte(`{"epoch":1,"seq":3,"id":"a","session":null}`))
	f.Add([]byte(`{"epoch":1,"seq":4,"index":0,"total":1,"sessions":[{"id":"a","instance":"i","state":"running"}]}`))
	f.Add([]byte(`{"ticket":"` + sum + `","start":true,"gate":"a:1"}`))
	f.Add([]byte(`{"ticket":"` + sum + `","principal":{"user":"u","workspace":"w","roles":["r"],"all":true}}`))
	f.Add([]byte(`{"epoch":1,"link":2,"addresses":["a:1"],"from":"a:1","sum":"` + sum + `"}`))
	f.Add([]byte(`{"hosts":{"h":{"key":"` + keyOf(1) + `","at":"2026-01-01T00:00:00Z"}},"revoked":{"` + keyOf(2) + `":"2026-01-01T00:00:00Z"},"gates":{"a:1":{"at":"2026-01-01T00:00:00Z","removed":true}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		again[Host](t, data)
		again[Change](t, data)
		again[Piece](t, data)
		again[Dial](t, data)
		again[Lost](t, data)
		again[Gates](t, data)
		again[MemberSum](t, data)
		again[Members](t, data)
		_, _ = ParseSession(data)
	})
}

func again[T Message](t *testing.T, data []byte) {
	m, err := Decode[T](data)
	if err != nil {
		return
	}
	b := Encode(m)
	if len(b) > MaxMessage { // escapes may make it longer
		return
	}
	twice, err := Decode[T](b)
	if err != nil {
		if c, ok := any(m).(Change); ok && len(c.Session) > MaxSession/8 {
			return
		}
		if p, ok := any(m).(Piece); ok && len(p.Sessions) > 0 { // without their spaces they may be too short
			return
		}
		t.Fatalf("%s: %v", b, err)
	}
	if x, y := Encode(twice), b; !reflect.DeepEqual(canonical(x), canonical(y)) {
		t.Fatalf("got %s, want %s", x, y)
	}
}

func canonical(b []byte) (v any) {
	_ = json.Unmarshal(b, &v)
	return v
}
