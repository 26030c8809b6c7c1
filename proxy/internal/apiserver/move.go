package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
)

// A connection can be moved to another proxy while its client uses it. The old proxy freezes the
// connection at a frame boundary, and sends its Record and its descriptor to the new proxy.
// Freezing ends all goroutines of the connection but closes nothing. Restoring makes a new conn
// from the Record; the old proxy restores the connection itself if the handoff fails. The client
// only notices a pause.
//
//	freeze: stop reading; finish or record the requests in progress; pause each
//	        attachment after the input and output that precede the pause; record
//	        bytes that were read and not decoded, and bytes that were not written
//	restore: attach each attachment at its recorded position; when the old proxy has
//	        released the connection: write the unwritten bytes, make the recorded
//	        requests, and read

// RecordVersion is the latest version of a Record. A record has the lowest version that can express
// it, so that an older proxy can read it:
//   - 1: has neither a principal nor a share link
//   - 2: has the client's principal, which the reader must not ignore
//   - 3: has the restriction of a share link, which the reader must not ignore
const RecordVersion = 3

// firstShareVersion is the first version that has share links.
const firstShareVersion = 3

// A Record is the complete state of a connection.
type Record struct {
	Version     int                `json:"version"`
	From        Origin             `json:"from"`
	At          int64              `json:"at,omitempty"`    // when the client was last read, in microseconds since 1970
	Hello       *api.Hello         `json:"hello,omitempty"` // without token and secret; nil if no hello was received
	Attachments []AttachmentRecord `json:"attachments,omitempty"`
	Events      *EventsRecord      `json:"events,omitempty"`
	Requests    []json.RawMessage  `json:"requests,omitempty"` // to be made again, in their received form
	In          []byte             `json:"in,omitempty"`       // read, and not decoded yet
	Out         []byte             `json:"out,omitempty"`      // must be written before anything else
}

// AttachmentRecord tells how to make an attachment again.
type AttachmentRecord struct {
	Number uint32              `json:"number"`
	Spec   protocol.AttachSpec `json:"spec"` // Resume is set
	Text   bool                `json:"text,omitempty"`
	Typed  []byte              `json:"typed,omitempty"` // input that was not accepted yet, of a client that uses no offsets
	Size   protocol.Size       `json:"size,omitzero"`   // the size that the client was told last
}

// EventsRecord is the position of a subscription.
type EventsRecord struct {
	Instance protocol.Instance `json:"instance"`
	After    uint64            `json:"after"`
}

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

// pauseTime is how long output is still written to the client while its attachments are paused.
// Output that the client has not accepted by then is moved with the connection.
const pauseTime = 10 * time.Millisecond

// A Frozen is a connection for which nothing runs any more, and its record.
type Frozen struct {
	Record Record
	c      *conn
}

// Client returns the client's connection.
func (f *Frozen) Client() net.Conn { return f.c.t.(Movable).Client() }

// Abandon shuts the connection down for all processes that have a descriptor of it. It must be
// called if it is uncertain which proxy owns the connection. The client will reconnect.
func (f *Frozen) Abandon() { shutdown(f.Client()) }

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

// release frees what this process still has of a connection that was moved: its side of the
// attachments, and its descriptor unless TakeBack returned it. The connection itself stays open.
func (f *Frozen) release() {
	isTakenBack := f.c.life.is(phaseTakenBack)
	for _, a := range f.c.attachments { // no other goroutine uses them any more
		a.link.Close()
	}
	f.c.cancel()
	f.c.life.enter(onRelease)
	if !isTakenBack {
		_ = f.Client().Close()
	}
}

// request is a request in progress.
type request struct {
	raw    json.RawMessage // nil if the request must finish here
	cancel context.CancelFunc
	state  requestState // guarded by the mu of the connection

	attachment *attachment // the reserved attachment of an attach request, or
	refused    error       // the reason why none was reserved
}

type requestState int

const (
	asked    requestState = iota
	answered              // or an answer is about to be sent
	moved                 // the new proxy will make it again
)

// addRequest registers a request in progress.
func (c *conn) addRequest(m protocol.Message, raw []byte) *request {
	q := &request{}
	if isMovable(m) {
		q.raw = bytes.Clone(raw)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[q] = struct{}{}
	return q
}

// removeRequest cancels the context of a request and removes its registration.
func (c *conn) removeRequest(q *request) {
	q.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requests, q)
}

// claimReply reports whether this proxy must answer the request. After that, freeze does not move
// it.
func (c *conn) claimReply(q *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.state == moved {
		return false
	}
	q.state = answered
	return true
}

// isMovable reports whether the next proxy may make the request again. A request that sets a state
// must finish here, because a repetition could replace the state that another client has set
// meanwhile.
func isMovable(m protocol.Message) bool {
	kind, _ := api.Messages.Request(m.MessageType())
	return kind.MayRepeat(m) && kind.Repeat != protocol.RepeatSet
}

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
	f := &Frozen{c: c, Record: Record{Version: 1, From: c.from, At: time.Now().UnixMicro()}}
	c.freezeRequests(&f.Record)
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

