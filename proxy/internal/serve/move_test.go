//go:build unix

package serve

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/testkit"
)

// The state of a connection is hardly longer than the requests that it has, so that a client cannot make it longer than a
// handoff carries: <, > and & stay one byte each.
func TestPassedRequests(t *testing.T) {
	nc, err := net.Dial("udp", "127.0.0.1:9") // any connection with a descriptor; no packet is sent
	testkit.Must(t, err)
	defer nc.Close()
	request := json.RawMessage(`{"type":"wait","text":"` + strings.Repeat("<", 128<<10) + `"}`)
	record := &apiserver.Record{Version: apiserver.RecordVersion, Requests: []json.RawMessage{request, request}}
	err = new(serving).pass([]given{{nc, record}}, nil, func(conns []handoff.Conn, _ []byte) error {
		if n := len(conns[0].Record); n > 2*len(request)+1024 {
			t.Errorf("the state of a connection with requests of %d bytes has %d bytes", 2*len(request), n)
		}
		var got apiserver.Record
		if err := json.Unmarshal(conns[0].Record, &got); err != nil || len(got.Requests) != 2 || string(got.Requests[1]) != string(request) {
			t.Errorf("the successor receives %d requests, %v", len(got.Requests), err)
		}
		return nil
	})
	testkit.Must(t, err)
}
