package protocol_test

import (
	"reflect"
	"slices"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/link"
)

// repeats contains each Repeat, and the field that it requires.
var repeats = map[protocol.Repeat]string{
	protocol.RepeatNever: "", protocol.RepeatRead: "", protocol.RepeatSet: "",
	protocol.RepeatToken: "Token", protocol.RepeatWriter: "Writer", protocol.RepeatInstance: "Instance",
}

// TestRequestRows checks that each row is complete and fits its message.
func TestRequestRows(t *testing.T) {
	for _, w := range wires {
		for _, k := range w.reg.Requests() {
			typ := reflect.TypeOf(k.Message)
			key, ok := repeats[k.Repeat]
			if !ok {
				t.Errorf("%s %s: the row does not say whether the request may be repeated", w.name, k.Type())
			} else if f, ok := typ.FieldByName(key); key != "" && (!ok || f.Type.Kind() != reflect.String) {
				t.Errorf("%s %s: %q requires a field %s", w.name, k.Type(), k.Repeat, key)
			}
			f, ok := typ.FieldByName("SessionID")
			if ok = ok && f.Type == reflect.TypeFor[protocol.SessionID](); k.IsAboutSession && !ok {
				t.Errorf("%s %s: a request about a session requires a field SessionID", w.name, k.Type())
			}
			if k.Link == nil {
				continue
			}
			on, ok := link.Messages.Request(k.Link.MessageType())
			if !ok {
				t.Errorf("%s %s: %s is not a request of the link", w.name, k.Type(), k.Link.MessageType())
			}
			if k.Repeat != on.Repeat && k.Repeat != protocol.RepeatNever {
				t.Errorf("%s %s: got repeat %q, but the link's %s has %q", w.name, k.Type(), k.Repeat, on.Type(), on.Repeat)
			}
		}
	}
}

// TestRowForEachMessage checks that each message with a request id is a request or the reply to a request.
func TestRowForEachMessage(t *testing.T) {
	var known []string
	for _, k := range api.Messages.Requests() {
		known = append(known, k.Type())
		if k.Reply != nil {
			known = append(known, k.Reply.MessageType())
		}
	}
	known = append(known, "error", "terminal.error")
	for _, typ := range api.Messages.Types() {
		if _, ok := api.Messages.New(typ).(interface{ SetID(string) }); ok && !slices.Contains(known, typ) {
			t.Errorf("%s has a request_id, but it is in no row of the table of requests", typ)
		}
	}
}

func TestMayRepeat(t *testing.T) {
	tests := []struct {
		m    protocol.Message
		want bool
	}{
		{api.List{}, true},
		{api.Screen{}, true},
		{api.Rename{}, true},
		{api.Spawn{}, false},
		{api.Spawn{Token: "t"}, true},
		{&api.Reopen{Token: "t"}, true},
		{api.Input{}, false},
		{api.Input{Writer: "w"}, true},
		{api.Forget{Instance: "i"}, false},
		{api.Terminate{}, false},
		{api.Signal{}, false},
		{api.Attach{AttachSpec: protocol.AttachSpec{Writer: "w"}}, false},
		{api.TerminalOpen{}, false},
		{link.Forget{}, false},
		{link.Forget{Instance: "i"}, true},
		{&link.Attach{AttachSpec: protocol.AttachSpec{Writer: "w"}}, true},
		{link.Interrupt{}, false},
	}
	for _, tt := range tests {
		reg := api.Messages
		if reflect.Indirect(reflect.ValueOf(tt.m)).Type().PkgPath() == reflect.TypeFor[link.Info]().PkgPath() {
			reg = link.Messages
		}
		k, ok := reg.Request(tt.m.MessageType())
		if got := k.MayRepeat(tt.m); !ok || got != tt.want {
			t.Errorf("%T %+v: got %t and %t, want %t", tt.m, tt.m, got, ok, tt.want)
		}
	}
	if (protocol.RequestKind{}).MayRepeat(api.List{}) {
		t.Error("a row without Repeat permits a repetition")
	}
}

func TestSessionOf(t *testing.T) {
	for _, m := range []protocol.Message{api.Info{SessionID: "s"}, &api.Screen{ScreenSpec: protocol.ScreenSpec{SessionID: "s"}}} {
		if got := protocol.SessionOf(m); got != "s" {
			t.Errorf("%T: got %q, want s", m, got)
		}
	}
	if got := protocol.SessionOf(api.List{}); got != "" {
		t.Errorf("got %q for a message without a session", got)
	}
	if got := protocol.InstanceOf(&link.Screen{Instance: "i"}); got != "i" {
		t.Errorf("got %q, want i", got)
	}
	m := link.Forget{SessionID: "s"}
	if got := protocol.WithInstance(m, "i"); got != (link.Forget{SessionID: "s", Instance: "i"}) || m.Instance != "" {
		t.Errorf("got %+v of %+v", got, m)
	}
	for _, tt := range []struct{ m, want protocol.Message }{
		{link.Forget{Restore: true}, link.Forget{SessionID: "s", Instance: "i", Restore: true}},
		{link.Forget{Instance: "chosen"}, link.Forget{SessionID: "s", Instance: "chosen"}},
		{link.Info{}, link.Info{SessionID: "s"}}, // messages of this type have no instance
	} {
		if got := protocol.About(tt.m, "s", "i"); got != tt.want {
			t.Errorf("got %+v, want %+v", got, tt.want)
		}
	}
	if got := protocol.InstanceOf(text("x")); got != "" {
		t.Errorf("got %q for a message that is no struct", got)
	}
}
