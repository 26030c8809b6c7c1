package gate

import (
	"errors"
	"io"
	"net"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/crowd"
)

// sharing returns a function that copies the frames of a client and a host to each other. If the client is a
// read-only viewer, it may share the output of the session with others, and enters the host again when it
// needs a connection of its own.
func (g *Gate) sharing(principal *protocol.Principal, m *gate.Enter) carrier {
	again := *m
	again.Start, again.Again = false, true
	return func(client, host net.Conn, fromClient io.Reader, toClient io.Writer) {
		g.crowds.Serve(crowd.Visit{
			Client: client, FromClient: fromClient, ToClient: toClient, Host: host, Name: m.Host,
			Dial: func() (net.Conn, error) {
				conn, _, why, _ := g.reach(principal, &again)
				if why != "" {
					return nil, errors.New(why)
				}
				return conn, nil
			},
			Close: func(conn net.Conn) {
				_ = abort(conn)     // the peer may have closed it
				if conn != client { // the goroutine of the client removes that
					g.remove(conn)
				}
			},
		})
	}
}
