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

// A connection can be moved to another proxy while it is in use: it is frozen
// at a frame boundary, and its Record and its descriptor are given to whoever
// goes on with it. Freezing ends all that runs for it here and closes nothing;
// restoring begins anew from the record, in this process too where a move was
// given up. The client sees a pause.
//
//	freeze: stop reading; answer or note the requests under way; have each
//	        attachment paused behind what was typed and printed before; note
//	        what was read and not understood, and what was not written
//	restore: attach again where each attachment was; then, when whoever had the
//	        connection has let go of it: write what was not written; make the
//	        noted requests; read

// RecordVersion counts incompatible meanings of a Record, from 1 on.
//   - 2: with the client's principal, which must not be left out; where there is
//     none the record is of version 1
//   - 3: with what a share link restricts it to; the same
const RecordVersion = 3

// sharedRecords is the first version that knows of share links.
const sharedRecords = 3

// A Record is all that there is to know of a connection.
type Record struct {
	Version     int                `json:"version"`
	From        Origin             `json:"from"`
	At          int64              `json:"at,omitempty"`    // when its client was read last, in microseconds since 1970
	Hello       *api.Hello         `json:"hello,omitempty"` // without its secrets; absent before it was said
	Attachments []AttachmentRecord `json:"attachments,omitempty"`
	Events      *EventsRecord      `json:"events,omitempty"`
	Requests    []json.RawMessage  `json:"requests,omitempty"` // to be made again, as they came
	In          []byte             `json:"in,omitempty"`       // read, and not understood yet
	Out         []byte             `json:"out,omitempty"`      // to be written before anything else
}

// AttachmentRecord is one attachment: how to attach again.
type AttachmentRecord struct {
	Number uint32              `json:"number"`
	Spec   protocol.AttachSpec `json:"spec"` // with Resume
	Text   bool                `json:"text,omitempty"`
	Typed  []byte              `json:"typed,omitempty"` // by a client that knows no offsets, and not accepted yet
	Size   protocol.Size       `json:"size,omitzero"`   // last told
}

// EventsRecord is where a subscription has come to.
type EventsRecord struct {
	Instance protocol.Instance `json:"instance"`
	After    uint64            `json:"after"`
}

// A Movable transport can be given up in the middle and gone on with elsewhere.
type Movable interface {
	Transport
	// Client is the connection itself.
	Client() net.Conn
	// Stop makes writes keep what the client does not take at once.
	Stop()
	// Stuck reports whether something was kept, and Waiting how long the write
	// under way has taken.
	Stuck() bool
	Waiting() time.Duration
	// Leftover is what was read and not returned by Next, and Unwritten what was
	// written and not taken. They are called when nobody uses the transport.
	Leftover() []byte
	Unwritten() []byte
	// WriteRest writes what was unwritten elsewhere, before anything else.
	WriteRest(p []byte) error
}

// errImmovable is of a connection that has to be closed, for its client to come
// back by itself.
var errImmovable = errors.New("this connection cannot be moved")

// errEnded is of a connection that has ended by itself.
var errEnded = errors.New("the connection has ended")

// errMoving ends the reading of a connection that is being frozen.
var errMoving = errors.New("the connection is being moved")

// pauseTime is how long the supervisor and the client together may take to
// bring an attachment to rest, while output is still written. What a client does
// not take by then goes with it.
const pauseTime = 10 * time.Millisecond

// A Frozen is a connection at rest.
type Frozen struct {
	Record Record
	c      *conn
	kept   bool // its descriptor is whoever's took it back
}

// Client is the client's connection.
func (f *Frozen) Client() net.Conn { return f.c.t.(Movable).Client() }

// Abandon ends the connection itself, for all who have a descriptor of it: it is
// in doubt who goes on with it, and its client comes again.
func (f *Frozen) Abandon() { shutdown(f.Client()) }

// TakeBack returns the connection, to go on with it here, by its Record. What the
// other proxy may still attach comes too late.
func (f *Frozen) TakeBack() (net.Conn, error) {
	f.kept = true
	for i := range f.Record.Attachments {
		f.Record.Attachments[i].Spec.Move++
	}
	nc := f.Client()
	return nc, nc.SetDeadline(time.Time{})
}

