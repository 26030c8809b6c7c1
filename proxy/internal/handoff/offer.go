package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
)

// An Offer is the old side: it answers the control socket of a serving proxy.
type Offer struct {
	// Files returns what to pass on. The files are the Offer's to close.
	Files func() ([]Group, []*os.File, error)
	// Records is the range of versions of the records that Move gives.
	Records protocol.VersionRange
	// Guarded says that not everybody may do everything here: a successor that
	// does not know of that must not follow.
	Guarded bool
	// Look answers what the successor asks in order to compare.
	Look func(ctx context.Context, body json.RawMessage) (json.RawMessage, error)
	// Move makes the proxy accept no more, and gives the successor what
	// connections it can by pass; where only is not "", those of that transport
	// alone, and those alone whose records are of no later version than records. It
	// returns how many it had to close.
	Move func(pass Pass, only string, records int) (closed int, err error)
	// State returns what is to be passed on when all connections are.
	State func() []byte
	// Back is called after Move when the proxy must serve on.
	Back func()
	// Leave is called once, when the successor has said that it serves, or when
	// the proxy is asked to stop. It tells the clients that are left to come back,
	// and returns; handed says whether somebody else has the listeners now.
	Leave func(handed bool)
	// SignOut voids the cookies of all browsers and ends their connections.
	SignOut func() error
	// Settings go with the offer: what a successor cannot know otherwise.
	Settings func() json.RawMessage
	// Build is this build's version.
	Build string
	// Step is told what has been done; nil for nobody.
	Step func(name string)
	Log  zerolog.Logger

	busy atomic.Bool
	left atomic.Bool
}

// A Pass gives connections, with what state there is. They are the successor's
// if it returns nil; if it returns an error they are not, unless that is
// ErrInDoubt.
type Pass func(conns []Conn, state []byte) error

// ErrInDoubt is of a connection that may be the successor's.
var ErrInDoubt = errors.New("it is not known who has it")

// errLooked ends a handoff that was only tried.
var errLooked = errors.New("the successor has seen enough")

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
		go o.serve(ctx, conn, peer.PID)
	}
}

func (o *Offer) serve(ctx context.Context, conn *net.UnixConn, pid int) {
	defer func() { _ = conn.Close() }()
	log := o.Log.With().Int(logging.PID, pid).Logger()
	l := &line{conn: conn}
	m, err := l.hear("take", "stop", "sign_out")
	if err != nil {
		log.Warn().Err(err).Msg("control request not understood")
		return
	}
	if !o.busy.CompareAndSwap(false, true) {
		l.sendError(&protocol.Error{Code: protocol.CodeLimitExceeded, Message: "another handoff is under way", Retryable: true, RetryAfterMS: 1000})
		return
	}
	defer o.busy.Store(false)
	if m.Do == "stop" {
		log.Info().Msg("asked to stop")
		_ = l.send(message{Do: "stopping"}, nil)
		o.leave(false)
		return
	}
	if m.Do == "sign_out" {
		log.Info().Bool(logging.Security, true).Msg("all browsers signed out")
		if err := o.SignOut(); err != nil {
			l.sendError(err)
			return
		}
		_ = l.send(message{Do: "signed_out"}, nil)
		return
	}
	switch err := o.hand(ctx, l, m, pid); {
	case err == nil:
		log.Info().Str("successor", m.Version).Msg("handed off")
	case errors.Is(err, errLooked):
		log.Info().Str("successor", m.Version).Msg("a handoff was tried, as far as it goes without one")
	default:
		log.Warn().Err(err).Msg("handoff failed, serving on")
	}
}

func (o *Offer) leave(handed bool) {
	if o.left.CompareAndSwap(false, true) {
		o.Leave(handed)
	}
}

func (o *Offer) step(name string) {
	if o.Step != nil {
		o.Step(name)
	}
}

// hand passes everything on. It returns an error, serving as before, unless the
// successor has said that it serves.
func (o *Offer) hand(ctx context.Context, l *line, m message, pid int) error {
	agreed, err := o.prepare(ctx, l, m)
	if err != nil {
		l.sendError(err) // before the end of the conversation, which would say that we died
		dismiss(l, pid)
		return err
	}
	if agreed < lookFirst {
		o.handServing(l)
		return nil
	}
	l.wait, l.until = batchTime, time.Time{}
	if err := o.move(l); err != nil {
		l.sendError(err) // before anything is taken back
		o.Back()
		dismiss(l, pid)
		return err
	}
	o.step("committed")
	o.leave(true)
	return nil
}