// freezeRequests cancels the requests that can be repeated by another proxy, and records them. The
// other requests must finish here.
func (c *conn) freezeRequests(r *Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range c.requests {
		if q.raw != nil && q.state == asked {
			q.state = moved
			r.Requests = append(r.Requests, q.raw)
			q.cancel()
		}
	}
	r.Requests = append(r.Requests, c.unstarted...)
}

// subscription is a connection's subscription to events; its fields are nil if there is none.
type subscription struct {
	sub    *linkclient.Subscription
	cancel context.CancelFunc
}

// follow subscribes to events, calls announce with the answer, and starts a goroutine that sends
// events until the connection ends or is frozen.
func (c *conn) follow(instance protocol.Instance, after uint64, announce func(*wire.Subscribed)) error {
	ctx, cancel := context.WithCancel(c.ctx)
	sub, first, err := c.s.cfg.Link.Subscribe(ctx, instance, after)
	if err != nil {
		cancel()
		return err
	}
	announce(first)
	c.mu.Lock()
	c.following = subscription{sub, cancel}
	isPausing := c.life.is(phasePausing)
	c.mu.Unlock()
	if isPausing { // pause has run before this subscription was stored
		cancel()
	}
	c.wg.Go(func() {
		defer cancel()
		for {
			e, err := sub.Next(ctx)
			if err != nil {
				return
			}
			c.sendEvent(e)
		}
	})
	return nil
}

// pause asks the supervisor to end the output of the attachment. No input is sent after the
// request, so input that the answer Paused does not count will never be accepted.
func (a *attachment) pause() {
	if a.typist != nil {
		a.stopTypist()
		<-a.typistStopped
	}
	a.link.Send(wire.Pause{})
}

// finishPause records how much input was accepted. The typist keeps the input that was not
// accepted.
func (a *attachment) finishPause(accepted uint64) {
	if a.typist != nil {
		a.typist.Told(&wire.Accepted{Offset: accepted})
	}
}

// pause pauses each attachment and ends the subscription. The pump of an attachment ends with
// Paused.
func (c *conn) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life.enter(onPause)
	for _, a := range c.attachments {
		if a.link != nil {
			go a.pause()
		}
	}
	if c.following.cancel != nil {
		c.following.cancel()
	}
}

// isStuck reports whether the connection is being frozen and its client accepts no more output.
func (c *conn) isStuck() bool {
	t, ok := c.t.(Movable)
	return ok && c.life.has(phaseStopping) && t.Stuck()
}

// recordVersion returns the lowest version that can express the connection's record.
func (c *conn) recordVersion() int {
	switch {
	case c.from.Share != nil:
		return firstShareVersion
	case c.recordedPrincipal() != nil:
		return 2
	}
	return 1
}

// fillRecord completes the record. No goroutine of the connection may run any more.
func (c *conn) fillRecord(r *Record, t Movable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.From.Principal = c.recordedPrincipal()
	r.Version = c.recordVersion()
	if c.hello != nil {
		hello := *c.hello
		hello.Token, hello.Secret = "", ""
		r.Hello = &hello
	}
	for _, a := range c.attachments {
		spec := a.link.Resumption()
		if a.frozenAt != nil {
			spec = *a.frozenAt
		}
		spec.Move++ // the next proxy attaches after this one
		rec := AttachmentRecord{Number: a.number, Spec: spec, Text: a.isText, Size: a.sentSize}
		if a.typist != nil {
			rec.Typed = a.typist.Rest()
		}
		r.Attachments = append(r.Attachments, rec)
	}
	if c.following.sub != nil {
		r.Events = &EventsRecord{}
		r.Events.Instance, r.Events.After = c.following.sub.Position()
	}
	r.In, r.Out = t.Leftover(), t.Unwritten()
}

// Freeze freezes all connections, at most atOnce of them at a time, and passes each batch to move.
// If move returns an error, Freeze returns that error at once. A connection that cannot be frozen
// is closed and counted in closed. Freeze leaves some connections for Goaway: if only is not empty,
// those with another transport than only; and those with a share link, if version records, the
// latest that the other proxy can read, does not have share links. New connections may be added
// meanwhile, unless Shut was called. The caller must call Forget later, which releases the
// connections that were passed to move; Freeze does not release them, because clients wait
// meanwhile.
func (s *Server) Freeze(ctx context.Context, atOnce int, only string, records int, move func([]*Frozen) error) (closed int, err error) {
	conns := slices.DeleteFunc(s.allConns(), func(c *conn) bool {
		return c.life.has(phaseStopping) || only != "" && c.from.Transport != only || c.from.Share != nil && records < firstShareVersion
	})
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
			n := c.attachmentCount()
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

// attachmentCount returns the number of the connection's attachments.
func (c *conn) attachmentCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.attachments)
}