// done ends what is left here of a connection that has been moved: nothing of
// it is closed but our side of its attachments, and our descriptor.
func (f *Frozen) done() {
	for _, a := range f.c.attachments { // nobody else knows of them any more
		a.link.Close()
	}
	f.c.cancel()
	f.c.moved = true
	close(f.c.rested)
	if !f.kept {
		_ = f.Client().Close()
	}
}

// request is one that is under way.
type request struct {
	raw    json.RawMessage // nil where it must not be made twice
	cancel context.CancelFunc
	state  requestState // guarded by the connection's mu

	attachment *attachment // of an attach: its place, or
	refused    error       // why it has none
}

type requestState int

const (
	asked    requestState = iota
	answered              // or about to be
	moved                 // it is made again elsewhere
)

// begins notes a request.
func (c *conn) begins(m protocol.Message, raw []byte) *request {
	q := &request{}
	if repeatable(m) {
		q.raw = bytes.Clone(raw)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[q] = struct{}{}
	return q
}

func (c *conn) ends(q *request) {
	q.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requests, q)
}

// claim reports whether a request is to be answered here.
func (c *conn) claim(q *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.state == moved {
		return false
	}
	q.state = answered
	return true
}

// repeatable reports whether a request may be made twice: it asks, or it says
// by itself what it is.
func repeatable(m protocol.Message) bool {
	switch m := m.(type) {
	case *api.List, *api.Info, *api.Screen, *api.History, *api.Search, *api.Scrollback, *api.Wait, *api.Mark, *api.Await, *api.Status,
		*api.Environment, *api.Away, *api.Share:
		return true
	case *api.Spawn:
		return m.Token != ""
	case *api.Reopen:
		return m.Token != ""
	}
	return false
}

// freeze brings the connection to rest, or gives up when ctx is done: then it
// has to be closed. It is called once.
func (c *conn) freeze(ctx context.Context) (*Frozen, error) {
	t, ok := c.t.(Movable)
	if !ok {
		return nil, errImmovable
	}
	close(c.moving)
	_ = t.SetReadDeadline(longAgo) // of one that is closed: the reader sees that
	select {
	case <-c.stopped:
	case <-ctx.Done():
		return nil, fmt.Errorf("reading has not stopped: %w", ctx.Err())
	}
	if c.readErr != nil {
		return nil, errEnded
	}
	f := &Frozen{c: c, Record: Record{Version: 1, From: c.from, At: time.Now().UnixMicro()}}
	c.restRequests(&f.Record)
	c.pause()
	stopped := make(chan struct{})
	stop := time.AfterFunc(pauseTime, func() { t.Stop(); close(stopped) })
	defer func() {
		if !stop.Stop() {
			<-stopped // else it would come after a TakeBack
		}
	}()
	done := make(chan struct{})
	go func() { c.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return nil, fmt.Errorf("it does not come to rest: %w", ctx.Err())
	}
	t.Stop()
	c.note(&f.Record, t)
	return f, nil
}

var longAgo = time.Unix(1, 0)

// restRequests ends those requests that can be made again elsewhere. Others end
// by themselves.
func (c *conn) restRequests(r *Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range c.requests {
		if q.raw != nil && q.state == asked {
			q.state = moved
			r.Requests = append(r.Requests, q.raw)
			q.cancel()
		}
	}
	r.Requests = append(r.Requests, c.unread...)
}

// subscription is the connection's, once it has one.
type subscription struct {
	sub    *linkclient.Subscription
	cancel context.CancelFunc
}

// follow subscribes, says so, and tells what happens until the connection ends,
// or rests.
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
	paused := c.paused
	c.mu.Unlock()
	if paused { // without this one
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

// pause asks for the end of an attachment's output. Nothing is typed behind that:
// what Paused does not count as accepted never will be.
func (a *attachment) pause() {
	if a.typist != nil {
		a.hush()
		<-a.hushed
	}
	a.link.Send(wire.Pause{})
}

// rest is called when it has come; what was typed and not accepted is kept.
func (a *attachment) rest(accepted uint64) {
	if a.typist != nil {
		a.typist.Told(&wire.Accepted{Offset: accepted})
	}
}

// pause asks for the end of each attachment's output; its pump ends with that.
func (c *conn) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = true
	for _, a := range c.attachments {
		if a.link != nil {
			go a.pause()
		}
	}
	if c.following.cancel != nil {
		c.following.cancel()
	}
}