// prepare is all up to the point where something changes.
func (o *Offer) prepare(ctx context.Context, l *line, m message) (agreed int, err error) {
	timeout := Timeout
	if m.TimeoutMS > 0 {
		timeout = min(time.Duration(m.TimeoutMS)*time.Millisecond, MaxTimeout)
	}
	l.wait, l.until = timeout, time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(ctx, l.until)
	defer cancel()
	agreed, err = protocol.Agree(supported, m.Versions)
	if err != nil {
		return 0, err
	}
	if agreed < lookFirst && o.Guarded {
		return 0, protocol.Errorf(protocol.CodeProtocolMismatch, "a policy decides here who may do what, and the successor knows of none")
	}
	if agreed >= lookFirst {
		if l.records, err = protocol.Agree(o.Records, m.Records); err != nil {
			return 0, fmt.Errorf("records of connections: %w", err)
		}
	}
	groups, files, err := o.Files()
	if err != nil {
		return 0, err
	}
	o.step("asked")
	err = l.send(message{Do: "offer", Versions: supported, Version: o.Build, Groups: groups, Body: o.Settings()}, files)
	if err = errors.Join(err, closeAll(files)); err != nil {
		return 0, err
	}
	o.step("offered")
	if agreed < lookFirst {
		_, err = l.hear("serving")
		return agreed, err
	}
	for {
		m, err := l.hear("look", "prepared", "leave")
		switch {
		case err != nil:
			return 0, err
		case m.Do == "leave":
			return 0, errLooked
		case m.Do == "prepared":
			o.step("prepared")
			return agreed, nil
		}
		seen, err := o.Look(ctx, m.Body)
		if err == nil {
			err = l.send(message{Do: "looked", Body: seen}, nil)
		}
		if err != nil {
			return 0, err
		}
		o.step("looked")
	}
}

// move gives all connections, and returns when the successor serves.
func (o *Offer) move(l *line) error {
	closed, err := o.Move(func(conns []Conn, state []byte) error {
		if err := o.give(l, parcel{conns, state}); err != nil {
			l.sendError(err) // before the caller goes on with them
			return err
		}
		return nil
	}, "", l.records)
	if err != nil {
		return err
	}
	if err := (parcel{state: o.State()}).send(l, message{Do: "done", Closed: closed}); err != nil {
		return err
	}
	o.step("done")
	_, err = l.hear("serving")
	return err
}

// give gives some connections. They are the successor's once it is told to go.
func (o *Offer) give(l *line, p parcel) error {
	o.step("frozen")
	if err := p.send(l, message{Do: "conns"}); err != nil {
		return err
	}
	o.step("given")
	if _, err := l.hear("attached"); err != nil {
		return err
	}
	err := l.send(message{Do: "go"}, nil)
	o.step("let go")
	return err
}

// streams are the connections that version 2 can go on with.
const streams = "unix"

// handServing gives connections to a successor of version 2, which serves
// already.
func (o *Offer) handServing(l *line) {
	_, err := o.Move(func(conns []Conn, _ []byte) error {
		err := parcel{conns: conns}.send(l, message{Do: "conns"})
		if err == nil {
			_, err = l.hear("started")
		}
		if err != nil {
			err = errors.Join(ErrInDoubt, err)
		}
		return err
	}, streams, 1)
	if err != nil {
		o.Log.Warn().Err(err).Msg("not all clients moved")
	}
	o.leave(true)
	_ = l.send(message{Do: "done"}, nil) // the successor serves, whether it hears this or not
}

// dismiss returns when a successor that was refused has gone. One that hangs
// holds connections that were given to it: they must not wait for it.
func dismiss(l *line, pid int) {
	_ = l.conn.SetDeadline(time.Now().Add(batchTime))
	_, err := io.Copy(io.Discard, l.conn)
	if errors.Is(err, os.ErrDeadlineExceeded) && pid > 0 {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}
