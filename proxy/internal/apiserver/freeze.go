package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
)

// A Movable is a transport that can be stopped at any byte and continued by another process.
type Movable interface {
	Transport
	// Client returns the underlying connection.
	Client() net.Conn
	// Stop makes writes keep the bytes that the client does not accept at once.
	Stop()
	// Stuck reports whether bytes were kept. Waiting returns how long the current write has taken.
	Stuck() bool
	Waiting() time.Duration
	// Leftover returns the bytes that were read and not returned by Next. Unwritten returns the
	// bytes that were kept. No other method may run when they are called.
	Leftover() []byte
	Unwritten() []byte
	// WriteRest writes the unwritten bytes of the previous process. It must be called before Write.
	WriteRest(p []byte) error
}

// errImmovable tells that a connection must be closed instead of moved. Its client will reconnect.
var errImmovable = errors.New("the transport of this connection cannot be moved")

// errEnded tells that the connection ended before it was frozen.
var errEnded = errors.New("the connection has ended")

// errMoving stops the reader of a connection that is being frozen.
var errMoving = errors.New("the connection is being moved")

// A Frozen is a connection for which nothing runs any more, and its record.
type Frozen struct {
	Record Record
	c      *conn
}

// Client returns the client's connection.
func (f *Frozen) Client() net.Conn { return f.c.t.(Movable).Client() }

// TakeBack returns the connection, so that this process can restore it from Record. It increments
// the move number of each attachment, so that an attachment that the other proxy makes later is
// refused.
func (f *Frozen) TakeBack() (net.Conn, error) {
	f.c.life.enter(onTakeBack)
	for i := range f.Record.Attachments {
		f.Record.Attachments[i].Spec.Move++
	}
	nc := f.Client()
	return nc, nc.SetDeadline(time.Time{})
}

// release frees the parts of a moved connection that this process still has: its side of the
// attachments, and its descriptor unless TakeBack returned it. The connection itself stays open.
func (f *Frozen) release() {
	isTakenBack := f.c.life.is(phaseTakenBack)
	for _, a := range f.c.attachments.all() {
		a.link.Close()
	}
	f.c.cancel()
	f.c.life.enter(onRelease)
	if !isTakenBack {
		_ = f.Client().Close()
	}
}

// Freeze freezes all connections, at most atOnce of them at a time, and passes each batch to move.
// If move returns an error, Freeze returns that error at once. A connection that cannot be frozen
// is closed and counted in closed. New connections may be added meanwhile, unless Shut was called.
// The caller must call Forget later, which releases the connections that were passed to move;
// Freeze does not release them, because clients wait meanwhile.
func (s *Server) Freeze(ctx context.Context, atOnce int, move func([]*Frozen) error) (closed int, err error) {
	conns := slices.DeleteFunc(s.allConns(), func(c *conn) bool { return c.life.isStopping() })
	pause := time.Duration(0)
	for _, batch := range batches(conns, atOnce) {
		time.Sleep(pause)
		begun := time.Now()
		frozen, n := s.freeze(ctx, batch)
		closed += n
		if len(frozen) == 0 {
			continue
		}
		err := move(frozen)
		s.mu.Lock()
		s.movedConns = append(s.movedConns, frozen...)
		s.mu.Unlock()
		if err != nil {
			return closed, err
		}
		pause = min(time.Since(begun), maxBatchPause)
	}
	return closed, nil
}

// Forget releases the connections that Freeze has passed to move.
func (s *Server) Forget() {
	s.mu.Lock()
	given := s.movedConns
	s.movedConns = nil
	s.mu.Unlock()
	for _, f := range given {
		f.release()
	}
}

// maxBatchAttachments bounds the attachments of a batch, unless the batch has only one connection.
// All of them are made again while the clients of the batch wait.
const maxBatchAttachments = 256

// batches divides conns into batches of at most atOnce connections. Slow connections come last and
// in batches of their own, because all clients of a batch wait for the slowest one.
func batches(conns []*conn, atOnce int) (all [][]*conn) {
	var quick, slow []*conn
	for _, c := range conns {
		if c.isSlow() {
			slow = append(slow, c)
		} else {
			quick = append(quick, c)
		}
	}
	for _, conns := range [][]*conn{quick, slow} {
		begun, attached := 0, 0 // of the current batch
		for i, c := range conns {
			n := c.attachments.count()
			if i-begun == atOnce || i > begun && attached+n > maxBatchAttachments {
				all = append(all, conns[begun:i])
				begun, attached = i, 0
			}
			attached += n
		}
		if begun < len(conns) {
			all = append(all, conns[begun:])
		}
	}
	return all
}

