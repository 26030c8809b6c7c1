package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
)

const (
	// outputWindow is how much output an attachment holds for a program that
	// does not read; beyond it the connection is not read, and the supervisor
	// moves the viewer to a snapshot.
	outputWindow = 1 << 20
	// inputWindow is how much input may be unacknowledged; beyond it Write
	// waits.
	inputWindow = 1 << 20
	// detachTimeout is how long Detach waits for a proxy that does not answer.
	detachTimeout = time.Second
	// retryFull is how long to wait when the session's input queue is full.
	retryFull = 20 * time.Millisecond
)

// AttachOptions say how to view a session. The zero value shares it and leaves
// its size as it is.
type AttachOptions struct {
	Cols, Rows int // of the viewer's terminal; 0 and 0 have no say in the session's
	Mode       protocol.Mode
	Steal      bool
	Resume     *protocol.Resume // go on where an earlier attachment ended
	Snapshot   bool             // with Resume: a snapshot even where output could go on
	History    *int             // lines above the screen in a snapshot; nil is 1,000
	Answers    bool             // what reads the output is a terminal, which answers programs' questions
	Writer     string           // keep it with Resume, so that input goes on as well
	Term       string
	IsTTY      bool
	View       protocol.View // own: the screen reflowed to Cols and Rows, while the session's size is another
	Pace       bool          // of an exclusive attachment: the child waits for it to read, for a while
	Appearance *protocol.Appearance
	Env        []string // K=V of the viewer's environment, for programs that follow it: see Client.Environment
	Typed      bool     // messages tell what is typed, by whomever; not of mode read_only
}

// MessageKind says what a Message is.
type MessageKind int

// The kinds of messages.
const (
	Output   MessageKind = iota // Data was printed at Offset
	Snapshot                    // Data belongs to the snapshot that stands for Offset
	Missed                      // Missed bytes were lost to this viewer; a snapshot follows: begin with an empty screen
	Resized                     // the terminal has another size from here on
	Exited                      // the session has ended; nothing follows
	Stolen                      // By attached in this one's place; nothing follows
	Failed                      // Err ended the attachment; nothing follows
	View                        // Data brings the viewer's own view up to Offset: write it to the terminal
	Warned                      // Err tells of what was written, line_too_long; it ends nothing
	Typed                       // Data was typed At a time, by whomever, when output had come to Offset
)

// A Message is one thing an attachment is told.
type Message struct {
	Kind   MessageKind
	Data   []byte
	Offset uint64
	Missed uint64
	Size   protocol.Size
	Exit   *api.PTYExited
	By     string
	Err    error

	// ScreenOnly, of Missed: the snapshot has no lines above the screen, so that
	// those which the terminal has are kept.
	ScreenOnly bool

	// Of Typed. Where the terminal does not show what is typed it is masked: an
	// asterisk stands for each character. Masked without Data stands for what was
	// left out, since this attachment was not read.
	At     time.Time
	Masked bool

	left int // bytes of the snapshot that come after this part of it
}

// size is about how much memory m takes in a queue.
func (m *Message) size() int { return len(m.Data) + int(unsafe.Sizeof(*m)) }

// last reports whether nothing follows.
func (m *Message) last() bool { return m.Kind == Exited || m.Kind == Stolen || m.Kind == Failed }

// ErrStolen ends the reading of an attachment in whose place another came, and
// ErrTimeout is what Receive returns at its deadline.
var (
	ErrStolen  = errors.New("another client attached in this one's place")
	ErrTimeout = os.ErrDeadlineExceeded
)

