package client

import (
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

func TestAwayAndEnvironment(t *testing.T) {
	_, c, p := dialed(t)
	waitAway := start(t, func() (*protocol.AwayInfo, error) { return c.Away(t.Context(), "s") })
	away := want[*api.Away](p)
	equal(t, "session", away.SessionID, protocol.SessionID("s"))
	info := protocol.AwayInfo{Instance: "i", Left: &protocol.Left{Offset: 5, Line: 6}, Printed: 7, Commands: []protocol.CommandInfo{{Line: "make", Count: 1}}, Ended: 1}
	p.answer(away, &api.AwayContent{AwayInfo: info})
	got, err := waitAway()
	testkit.Must(t, err)
	equal(t, "away", *got, info)

	waitEnv := start(t, func() ([]string, error) { return c.Environment(t.Context(), "s") })
	m := want[*api.Environment](p)
	p.answer(m, &api.EnvironmentContent{Env: []string{"A=1"}})
	env, err := waitEnv()
	testkit.Must(t, err)
	equal(t, "environment", env, []string{"A=1"})

	waitAway = start(t, func() (*protocol.AwayInfo, error) { return c.Away(t.Context(), "s") })
	p.answer(want[*api.Away](p), &api.Error{Error: *protocol.Errorf(protocol.CodeUnsupported, "too old")})
	if _, err := waitAway(); protocol.CodeOf(err) != protocol.CodeUnsupported {
		t.Errorf("got %v, want unsupported", err)
	}
}

// The input of other viewers comes as messages, and is not part of the output.
func TestTypedMessages(t *testing.T) {
	_, a, p := view(t)
	at := time.Unix(1_700_000_000, 0).UTC()
	p.send(api.Typed{Attachment: number, At: at, Offset: 3, Data: []byte("ls")}, api.Typed{Attachment: number, At: at, Offset: 4, Data: []byte("**"), Masked: true})
	equal(t, "message", *receive(t, a), Message{Kind: Typed, At: at, Offset: 3, Data: []byte("ls")})
	equal(t, "message", *receive(t, a), Message{Kind: Typed, At: at, Offset: 4, Data: []byte("**"), Masked: true})
	p.send(api.Typed{Attachment: number, At: at, Data: []byte("ls")})
	p.output(frame.Output, 0, "abc")
	equal(t, "read", readFull(t, a, 3), "abc")
}
