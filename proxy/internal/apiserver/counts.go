package apiserver

import (
	"sync/atomic"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// other is what counts stand under whose name we do not know: a client must not
// be able to make new ones.
const other = "other"

// counts counts by names that are all known beforehand; the maps never change.
type counts struct {
	requests, refusals map[string]*atomic.Uint64
}

func newCounts() counts {
	c := counts{make(map[string]*atomic.Uint64), make(map[string]*atomic.Uint64)}
	for _, name := range append(api.Messages.Types(), other) {
		c.requests[name] = new(atomic.Uint64)
	}
	for _, code := range append(protocol.Codes(), other) {
		c.refusals[string(code)] = new(atomic.Uint64)
	}
	return c
}

func count(in map[string]*atomic.Uint64, name string) {
	n := in[name]
	if n == nil {
		n = in[other]
	}
	n.Add(1)
}

// Refused counts what was refused, here or before it came here.
func (s *Server) Refused(code protocol.Code) { count(s.counts.refusals, string(code)) }

// refused counts m, if that says that something was refused.
func (s *Server) refused(m protocol.Message) {
	switch m := m.(type) {
	case api.Error:
		s.Refused(m.Code)
	case api.TerminalError:
		s.Refused(m.Code)
	}
}

// Counts are a Server's numbers. What counts up is left out where it is 0.
type Counts struct {
	Connections map[string]int // by transport
	Attachments int
	Requests    map[string]uint64 // by their type
	Refusals    map[string]uint64 // by their code
}

// Counts returns the server's numbers.
func (s *Server) Counts() Counts {
	c := Counts{
		Connections: map[string]int{TransportUnix: 0, TransportWeb: 0, TransportRaw: 0},
		Requests:    counted(s.counts.requests), Refusals: counted(s.counts.refusals),
	}
	for _, conn := range s.all() {
		c.Connections[conn.from.Transport]++
		c.Attachments += conn.attached()
	}
	return c
}

func counted(in map[string]*atomic.Uint64) map[string]uint64 {
	out := make(map[string]uint64)
	for name, n := range in {
		if n := n.Load(); n > 0 {
			out[name] = n
		}
	}
	return out
}