// An Attachment is a view of a session: what is printed is read from it, what
// is written to it is typed. It survives the proxy's replacement by going on
// at its offset.
//
//	run    one goroutine: connects, reads, connects again
//	Write  and the resumption send under sendMu
//
// One goroutine may read (Read or Receive) while another writes; the other
// methods may be called from any.
type Attachment struct {
	c    *Client
	spec protocol.AttachSpec
	info protocol.AttachInfo
	ctx  context.Context // ended by Detach
	end  context.CancelFunc
	done chan struct{} // closed when run has ended

	detached chan struct{} // closed when the proxy has answered Detach
	gone     sync.Once

	sendMu sync.Mutex // held while frames of input are written

	mu         sync.Mutex
	conn       *conn // nil while there is none
	pos        protocol.Position
	resize     *protocol.Size       // not yet sent
	appearance *protocol.Appearance // the same
	reshaped   bool                 // its own view had another size when it was shown last
	in         inputBuffer
	missed     uint64
	lost       time.Time // when conn became nil
	asked      time.Time // when input was written while all before was acknowledged
	heard      time.Time // when the last frame came

	queue   []Message
	queued  int           // bytes in queue
	leaving bool          // Detach was called: nothing is queued any more
	notify  chan struct{} // something was queued
	drained chan struct{} // something was taken from the queue
	ended   bool          // the last message was queued

	rest Message // what is left of the one that Read has begun
	read uint64  // offset after what the program has read
	last *Message
}

// Attach attaches to a session.
//
// Errors: session_not_found, session_exited (whose Exit says how),
// already_attached, instance_mismatch, limit_exceeded.
func (c *Client) Attach(ctx context.Context, id protocol.SessionID, o AttachOptions) (*Attachment, error) {
	if o.Writer == "" {
		o.Writer = protocol.NewToken(8)
	}
	a := &Attachment{
		c: c, done: make(chan struct{}), detached: make(chan struct{}),
		spec: protocol.AttachSpec{
			SessionID: id, Cols: o.Cols, Rows: o.Rows, Mode: o.Mode, Steal: o.Steal, Resume: o.Resume, Snapshot: o.Snapshot,
			History: o.History, Answers: o.Answers && o.Mode != protocol.ModeReadOnly, Writer: o.Writer, Client: c.o.Name, Term: o.Term, IsTTY: o.IsTTY,
			View: o.View, Pace: o.Pace, Appearance: o.Appearance, Env: o.Env, Typed: o.Typed,
		},
		notify: make(chan struct{}, 1), drained: make(chan struct{}, 1),
	}
	a.ctx, a.end = context.WithCancel(context.Background())
	conn, err := a.connect(ctx, a.spec)
	if err != nil {
		a.end()
		return nil, err
	}
	go a.run(conn)
	return a, nil
}

// number is this attachment's on its connection, which carries no other: a
// program that does not read one attachment holds up that one alone.
const number = 1

// connect makes a connection and attaches over it. A lost connection or link
// is tried again for as long as the client's options say.
func (a *Attachment) connect(ctx context.Context, spec protocol.AttachSpec) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, a.c.o.Redial)
	defer cancel()
	for {
		conn, err := a.c.dial(ctx)
		if err != nil {
			return nil, err
		}
		spec.Attempt = attempt()
		info, err := attach(ctx, conn, spec)
		if protocol.CodeOf(err) == protocol.CodeSuperseded { // by an earlier one, before the clock was set back
			spec.Attempt = 0
			info, err = attach(ctx, conn, spec)
		}
		if err == nil {
			a.attached(conn, spec, info)
			return conn, nil
		}
		_ = conn.Close()
		if !lost(err) || pause(ctx, backoffMax/10) != nil {
			return nil, err
		}
	}
}

// attempt numbers this process's attaches: by the time, so that a later process
// goes on with greater numbers.
func attempt() uint64 {
	for {
		last := attempts.Load()
		next := max(last+1, uint64(time.Now().UnixMicro()))
		if attempts.CompareAndSwap(last, next) {
			return next
		}
	}
}

var attempts atomic.Uint64

func attach(ctx context.Context, conn *conn, spec protocol.AttachSpec) (*protocol.AttachInfo, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.send(api.Attach{Attachment: number, AttachSpec: spec}); err != nil {
		return nil, err
	}
	m, err := conn.receive()
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *api.Attached:
		return &m.AttachInfo, nil
	case *api.Error:
		return nil, &m.Error
	case *api.Goaway:
		return nil, goingAway(m)
	}
	return nil, failed(ErrDecode, fmt.Errorf("attach answered by %s", m.MessageType()))
}

