package apiserver

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
)

// If the supervisor does not know a request, the reply is unsupported, with a message for people.
func TestUnknownToTheSupervisor(t *testing.T) {
	w := newWorld(t, nil)
	w.Reply(func(m protocol.Message) (protocol.Message, error) {
		return nil, protocol.Errorf(protocol.CodeUnsupported, "unknown message type")
	})
	c := w.client()
	for _, m := range []protocol.Message{
		api.Away{Request: req("r"), SessionID: "s"}, api.Environment{Request: req("r"), SessionID: "s"},
	} {
		c.send(m)
		if e := expect[*api.Error](c); e.Code != protocol.CodeUnsupported || e.RequestID != "r" || !strings.Contains(e.Message, "does not know "+m.MessageType()) {
			t.Errorf("%s: received %+v", m.MessageType(), e)
		}
	}
}

// The input of other viewers is sent to attachments that request it, and is requested again over the next link.
func TestTypedIsPassedOn(t *testing.T) {
	w := newWorld(t, nil)
	st := newStage(w, protocol.AttachInfo{Session: someInfo, Replay: protocol.ReplayExact, Writer: "w"})
	c := w.client()
	spec := protocol.AttachSpec{SessionID: "s", Typed: true, Env: []string{"A=1"}}
	c.send(api.Attach{Request: req("a"), Attachment: 3, AttachSpec: spec})
	expect[*api.Attached](c)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for range 2 { // the second round uses another link
		a := st.next()
		if !a.spec.Typed || !reflect.DeepEqual(a.spec.Env, spec.Env) {
			t.Errorf("the attach is %+v", a.spec.AttachSpec)
		}
		a.say(wire.Typed{At: at, Offset: 5, Data: []byte("**"), Masked: true})
		want := api.Typed{Attachment: 3, At: at, Offset: 5, Data: []byte("**"), Masked: true}
		for {
			m := c.mustNext()
			got, ok := m.(*api.Typed)
			if !ok {
				continue // a message about the new link
			}
			if !reflect.DeepEqual(*got, want) {
				t.Errorf("received %+v, want %+v", *got, want)
			}
			break
		}
		w.Cut()
	}
	c.nc.Close()
}
