package apiserver

import (
	"context"
	"errors"
	"net"

	"holdfast/shared/pipe"
)

// TransportPipe is a named pipe on Windows, with the framed stream of the Unix socket.
const TransportPipe = "pipe"

// A PipeListener accepts processes of the same user. *pipe.Listener implements it.
type PipeListener interface {
	Accept() (net.Conn, pipe.Peer, error)
}

// ServePipe accepts connections of a named pipe until ln is closed or fails. The connections
// continue when ServePipe returns; they end when connCtx is done.
func (s *Server) ServePipe(connCtx context.Context, ln PipeListener) error {
	for {
		nc, peer, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go s.Accept(connCtx, NewStream(nc, nil), Origin{Transport: TransportPipe, PID: peer.PID, Trusted: true})()
	}
}