// attached takes over a connection and its answer.
func (a *Attachment) attached(conn *conn, spec protocol.AttachSpec, info *protocol.AttachInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.info.Writer == ""
	a.conn = conn
	a.reshaped = a.spec.View == protocol.ViewOwn && (a.spec.Cols != spec.Cols || a.spec.Rows != spec.Rows)
	a.pos.Attached(*info, spec.Resume)
	a.in.resume(info.InputOffset, first)
	if first {
		a.spec.Steal = false // who takes this one's place while it is away keeps it
		a.info = *info
		a.missed, a.read = info.BytesMissed, info.Offset
		if info.SnapshotBytes > 0 { // half of it is no position: the one before holds
			a.read = 0
			if spec.Resume != nil {
				a.read = spec.Resume.Offset
			}
		}
		return
	}
	if info.Replay == protocol.ReplaySnapshot {
		a.overtaken(api.Resync{
			Offset: info.Offset, BytesMissed: info.BytesMissed, ScreenOnly: spec.ScreenOnly,
		})
	}
}

// overtaken is called with mu held, when the position has been set.
func (a *Attachment) overtaken(m api.Resync) {
	a.missed += m.BytesMissed
	a.reshaped = false
	a.put(Message{Kind: Missed, Offset: m.Offset, Missed: m.BytesMissed, ScreenOnly: m.ScreenOnly})
}

// Info is the answer to the attach.
func (a *Attachment) Info() protocol.AttachInfo { return a.info }

// Missed is how many bytes were printed and never came here: before the
// attach, and since, where the ring had forgotten them.
func (a *Attachment) Missed() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.missed
}

// Writer is the name that input goes by; with Resume it lets a later
// attachment go on with the input.
func (a *Attachment) Writer() string { return a.spec.Writer }

// Position is where to resume after what was read so far. What was read last may
// have been a view of the viewer's own, which output cannot continue: resume with
// Snapshot then.
func (a *Attachment) Position() protocol.Resume {
	a.mu.Lock()
	defer a.mu.Unlock()
	return protocol.Resume{Instance: a.info.Session.Instance, Offset: a.read}
}

// run reads one connection after the other until the attachment ends.
func (a *Attachment) run(conn *conn) {
	defer close(a.done)
	wait := backoffMin
	for {
		before := a.progress()
		stop := context.AfterFunc(a.ctx, func() { _ = conn.Close() })
		go a.flush() // what this connection has not been told
		err := a.readFrom(conn)
		stop()
		_ = conn.Close()
		a.mu.Lock()
		a.conn, a.lost = nil, time.Now()
		ended := a.ended
		a.mu.Unlock()
		if ended || a.ctx.Err() != nil {
			return
		}
		if !lost(err) {
			a.fail(err)
			return
		}
		// A proxy that takes us and drops us, again and again, is not hunted.
		if a.progress() == before {
			_ = pause(a.ctx, wait)
			wait = min(2*wait, backoffMax)
		} else {
			wait = backoffMin
		}
		if conn, err = a.connect(a.ctx, a.resumeSpec()); err != nil {
			a.fail(err)
			return
		}
	}
}

// progress is how many bytes this attachment has got across, both ways.
func (a *Attachment) progress() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pos.Offset() + a.in.base
}

func (a *Attachment) resumeSpec() protocol.AttachSpec {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pos.Resume(a.spec, a.reshaped)
}

// fail queues the error that ends the attachment; a session that has exited
// meanwhile, and whose last bytes are gone, still tells how.
func (a *Attachment) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		return
	}
	if e := protocol.AsError(err); e.Code == protocol.CodeSessionExited && e.Exit != nil {
		a.put(Message{Kind: Exited, Exit: exitOf(a.spec.SessionID, e.Exit)})
		return
	}
	a.put(Message{Kind: Failed, Err: err})
}

func exitOf(id protocol.SessionID, r *protocol.ExitRecord) *api.PTYExited {
	return &api.PTYExited{
		SessionID: id, PaneID: string(id), ExitCode: r.ExitCode, LastLines: r.LastLines,
		TimedOut: r.TimedOut, Reason: r.Reason, Signal: r.Signal, Outcome: r.Outcome,
	}
}