// longWrite is the time after which a write shows that its client does not read.
const longWrite = time.Millisecond

// isSlow reports whether freeze must probably wait for the connection, because a write blocks or
// because a request in progress cannot be repeated.
func (c *conn) isSlow() bool {
	if t, ok := c.t.(Movable); ok && t.Waiting() > longWrite {
		return true
	}
	return c.requests.mustFinish()
}

// maxBatchPause bounds the pause between two batches. The pause is as long as the previous batch
// took, so that half of the machine's time is left for the connections that are not being moved,
// and for the output that the moved clients have to catch up on.
const maxBatchPause = 20 * time.Millisecond

// freezeTime is how long the freezing of one batch may take, so that one client does not delay all
// others.
const freezeTime = time.Second

// freeze freezes the connections of a batch. It returns the frozen ones, and how many had to be
// closed.
func (s *Server) freeze(ctx context.Context, conns []*conn) (frozen []*Frozen, closed int) {
	ctx, cancel := context.WithTimeout(ctx, freezeTime)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, c := range conns {
		wg.Go(func() {
			f, err := c.freeze(ctx)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				frozen = append(frozen, f)
			case !errors.Is(err, errEnded):
				c.log.Info().Err(err).Msg("client connection not moved to the next proxy")
				c.giveUp()
				closed++
			}
		})
	}
	wg.Wait()
	return frozen, closed
}

// giveUp ends a connection that freeze could not freeze. Its client will reconnect.
func (c *conn) giveUp() {
	if !c.life.isStopping() {
		return // its transport cannot be moved, so Goaway will end it
	}
	go func() { // closeWith waits for a blocked write
		c.closeWith(api.Goaway{Reason: "handoff"})
		c.cancel()
		c.life.enter(onEnd)
	}()
}

// pauseTime is how long output is still written to the client while its attachments are paused.
// Output that the client has not accepted by then is moved with the connection.
const pauseTime = 10 * time.Millisecond

// freeze ends all goroutines of the connection and returns its record. If ctx is done before,
// freeze returns an error, and the connection must be closed.
func (c *conn) freeze(ctx context.Context) (*Frozen, error) {
	t, ok := c.t.(Movable)
	if !ok {
		return nil, errImmovable
	}
	if !c.life.enter(onFreeze) {
		return nil, errEnded
	}
	_ = t.SetReadDeadline(longAgo) // if the connection is closed, the reader notices it
	select {
	case <-c.life.reached(phaseHalted):
	case <-ctx.Done():
		return nil, fmt.Errorf("reading of the connection has not stopped: %w", ctx.Err())
	}
	if c.life.is(phaseEnded) {
		return nil, errEnded
	}
	f := &Frozen{c: c, Record: Record{Version: RecordVersion, From: c.from, At: time.Now().UnixMicro()}}
	f.Record.Requests = c.requests.freeze()
	c.pause()
	stopped := make(chan struct{})
	stop := time.AfterFunc(pauseTime, func() { t.Stop(); close(stopped) })
	defer func() {
		if !stop.Stop() {
			<-stopped // otherwise Stop could come after TakeBack
		}
	}()
	done := make(chan struct{})
	go func() { c.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return nil, fmt.Errorf("requests or attachments of the connection have not ended: %w", ctx.Err())
	}
	t.Stop()
	c.fillRecord(&f.Record, t)
	c.life.enter(onComplete)
	return f, nil
}

var longAgo = time.Unix(1, 0)

// pause pauses each attachment and ends the subscription. The pump of an attachment ends with
// Paused. An attachment or a subscription that is made later sees the phase and pauses itself.
func (c *conn) pause() {
	c.life.enter(onPause)
	for _, a := range c.attachments.usable() {
		go a.pause()
	}
	c.following.stop()
}

// pause asks the supervisor to end the output of the attachment. No input is sent after the
// request, so input that the answer Paused does not count will never be accepted.
func (a *attachment) pause() {
	a.pausing.Do(func() {
		if a.typist != nil {
			a.stopTypist()
			<-a.typistStopped
		}
		a.link.Send(wire.Pause{})
	})
}

// finishPause records how much input was accepted. The typist keeps the input that was not
// accepted.
func (a *attachment) finishPause(accepted uint64) {
	if a.typist != nil {
		a.typist.HandleReply(&wire.Accepted{Offset: accepted})
	}
}

// isStuck reports whether the connection is being frozen and its client accepts no more output.
func (c *conn) isStuck() bool {
	t, ok := c.t.(Movable)
	return ok && c.life.isStopping() && t.Stuck()
}