func (c *conn) isMoving() bool {
	select {
	case <-c.moving:
		return true
	default:
		return false
	}
}

// isStuck reports whether the connection is being moved and its client takes
// nothing more.
func (c *conn) isStuck() bool {
	t, ok := c.t.(Movable)
	return ok && c.isMoving() && t.Stuck()
}

// recordVersion is that of the connection's record: the least that says all.
func (c *conn) recordVersion() int {
	switch {
	case c.from.Share != nil:
		return sharedRecords
	case c.recorded() != nil:
		return 2
	}
	return 1
}

// note is called when nothing runs any more.
func (c *conn) note(r *Record, t Movable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.From.Principal = c.recorded()
	r.Version = c.recordVersion()
	if c.hello != nil {
		hello := *c.hello
		hello.Token, hello.Secret = "", ""
		r.Hello = &hello
	}
	for _, a := range c.attachments {
		spec := a.link.Resumption()
		if a.resume != nil {
			spec = *a.resume
		}
		spec.Move++ // whoever goes on with it comes later than this one did
		rec := AttachmentRecord{Number: a.number, Spec: spec, Text: a.text, Size: a.size}
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

// Freeze brings all connections to rest that are there, so many at a time, and
// gives them to move; an error of that ends it. Connections that do not come to
// rest are closed, and counted. Where only is not "", connections that came
// otherwise are left for Goaway, and so are those with a share link where
// records, the latest version that can be read, does not know of them. Others may come meanwhile; after Shut they do not.
// What is left here of those that are given is cleared away by Forget: not now,
// while clients wait.
func (s *Server) Freeze(ctx context.Context, atOnce int, only string, records int, move func([]*Frozen) error) (closed int, err error) {
	conns := slices.DeleteFunc(s.all(), func(c *conn) bool {
		return c.isMoving() || only != "" && c.from.Transport != only || c.from.Share != nil && records < sharedRecords
	})
	breath := time.Duration(0)
	for _, batch := range batches(conns, atOnce) {
		time.Sleep(breath)
		begun := time.Now()
		frozen, n := s.freeze(ctx, batch)
		closed += n
		if len(frozen) == 0 {
			continue
		}
		err := move(frozen)
		s.mu.Lock()
		s.given = append(s.given, frozen...)
		s.mu.Unlock()
		if err != nil {
			return closed, err
		}
		breath = min(time.Since(begun), longestBreath)
	}
	return closed, nil
}

// Forget clears away what is left of connections that were given away, or taken
// back.
func (s *Server) Forget() {
	s.mu.Lock()
	given := s.given
	s.given = nil
	s.mu.Unlock()
	for _, f := range given {
		f.done()
	}
}

// attachedAtOnce is how many attachments a batch has at most, unless they are of
// one connection: each is made anew while the clients wait.
const attachedAtOnce = 256

// batches are so many connections at a time. Those that take long to come to rest
// are last and by themselves: who is with them waits for them.
func batches(conns []*conn, atOnce int) (all [][]*conn) {
	var quick, slow []*conn
	for _, c := range conns {
		if c.takesLong() {
			slow = append(slow, c)
		} else {
			quick = append(quick, c)
		}
	}
	for _, conns := range [][]*conn{quick, slow} {
		begun, attached := 0, 0 // of the batch
		for i, c := range conns {
			n := c.attached()
			if i-begun == atOnce || i > begun && attached+n > attachedAtOnce {
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

func (c *conn) attached() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.attachments)
}

// longWrite is how long a write may take without its client counting as one that
// does not read.
const longWrite = time.Millisecond

// takesLong reports whether something runs for the connection that neither rests
// at once nor can be made again.
func (c *conn) takesLong() bool {
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

// longestBreath bounds the time between two batches. It is as long as the one
// before took: so half of the machine is left to those that are not being moved,
// and to what the last ones have missed.
const longestBreath = 20 * time.Millisecond

// restTime is how long one batch may take to come to rest: who does not must
// not cost the others their turn.
const restTime = time.Second

// freeze returns those that are at rest, and how many had to be closed.
func (s *Server) freeze(ctx context.Context, conns []*conn) (frozen []*Frozen, closed int) {
	ctx, cancel := context.WithTimeout(ctx, restTime)
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
				c.log.Info().Err(err).Msg("client not moved")
				c.giveUp()
				closed++
			}
		})
	}
	wg.Wait()
	return frozen, closed
}

// giveUp ends a connection that does not come to rest; its client comes again.
func (c *conn) giveUp() {
	select {
	case <-c.moving:
		go func() { // a write that is under way holds this up
			c.goaway(api.Goaway{Reason: "handoff"})
			c.cancel()
			close(c.rested)
		}()
	default: // it was not tried: Goaway is for it
	}
}

// Restore goes on with a connection where its record says, and returns as what
// Accept returned would. The transport begins with the record's In. ready is
// called when all is attached; nothing is read, written or typed before whoever
// had the connection has let go of it, which closes ours. If ctx is done before
// that it is not ours, and false is returned.
func (s *Server) Restore(ctx context.Context, t Movable, r *Record, ready func(), ours <-chan struct{}) (taken, moved bool) {
	c := s.newConn(ctx, t, r.From)
	c.hello = r.Hello
	if c.hello != nil {
		t.SetLimit(frame.Max)
	}
	c.wmu.Lock() // nothing comes before what was not written
	c.held = make(chan struct{})
	denied := c.identified(ctx)
	var wg sync.WaitGroup
	for _, a := range r.Attachments {
		if denied == nil {
			wg.Go(func() { c.reattach(a) })
		}
	}
	wg.Wait()
	var lost error
	if e := r.Events; e != nil && denied == nil {
		c.subscribed = true
		lost = c.follow(e.Instance, e.After, func(*wire.Subscribed) {})
	}
	ready()
	select {
	case <-ours:
	case <-ctx.Done():
		t.Stop() // what would be written now is kept, and forgotten
		c.wmu.Unlock()
		c.cancel()
		close(c.held)
		c.wg.Wait()
		return false, false
	}
	err := denied
	if err == nil {
		err = s.add(c)
	}
	if err != nil {
		c.wmu.Unlock()
		close(c.held)
		c.refuse(err)
		c.wg.Wait()
		return true, false
	}
	defer s.remove(c)
	c.wg.Go(func() {
		defer c.wmu.Unlock()
		if err := t.WriteRest(r.Out); err != nil && !c.isMoving() {
			_ = t.Close()
		}
	})
	close(c.held)
	for _, rec := range r.Attachments { // before what is typed next
		if a := c.attachment(rec.Number); a != nil && a.typist != nil {
			a.typist.Keep(rec.Typed)
		}
	}
	if lost != nil {
		_ = t.Close() // the client subscribes again, after the last event it had
	}
	for _, raw := range r.Requests {
		if err := c.control(c.ctx, raw); err != nil {
			_ = t.Close()
		}
	}
	return true, c.serve()
}

// reattach goes on with an attachment. What the client has to be told is what it
// would be told after a lost link.
func (c *conn) reattach(r AttachmentRecord) {
	a, err := c.reserve(r.Number)
	if err != nil {
		return
	}
	la, info, err := c.s.cfg.Link.Attach(a.ctx, r.Number, r.Spec)
	if err != nil {
		a.session = r.Spec.SessionID
		close(a.done)
		c.wg.Go(func() { c.sendLast(a, a.failure(err)) })
		return
	}
	a.size = r.Size
	if a.size == (protocol.Size{}) {
		a.size = info.Session.Size // what attached said, unless it was told otherwise
	}
	c.begin(a, la, info, r.Text, func() {
		<-c.held
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

// shutdown ends a connection for all who have a descriptor of it.
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
