package apiserver

import (
	"context"
	"errors"
	"net"

	"holdfast/shared/pipe"
)

// TransportPipe is a named pipe: the framed stream of the Unix socket, on Windows.
const TransportPipe = "pipe"

// A PipeListener lets in processes of our own user; *pipe.Listener is one.
type PipeListener interface {
	Accept() (net.Conn, pipe.Peer, error)
}

// ServePipe serves a named pipe until its listener is closed or fails.
// Connections go on when it returns, and end with connCtx.
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