// readFrom queues what comes until the connection breaks or the attachment
// ends.
func (a *Attachment) readFrom(conn *conn) error {
	for {
		if !a.waitForRoom() {
			return a.ctx.Err()
		}
		kind, payload, err := conn.next()
		if err != nil {
			return err
		}
		a.mu.Lock()
		a.heard = time.Now()
		a.mu.Unlock()
		switch kind {
		case frame.Output, frame.Snapshot, frame.View:
			err = a.data(kind, payload)
		case frame.Control:
			var m protocol.Message
			if m, err = decode(payload); m != nil {
				err = a.control(conn, m)
			}
		}
		if err != nil {
			return err
		}
		a.mu.Lock()
		ended := a.ended
		a.mu.Unlock()
		if ended {
			return nil
		}
	}
}

// waitForRoom waits until the queue has room, and reports false after Detach.
func (a *Attachment) waitForRoom() bool {
	for {
		a.mu.Lock()
		full := a.queued >= outputWindow && !a.leaving
		a.mu.Unlock()
		if !full {
			return true
		}
		select {
		case <-a.drained:
		case <-a.ctx.Done():
			return false
		}
	}
}

func (a *Attachment) data(kind frame.Kind, payload []byte) error {
	_, offset, data, err := frame.ParseData(payload)
	if err != nil {
		return garbled(err)
	}
	m := Message{Kind: Output, Offset: offset, Data: append([]byte(nil), data...)}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch kind {
	case frame.Snapshot:
		m.Kind = Snapshot
		m.left = a.pos.Snapshot(len(data))
	case frame.View:
		m.Kind = View
		a.pos.View(offset)
	default:
		a.pos.Output(offset, len(data))
	}
	a.put(m)
	return nil
}

// put queues a message; mu is held.
func (a *Attachment) put(m Message) {
	if a.ended || a.leaving {
		return
	}
	a.ended = m.last()
	a.queue = append(a.queue, m)
	a.queued += m.size()
	poke(a.notify)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (a *Attachment) control(conn *conn, m protocol.Message) error {
	switch m := m.(type) {
	case *api.Goaway:
		_ = pause(a.ctx, min(time.Duration(m.RetryAfterMS)*time.Millisecond, a.c.o.Redial))
		return goingAway(m)
	case *api.Accepted:
		a.mu.Lock()
		a.in.accepted(m.Offset)
		a.mu.Unlock()
	case *api.Error:
		return a.error(&m.Error)
	case *api.Detached:
		a.gone.Do(func() { close(a.detached) })
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch m := m.(type) {
	case *api.Resync:
		a.pos.Resync(m.Offset, m.BytesMissed, m.SnapshotBytes, m.View)
		a.overtaken(*m)
	case *api.Resized:
		a.put(Message{Kind: Resized, Size: protocol.Size{Cols: m.Cols, Rows: m.Rows}})
	case *api.Typed:
		a.put(Message{Kind: Typed, Data: m.Data, Offset: m.Offset, At: m.At, Masked: m.Masked})
	case *api.Stolen:
		a.put(Message{Kind: Stolen, By: m.StolenBy})
	case *api.PTYExited:
		a.put(Message{Kind: Exited, Exit: m})
	case *api.Exit: // of an older proxy
		a.put(Message{Kind: Exited, Exit: &api.PTYExited{SessionID: a.spec.SessionID, PaneID: string(a.spec.SessionID), ExitCode: m.Code}})
	}
	return nil
}

// error acts on an error of the attachment: input is sent again from where it
// was taken, or the attachment ends.
func (a *Attachment) error(e *protocol.Error) error {
	switch e.Code {
	case protocol.CodeInputGap, protocol.CodeInputFull:
		if e.Offset == nil {
			return nil
		}
		a.mu.Lock()
		a.in.resume(*e.Offset, false)
		a.mu.Unlock()
		if e.Code == protocol.CodeInputGap {
			go a.flush()
		} else {
			time.AfterFunc(retryFull, a.flush)
		}
		return nil
	case protocol.CodeLineTooLong:
		a.mu.Lock()
		a.put(Message{Kind: Warned, Err: e})
		a.mu.Unlock()
		return nil
	case protocol.CodePermissionDenied:
		return nil // Write has said so
	}
	return e
}

// Receive returns the next message, waiting at most for the timeout (for ever
// if it is negative). Errors: ErrTimeout, and io.EOF after the last message
// and after Detach.
func (a *Attachment) Receive(timeout time.Duration) (*Message, error) {
	m, err := a.receive(timeout)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.passed(m, len(m.Data))
	}
	return m, err
}

// passed notes that the program has read up to n bytes into m; mu is held. Half
// a snapshot is no position: until it is whole, the one before holds.
func (a *Attachment) passed(m *Message, n int) {
	switch {
	case m.Kind == Output:
		a.read = m.Offset + uint64(n)
	case (m.Kind == Snapshot && m.left == 0 || m.Kind == View) && n == len(m.Data):
		a.read = m.Offset
	}
}

func (a *Attachment) receive(timeout time.Duration) (*Message, error) {
	var expired <-chan time.Time
	if timeout >= 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		expired = t.C
	}
	for {
		if m := a.take(); m != nil {
			return m, nil
		}
		if a.last != nil || a.ctx.Err() != nil {
			return nil, io.EOF
		}
		select {
		case <-a.notify:
		case <-expired:
			if m := a.take(); m != nil {
				return m, nil
			}
			return nil, ErrTimeout
		case <-a.ctx.Done():
		}
	}
}

