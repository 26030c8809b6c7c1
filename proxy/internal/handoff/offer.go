package handoff

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
)

// An Offer is the old side of a handoff: it answers the control socket of a serving proxy.
type Offer struct {
	// Files returns the files to pass on. The Offer closes them.
	Files func() ([]Group, []*os.File, error)
	// Records is the range of versions of the connection states that Move can send.
	Records protocol.VersionRange
	// Look returns the description that the successor asks for in order to compare.
	Look func(ctx context.Context, body json.RawMessage) (json.RawMessage, error)
	// Move stops accepting, and sends the connections to the successor by pass. It returns the
	// number of connections that it had to close.
	Move func(pass Pass) (closed int, err error)
	// State returns the state that is sent after the last connection.
	State func() []byte
	// Back is called if the proxy must continue to serve after Move.
	Back func()
	// Leave is called once: when the successor serves, or when the proxy is asked to stop. It
	// tells the remaining clients to reconnect, and returns. handed is true if another proxy has
	// the listeners.
	Leave func(handed bool)
	// SignOut voids the cookies of all browsers and ends their connections.
	SignOut func() error
	// Settings returns the settings that are sent with the offer, because a successor cannot
	// learn them in another way.
	Settings func() json.RawMessage
	// Wait is how long the successor may take for each message after Move. If it is 0, the limit is that for clients
	// that wait meanwhile.
	Wait time.Duration
	// Build is the version of this build.
	Build string
	// Step is called after each step with its name; it may be nil.
	Step func(name string)
	Log  zerolog.Logger

	busy    sync.Mutex // held during a request
	hasLeft atomic.Bool
}

// A Pass sends connections and other state to the successor. If it returns nil, they belong to
// the successor. If it returns an error, they still belong to the caller.
type Pass func(conns []Conn, state []byte) error

// errTrial ends a handoff that the successor has only tried.
var errTrial = errors.New("the successor has only tried the handoff")

// errEnding ends a handoff because this process was asked to end.
var errEnding = protocol.Errorf(protocol.CodeClosed, "the running process is ending")

// maxConversations limits the connections on the control socket. Others wait in the backlog until one of them ends: a
// connection that sends no request ends after Timeout.
const maxConversations = 64

// Serve answers requests on the control socket until ln is closed.
func (o *Offer) Serve(ctx context.Context, ln *socket.Listener) error {
	open := make(chan struct{}, maxConversations)
	for {
		select {
		case open <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, peer, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		go func() {
			defer func() { <-open }()
			o.serve(ctx, conn, peer.PID)
		}()
	}
}

func (o *Offer) serve(ctx context.Context, conn *net.UnixConn, pid int) {
	defer func() { _ = conn.Close() }()
	log := o.Log.With().Int(logging.PID, pid).Logger()
	successor := &peer{conn: conn}
	m, err := successor.receivePlain("take", "stop", "sign_out")
	if err != nil {
		log.Warn().Err(err).Msg("control request refused: its message is invalid")
		return
	}
	if !o.busy.TryLock() {
		successor.sendError(&protocol.Error{Code: protocol.CodeLimitExceeded, Message: "another handoff is under way", Retryable: true, RetryAfterMS: 1000})
		return
	}
	defer o.busy.Unlock()
	if m.Do == "stop" {
		log.Info().Msg("proxy was asked to stop")
		_ = successor.send(message{Do: "stopping"}, nil)
		o.leave(false)
		return
	}
	if m.Do == "sign_out" {
		log.Info().Bool(logging.Security, true).Msg("all browsers signed out")
		if err := o.SignOut(); err != nil {
			successor.sendError(err)
			return
		}
		_ = successor.send(message{Do: "signed_out"}, nil)
		return
	}
	switch err := o.handOff(ctx, successor, m, pid); {
	case err == nil:
		log.Info().Str("successor", m.Version).Msg("proxy has handed off to its successor")
	case errors.Is(err, errTrial):
		log.Info().Str("successor", m.Version).Msg("successor has tried a handoff; this proxy serves on")
	default:
		log.Warn().Err(err).Msg("handoff failed; this proxy serves on")
	}
}

// Finish returns when no request is in progress, and refuses all further ones. A process that ends
// must call it before it closes its listeners, because it would remove paths and locks that a
// successor already has. If the context of Serve has ended, a handoff that still prepares ends with
// an error, and one that moves connections is completed or rolled back.
func (o *Offer) Finish() { o.busy.Lock() }

func (o *Offer) leave(handed bool) {
	if o.hasLeft.CompareAndSwap(false, true) {
		o.Leave(handed)
	}
}

func (o *Offer) step(name string) {
	if o.Step != nil {
		o.Step(name)
	}
}

// handOff passes all listeners and connections on. If it returns an error, this proxy serves as
// before.
func (o *Offer) handOff(ctx context.Context, successor *peer, m message, pid int) error {
	process := processOf(pid)
	if process != nil {
		defer func() { _ = process.Release() }()
	}
	if err := o.prepare(ctx, successor, m); err != nil {
		successor.sendError(err) // must be sent before the conversation ends, because an end without a message would mean that this proxy has died
		dismiss(successor, process, false)
		return err
	}
	successor.wait, successor.until = cmp.Or(o.Wait, batchTime), time.Time{}
	if err := o.move(successor); err != nil {
		successor.sendError(err) // must be sent before this proxy uses the connections again
		o.Back()
		dismiss(successor, process, true)
		return err
	}
	o.step("committed")
	o.leave(true)
	return nil
}

// prepare runs all steps that change no connection. If ctx ends meanwhile, it returns an error at
// once.
func (o *Offer) prepare(ctx context.Context, successor *peer, m message) error {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = successor.conn.SetDeadline(time.Unix(1, 0)) // wakes the step that waits; the conversation ends in any case
		close(interrupted)
	})
	successor.ending = ctx.Err
	err := o.converse(ctx, successor, m)
	successor.ending = nil
	if !stop() {
		<-interrupted // so that no later deadline is changed
		return errEnding
	}
	return err
}

