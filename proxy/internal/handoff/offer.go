package handoff

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
)

// An Offer is the old side: it answers the control socket of a serving proxy.
type Offer struct {
	// Files returns what to pass on. The files are the Offer's to close.
	Files func() ([]Group, []*os.File, error)
	// Leave is called once, after the successor has said that it serves, or
	// when the proxy is asked to stop. It makes the proxy accept no more, gives
	// the successor what connections it can by pass, tells the other clients to
	// come back, and returns; handed says whether somebody else has the
	// listeners now. pass is nil where nobody takes connections; those it is
	// given stay Leave's, and are whoever's it was given to if it returns nil.
	Leave func(handed bool, pass func([]Conn) error)
	// Build is this build's version.
	Build string
	Log   zerolog.Logger

	busy atomic.Bool
	left atomic.Bool
}

// Serve answers until ln is closed.
func (o *Offer) Serve(ctx context.Context, ln *socket.Listener) error {
	for {
		conn, peer, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		go o.serve(conn, o.Log.With().Int(logging.PID, peer.PID).Logger())
	}
}

func (o *Offer) serve(conn *net.UnixConn, log zerolog.Logger) {
	defer func() { _ = conn.Close() }()
	m, err := hear(conn, "take", "stop")
	if err != nil {
		log.Warn().Err(err).Msg("control request not understood")
		return
	}
	if !o.busy.CompareAndSwap(false, true) {
		busy := &protocol.Error{Code: protocol.CodeLimitExceeded, Message: "another handoff is under way", Retryable: true, RetryAfterMS: 1000}
		_ = send(conn, message{Do: "error", Error: busy}, nil)
		return
	}
	defer o.busy.Store(false)
	if m.Do == "stop" {
		log.Info().Msg("asked to stop")
		_ = send(conn, message{Do: "stopping"}, nil)
		o.leave(false, nil)
		return
	}
	if err := o.hand(conn, m); err != nil {
		log.Warn().Err(err).Msg("handoff failed, serving on")
		return
	}
	log.Info().Str("successor", m.Version).Msg("handed off")
}

func (o *Offer) leave(handed bool, pass func([]Conn) error) {
	if o.left.CompareAndSwap(false, true) {
		o.Leave(handed, pass)
	}
}

// hand passes everything on. It returns an error, having changed nothing,
// unless the successor has said that it serves.
func (o *Offer) hand(conn *net.UnixConn, m message) error {
	agreed, err := protocol.Agree(supported, m.Versions)
	if err != nil {
		return errors.Join(err, send(conn, message{Do: "error", Error: protocol.AsError(err)}, nil))
	}
	groups, files, err := o.Files()
	if err != nil {
		return errors.Join(err, send(conn, message{Do: "error", Error: protocol.AsError(err)}, nil))
	}
	err = send(conn, message{Do: "offer", Versions: supported, Version: o.Build, Groups: groups}, files)
	if err == nil {
		_, err = hear(conn, "serving")
	}
	if err = errors.Join(err, closeAll(files)); err != nil {
		return err
	}
	var pass func([]Conn) error
	if agreed >= withConns {
		pass = func(conns []Conn) error { return give(conn, conns) }
	}
	o.leave(true, pass)
	_ = send(conn, message{Do: "done"}, nil) // the successor serves, whether it hears this or not
	return nil
}