// take removes the first message of the queue, if there is one.
func (a *Attachment) take() *Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 {
		return nil
	}
	m := a.queue[0]
	a.queue[0] = Message{}
	if a.queue = a.queue[1:]; len(a.queue) == 0 {
		a.queue = nil
	}
	a.queued -= m.size()
	poke(a.drained)
	if m.last() {
		a.last = &m
	}
	return &m
}

// Read reads what the session printed. It returns io.EOF once the session has
// exited (Exit says how) or after Detach, ErrStolen, or what else ended the
// attachment. Bytes lost to a viewer too slow are counted by Missed; the
// snapshot that stands for them is read in their place.
//
// Of an attachment with a view of its own it reads what to write to a terminal.
// Where that shows something already, a snapshot follows a reset of the terminal
// (RIS).
func (a *Attachment) Read(p []byte) (int, error) {
	for len(a.rest.Data) == 0 {
		m, err := a.receive(-1)
		if err != nil || m.last() {
			return 0, a.readError()
		}
		if m.Kind == Missed && a.spec.View == protocol.ViewOwn {
			m.Data = []byte(terminalReset)
		}
		if m.Kind == Typed {
			continue
		}
		a.rest = *m
	}
	n := copy(p, a.rest.Data)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.passed(&a.rest, n)
	a.rest.Data = a.rest.Data[n:]
	if a.rest.Kind == Output {
		a.rest.Offset += uint64(n)
	}
	return n, nil
}

const terminalReset = "\x1bc"

func (a *Attachment) readError() error {
	switch {
	case a.last == nil || a.last.Kind == Exited:
		return io.EOF
	case a.last.Kind == Stolen:
		return ErrStolen
	}
	return a.last.Err
}

// Exit is how the session ended, once Read or Receive has come to that; else
// nil.
func (a *Attachment) Exit() *api.PTYExited {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		return nil
	}
	return a.last.Exit
}

// Detach ends the attachment; the session lives on. Input written before is
// sent first, where there is a connection. It may be called again.
func (a *Attachment) Detach() error {
	a.mu.Lock()
	conn, ended := a.conn, a.ended
	a.mu.Unlock()
	if conn != nil && !ended && a.ctx.Err() == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(detachTimeout)) // also of a Write that hangs
		a.flush()
		a.mu.Lock()
		a.leaving = true // what comes before the answer is not kept
		a.mu.Unlock()
		poke(a.drained)
		if conn.send(api.Detach{Attachment: number}) == nil {
			// The answer says that the input before it was passed on; a
			// connection closed at once could lose it.
			select {
			case <-a.detached:
			case <-a.done:
			case <-time.After(detachTimeout):
			}
		}
	}
	a.end()
	<-a.done
	return nil
}

// Close is Detach.
func (a *Attachment) Close() error { return a.Detach() }
