package apiserver

import (
	"maps"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// Requests and refusals of clients are counted under names of the protocol, whatever names the clients send.
func TestCounts(t *testing.T) {
	w := newWorld(t, nil)
	c := w.client()
	c.send(api.Ticket{Request: req("t")})
	expect[*api.TicketIssued](c)
	c.ping() // one message has an unknown type
	c.send(api.Resize{Request: req("r"), Attachment: new(uint32(5)), Cols: 1, Rows: 1})
	c.wantError(protocol.CodeNotAttached)
	w.server.Refused("a code of a later version")
	got := w.server.Counts()
	if got.Connections["test"] != 1 || got.Connections[TransportUnix] != 0 || got.Attachments != 0 {
		t.Errorf("the counts are %+v", got)
	}
	if want := map[string]uint64{"ticket": 1, otherName: 1, "resize": 1}; !maps.Equal(got.Requests, want) {
		t.Errorf("requests %v, want %v", got.Requests, want)
	}
	if want := map[string]uint64{"unsupported": 1, "not_attached": 1, otherName: 1}; !maps.Equal(got.Refusals, want) {
		t.Errorf("refusals %v, want %v", got.Refusals, want)
	}
}
