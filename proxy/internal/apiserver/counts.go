package apiserver

import (
	"sync/atomic"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// otherName counts all names that are not known, so that a client cannot make the maps grow.
const otherName = "other"

// counts counts requests by type and refusals by code. All keys are added at the start, so that the
// maps never change.
type counts struct {
	requests, refusals map[string]*atomic.Uint64
}

func newCounts() counts {
	c := counts{make(map[string]*atomic.Uint64), make(map[string]*atomic.Uint64)}
	for _, name := range append(api.Messages.Types(), otherName) {
		c.requests[name] = new(atomic.Uint64)
	}
	for _, code := range append(protocol.Codes(), otherName) {
		c.refusals[string(code)] = new(atomic.Uint64)
	}
	return c
}

// increment adds 1 to the count of a name.
func increment(in map[string]*atomic.Uint64, name string) {
	n := in[name]
	if n == nil {
		n = in[otherName]
	}
	n.Add(1)
}

// Refused counts a refusal by its code. Package web calls it for refusals before a connection
// exists.
func (s *Server) Refused(code protocol.Code) { increment(s.counts.refusals, string(code)) }

// countRefusal counts m if it reports an error.
func (s *Server) countRefusal(m protocol.Message) {
	switch m := m.(type) {
	case api.Error:
		s.Refused(m.Code)
	case api.TerminalError:
		s.Refused(m.Code)
	}
}

// Counts are the numbers of a Server for its metrics. The maps omit counts of 0, except
// Connections.
type Counts struct {
	Connections map[string]int    // by transport
	Attachments int               // of all connections
	Requests    map[string]uint64 // by message type
	Refusals    map[string]uint64 // by error code
}

// Counts returns the current numbers.
func (s *Server) Counts() Counts {
	c := Counts{
		Connections: map[string]int{TransportUnix: 0, TransportWeb: 0, TransportRaw: 0},
		Requests:    nonZero(s.counts.requests), Refusals: nonZero(s.counts.refusals),
	}
	for _, conn := range s.allConns() {
		c.Connections[conn.from.Transport]++
		c.Attachments += conn.attachments.count()
	}
	return c
}

// nonZero returns the counts that are not 0.
func nonZero(in map[string]*atomic.Uint64) map[string]uint64 {
	out := make(map[string]uint64)
	for name, n := range in {
		if n := n.Load(); n > 0 {
			out[name] = n
		}
	}
	return out
}