// converse is prepare without the end of ctx.
func (o *Offer) converse(ctx context.Context, successor *peer, m message) error {
	timeout := Timeout
	if m.TimeoutMS > 0 {
		timeout = min(time.Duration(m.TimeoutMS)*time.Millisecond, MaxTimeout)
	}
	successor.wait, successor.until = timeout, time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(ctx, successor.until)
	defer cancel()
	if _, err := protocol.Agree(supported, m.Versions); err != nil {
		return err
	}
	if _, err := protocol.Agree(o.Records, m.Records); err != nil {
		return fmt.Errorf("versions of connection states: %w", err)
	}
	groups, files, err := o.Files()
	if err != nil {
		return err
	}
	o.step("asked")
	err = successor.send(message{Do: "offer", Versions: supported, Version: o.Build, Groups: groups, Body: o.Settings()}, files)
	if err = errors.Join(err, closeAll(files)); err != nil {
		return err
	}
	o.step("offered")
	for {
		m, err := successor.receivePlain("look", "prepared", "leave")
		switch {
		case err != nil:
			return err
		case m.Do == "leave":
			return errTrial
		case m.Do == "prepared":
			o.step("prepared")
			return nil
		}
		seen, err := o.Look(ctx, m.Body)
		if err == nil {
			err = successor.send(message{Do: "looked", Body: seen}, nil)
		}
		if err != nil {
			return err
		}
		o.step("looked")
	}
}

// move sends all connections, and returns when the successor serves.
func (o *Offer) move(successor *peer) error {
	closed, err := o.Move(func(conns []Conn, state []byte) error {
		if err := o.giveBatch(successor, parcel{conns, state}); err != nil {
			successor.sendError(err) // must be sent before the caller uses the connections again
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := (parcel{state: o.State()}).send(successor, message{Do: "done", Closed: closed}); err != nil {
		return err
	}
	o.step("done")
	_, err = successor.receivePlain("serving")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		successor.wait = lastLook
		_, err = successor.receivePlain("serving")
	}
	if err == nil {
		_ = successor.send(message{Do: "committed"}, nil) // a successor of an older release does not wait for it
	}
	return err
}

// giveBatch sends a batch of connections. They belong to the successor when it has received
// the message go.
func (o *Offer) giveBatch(successor *peer, p parcel) error {
	o.step("frozen")
	if err := p.send(successor, message{Do: "conns"}); err != nil {
		return err
	}
	o.step("given")
	if _, err := successor.receivePlain("attached"); err != nil {
		return err
	}
	err := successor.send(message{Do: "go"}, nil)
	o.step("let go")
	return err
}

// processOf returns the process of a successor, or nil if the pid is unknown. It must be called while the conversation is
// open: on Linux the result then stands for this process, even if the process ends and another one gets its pid.
func processOf(pid int) *os.Process {
	if pid <= 0 || pid == os.Getpid() { // it may be in another namespace of pids; a test may be its own successor
		return nil
	}
	process, _ := os.FindProcess(pid) // if there is an error, it is nil
	return process
}

// dismiss waits until a refused successor has ended the conversation. If it does not, dismiss
// kills it, because it may hold connections, and their clients must not wait for it. It also kills a
// successor that reports that it serves and then closes the conversation without an error: that
// successor has not read that it is refused, so that both would serve. If the successor may hold connections (hasGiven), it is
// killed whenever it closes the conversation without an error, because it may live and never close them.
func dismiss(successor *peer, process *os.Process, hasGiven bool) {
	successor.wait, successor.until = batchTime, time.Now().Add(batchTime)
	mayServe := hasGiven
	var err error
	for err == nil {
		var m message
		m, err = successor.receivePlain("look", "prepared", "attached", "serving", "leave")
		var reason *protocol.Error
		if errors.As(err, &reason) {
			err = nil
		}
		mayServe = mayServe || m.Do == "serving"
	}
	if !errors.Is(err, ErrGone) {
		_, err = io.Copy(io.Discard, successor.conn) // after a message that is not valid; the deadline still holds
	}
	if process != nil && (mayServe && !successor.hasGivenUp || errors.Is(err, os.ErrDeadlineExceeded)) {
		_ = process.Kill() // fails if it has ended
	}
}