// longWrite is the time after which a write shows that its client does not read.
const longWrite = time.Millisecond

// isSlow reports whether freeze must probably wait for the connection, because a write blocks or
// because a request in progress cannot be repeated.
func (c *conn) isSlow() bool {
	if t, ok := c.t.(Movable); ok && t.Waiting() > longWrite {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range c.requests {
		if q.raw == nil {
			return true
		}
	}
	return false
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
	if !c.life.has(phaseStopping) {
		return // its transport cannot be moved, so Goaway will end it
	}
	go func() { // goaway waits for a blocked write
		c.goaway(api.Goaway{Reason: "handoff"})
		c.cancel()
		c.life.enter(onEnd)
	}()
}

// Restore continues a connection at the state of its record and serves it until it ends. The
// transport must begin with the bytes of r.In. Restore calls ready when all attachments have been
// made. It reads and writes nothing, and sends no input, until the previous process has released
// the connection, which is when owned is closed. If ctx is done before that, Restore drops the
// connection and returns taken = false. moved tells whether the connection was moved to another
// proxy again.
func (s *Server) Restore(ctx context.Context, t Movable, r *Record, ready func(), owned <-chan struct{}) (taken, moved bool) {
	c := s.newConn(ctx, t, r.From, phaseRestoring)
	c.hello = r.Hello
	if c.hello != nil {
		t.SetLimit(frame.Max)
	}
	c.writeFirst(t, r.Out)
	identifyErr := c.identify(ctx)
	var wg sync.WaitGroup
	for _, a := range r.Attachments {
		if identifyErr == nil {
			wg.Go(func() { c.reattach(a) })
		}
	}
	wg.Wait()
	var subscribeErr error
	if e := r.Events; e != nil && identifyErr == nil {
		c.isSubscribed = true
		subscribeErr = c.follow(e.Instance, e.After, func(*wire.Subscribed) {})
	}
	ready()
	select {
	case <-owned:
	case <-ctx.Done():
		t.Stop() // writes are discarded from now on
		c.life.enter(onEnd)
		c.cancel()
		c.wg.Wait()
		return false, false
	}
	c.life.enter(onOwn)
	err := identifyErr
	if err == nil {
		err = s.addConn(c)
	}
	if err != nil {
		c.refuse(err)
		c.wg.Wait()
		return true, false
	}
	defer s.removeConn(c)
	for _, rec := range r.Attachments { // before the client's next input
		if a := c.attachment(rec.Number); a != nil && a.typist != nil {
			a.typist.Keep(rec.Typed)
		}
	}
	if subscribeErr != nil {
		_ = t.Close() // the client subscribes again, after the last event that it received
	}
	for _, raw := range r.Requests {
		if err := c.handleControl(c.ctx, raw); err != nil {
			_ = t.Close()
		}
	}
	return true, c.serve()
}

// writeFirst starts a goroutine that writes the bytes that the previous proxy has not written, as
// soon as this proxy owns the connection. All other writes that begin after writeFirst has returned
// come later, because the goroutine holds writeMu until then. If this proxy never owns the
// connection, the bytes are not written.
func (c *conn) writeFirst(t Movable, out []byte) {
	isHeld := make(chan struct{})
	c.wg.Go(func() {
		c.writeMu.Lock()
		defer c.writeMu.Unlock()
		close(isHeld)
		<-c.life.reached(phaseServing)
		if c.life.is(phaseEnded) {
			return
		}
		if err := t.WriteRest(out); err != nil && !c.life.has(phaseStopping) {
			_ = t.Close()
		}
	})
	<-isHeld
}

// reattach makes an attachment of the record again. The client receives the messages that it would
// receive after a lost link.
func (c *conn) reattach(r AttachmentRecord) {
	a, err := c.reserve(r.Number)
	if err != nil {
		return
	}
	la, info, err := c.s.cfg.Link.Attach(a.ctx, r.Number, r.Spec)
	if err != nil {
		a.session = r.Spec.SessionID
		close(a.ended)
		c.wg.Go(func() { c.sendLast(a, a.errorMessage(err)) })
		return
	}
	a.sentSize = r.Size
	if a.sentSize == (protocol.Size{}) {
		a.sentSize = info.Session.Size // attached has told the client this size
	}
	c.begin(a, la, info, r.Text, func() {
		<-c.life.reached(phaseServing)
		if info.Replay == protocol.ReplaySnapshot {
			c.send(api.Resync{
				Attachment: r.Number, Offset: info.Offset, BytesMissed: info.BytesMissed, SnapshotBytes: info.SnapshotBytes,
				View: info.View, ScreenOnly: r.Spec.ScreenOnly,
			})
		}
		if a.typist == nil {
			c.send(api.Accepted{Attachment: &r.Number, Offset: info.InputOffset})
		}
	})
}

// shutdown shuts a connection down for all processes that have a descriptor of it.
func shutdown(nc net.Conn) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { shutdownFD(fd) })
	}
}
