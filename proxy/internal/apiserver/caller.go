package apiserver

import (
	"github.com/rs/zerolog"

	"holdfast/protocol/api"
	"holdfast/shared/logging"
)

// A caller is the client of a connection: its identity, its rights, and the requests that are
// answered without the connection. Several goroutines use it; hello and from.Principal are set
// before they start.
type caller struct {
	s     *Server
	from  Origin
	hello *api.Hello // nil until the client has sent it
	log   zerolog.Logger

	askSlots chan struct{} // those of its share link; nil if it has come by none
}

// newCaller returns the client of a new connection.
func (s *Server) newCaller(from Origin) caller {
	return caller{s: s, from: from, log: s.cfg.Log.With().Str("transport", from.Transport).Int(logging.PID, from.PID).Logger()}
}

// isBare reports whether the client sees one session and exchanges no messages.
func (c *caller) isBare() bool { return c.from.Transport == TransportRaw }
