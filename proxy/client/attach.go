package client

import (
	"context"
	"errors"
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
	// outputWindow is how many bytes of output an attachment queues for a program that does not
	// read. When the queue is full, the attachment does not read its connection, and the
	// supervisor will replace the missed output by a snapshot.
	outputWindow = 1 << 20
	// inputWindow is how many bytes of input may be unacknowledged. When it is full, Write waits.
	inputWindow = 1 << 20
	// detachTimeout is how long Detach waits for the proxy's answer.
	detachTimeout = time.Second
	// retryFull is how long to wait before input is sent again after the session's input queue
	// was full.
	retryFull = 20 * time.Millisecond
)

// AttachOptions are the options of an attachment. The zero value shares the session with its
// other viewers and leaves its size unchanged.
type AttachOptions struct {
	Cols, Rows int // size of the viewer's terminal; 0 and 0 do not affect the session's size
	Mode       protocol.Mode
	Steal      bool
	Detach     bool             // with Steal: the program only detaches the other clients, and calls Detach; they receive Stolen with Detached
	Resume     *protocol.Resume // continues where an earlier attachment ended
	Snapshot   bool             // with Resume: send a snapshot even if the output could continue
	History    *int             // number of lines above the screen in a snapshot; nil means 1,000
	Answers    bool             // the output goes to a terminal that answers queries of programs
	Writer     string           // writer name of an earlier attachment; give it with Resume so that the input continues as well
	Term       string
	IsTTY      bool
	View       protocol.View // ViewOwn reflows the screen to Cols and Rows if the session has another size
	Pace       bool          // for an exclusive attachment: the child waits, for a limited time, until this viewer has read its output
	Appearance *protocol.Appearance
	Env        []string // K=V of the viewer's environment, in UTF-8, for programs that ask for it: see Client.Environment
	Mask       bool     // mask secrets, because the program stores the output or passes it on; not allowed with ViewOwn
	Typed      bool     // send a Typed message for the input of each writer; not allowed in mode read_only

	// TakeOver lets the attachment take over the client's connection, unless another call waits for an answer on it. The
	// next call then connects again. It is meant for programs that only attach: with ssh, each connection is a login.
	TakeOver bool
}

// MessageKind is the kind of a Message.
type MessageKind int

// The kinds of messages.
const (
	Output   MessageKind = iota // Data was printed at Offset
	Snapshot                    // Data is a part of the snapshot of the session at Offset
	Missed                      // Missed bytes of output were lost to this viewer; a snapshot follows, so the program must clear its screen
	Resized                     // the terminal has another size from this message on
	Exited                      // the session has ended; the last message
	Stolen                      // the client By has replaced this attachment; the last message
	Failed                      // Err ended the attachment; the last message
	View                        // Data updates the viewer's own view to Offset, and must be written to the terminal
	Warned                      // Err is a warning about input, line_too_long; the attachment continues
	Typed                       // a writer of the session typed Data at the time At, when the output had come to Offset
)

// A Message is output of the session, or an event of the attachment.
type Message struct {
	Kind   MessageKind
	Data   []byte
	Offset uint64
	Missed uint64
	Size   protocol.Size
	Exit   *api.PTYExited
	By     string
	Err    error

	// Detached belongs to Stolen: the client By has only detached this one, and leaves.
	Detached bool

	// ScreenOnly belongs to Missed: the snapshot has no lines above the screen, so the program
	// should keep the lines above the screen that its terminal has.
	ScreenOnly bool

	// At and Masked belong to Typed. If the terminal does not echo the input, Data has an
	// asterisk in place of each character, and Masked is true. If Masked is true and Data is
	// empty, some input was left out because this attachment was not read.
	At     time.Time
	Masked bool

	left int // bytes of the snapshot that follow this part of it
}

// size returns the approximate memory that m needs in a queue, in bytes.
func (m *Message) size() int { return len(m.Data) + int(unsafe.Sizeof(*m)) }

// last reports whether m is the last message of an attachment.
func (m *Message) last() bool { return m.Kind == Exited || m.Kind == Stolen || m.Kind == Failed }

// reason returns the error for calls after m, the last message.
func (m *Message) reason() error {
	switch m.Kind {
	case Stolen:
		return ErrStolen
	case Exited:
		return protocol.Errorf(protocol.CodeSessionExited, "the session has ended with %d", m.Exit.ExitCode)
	}
	return m.Err
}

// ErrStolen is returned by Read when another client has replaced this attachment. ErrTimeout is
// returned by Receive when its timeout has passed.
var (
	ErrStolen  = errors.New("another client attached in this one's place")
	ErrTimeout = os.ErrDeadlineExceeded
)

// An Attachment is a view of a session. The program reads the session's output from it and writes
// the session's input to it. If the proxy is replaced, the attachment reconnects and continues at
// its offsets.
//
//	run    is one goroutine: it connects, reads until the connection breaks, and connects again
//	Write  and run send input while they hold sendMu
//
// One goroutine may read (with Read or Receive) while another one writes. The other methods may
// be called from any goroutine.
type Attachment struct {
	c    *Client
	spec protocol.AttachSpec
	info protocol.AttachInfo
	ctx  context.Context // canceled by Detach
	end  context.CancelFunc
	done chan struct{} // closed when run has ended

	detached   chan struct{} // closed when the proxy has answered Detach
	detachOnce sync.Once

	sendMu   sync.Mutex // held while frames of input are written
	leftOver *conn      // the last connection over which leave sent its message; guarded by sendMu

	mu            sync.Mutex
	conn          *conn // nil while there is no connection
	next          *conn // is used instead of a new connection at the next attach; nil if there is none
	pos           protocol.Position
	resize        *protocol.Size       // size that is not sent yet
	unconfirmed   *protocol.Size       // size that was sent last, until the proxy confirms it
	resizes       int                  // number of sizes that were sent; it identifies unconfirmed
	appearance    *protocol.Appearance // appearance that is not sent yet
	needsSnapshot bool                 // the next attach needs a snapshot: the viewer's own view has changed its size, or Repaint was called
	repaint       bool                 // Repaint was called since the last attach was made, so its answer may show an older screen
	in            inputBuffer
	missed        uint64
	lost          time.Time   // time when conn became nil
	unackedSince  time.Time   // time when input was written while no input was unacknowledged
	lastFrame     time.Time   // time when the last frame came
	silence       *time.Timer // calls leaveSilent while there is a connection; nil if there is no other gate
	isLeaving     bool        // leaveSilent makes a connection

	queue       []Message
	queued      int           // bytes of the messages in queue
	isFull      bool          // the session's input queue was full, so no input is sent before retry
	isDetaching bool          // Detach was called, so messages are no longer queued and input is refused
	notify      chan struct{} // a message was queued
	drained     chan struct{} // a message was removed from queue
	ended       bool          // the last message was queued
	why         error         // the reason for the end, if ended

	remainder Message // the unread part of the message that Read returns in pieces
	read      uint64  // offset after the output that the program has read
	last      *Message
}

// Attach attaches to the session id.
//
// Its errors are session_not_found, session_exited (whose Exit holds the exit record),
// already_attached, instance_mismatch, limit_exceeded and invalid_argument. After Close of the client, the error is an ErrIO.
func (c *Client) Attach(ctx context.Context, id protocol.SessionID, o AttachOptions) (*Attachment, error) {
	if err := c.checkOpen(); err != nil {
		return nil, err
	}
	if err := protocol.ValidateViewerEnv(o.Env); err != nil { // JSON would replace bytes that are not UTF-8
		return nil, err
	}
	if o.Writer == "" {
		o.Writer = protocol.NewToken(8)
	}
	a := &Attachment{
		c: c, done: make(chan struct{}), detached: make(chan struct{}),
		spec: protocol.AttachSpec{
			SessionID: id, Cols: o.Cols, Rows: o.Rows, Mode: o.Mode, Steal: o.Steal, Detach: o.Detach, Resume: o.Resume, Snapshot: o.Snapshot,
			History: o.History, Answers: o.Answers && o.Mode != protocol.ModeReadOnly, Writer: o.Writer, Client: c.o.Name, Term: o.Term, IsTTY: o.IsTTY,
			View: o.View, Pace: o.Pace, Appearance: o.Appearance, Env: o.Env, Typed: o.Typed, Mask: o.Mask,
		},
		notify: make(chan struct{}, 1), drained: make(chan struct{}, 1),
	}
	if o.TakeOver {
		a.next = c.give()
	}
	a.ctx, a.end = context.WithCancel(context.Background())
	if c.hasOtherGates() {
		a.silence = time.AfterFunc(silentTime, a.leaveSilent)
	}
	conn, err := a.connect(ctx, lost)
	if err != nil {
		a.end()
		return nil, err
	}
	go a.run(conn)
	return a, nil
}

// number is the attachment's number on its connection. Each attachment has a connection of its
// own, so that a program that does not read one attachment delays no other one.
const number = 1

// connect opens a connection and attaches over it. If mayRetry permits it for an error, connect tries again for the
// time Options.Redial.
func (a *Attachment) connect(ctx context.Context, mayRetry func(error) bool) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, a.c.o.Redial)
	defer cancel()
	for wait := (backoff{}); ; {
		conn, err := a.nextConn(ctx)
		if err != nil {
			return nil, err
		}
		spec := a.nextSpec()
		spec.Attempt = attempt()
		info, err := attach(ctx, conn, spec)
		if protocol.CodeOf(err) == protocol.CodeSuperseded { // the clock was set back, so an earlier attempt has a greater number
			spec.Attempt = 0
			info, err = attach(ctx, conn, spec)
		}
		if err == nil {
			a.attached(conn, spec, info)
			return conn, nil
		}
		_ = conn.Close()
		if !mayRetry(err) || wait.pause(ctx, err) != nil {
			return nil, orCanceled(ctx, err)
		}
	}
}

// mayResume reports whether an attachment or a subscription that was lost with err, or could not be made again, may be made
// again.
func mayResume(err error) bool {
	var answer *protocol.Error
	return lost(err) || errors.As(err, &answer) && answer.Retryable
}

// nextConn returns the connection that the client has given, or that moveOn has made, for the attachment, or a new one.
func (a *Attachment) nextConn(ctx context.Context) (*conn, error) {
	a.mu.Lock()
	next := a.next
	a.next = nil
	a.mu.Unlock()
	if next == nil {
		next = a.c.spare.take(ctx)
	}
	if next != nil {
		return next, nil
	}
	return a.c.dial(ctx)
}

// moveOn replaces a connection that a gate wants to close, or that is silent. The next connection is made while output
// and input still use old, so that they wait only for the attach, and not for the way through the gate. A silent connection
// stays if there is no other one, or if it answers again.
func (a *Attachment) moveOn(old *conn, isSilent bool) {
	next, err := a.c.dial(a.ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil && (a.conn != old || a.ended || a.next != nil || isSilent && a.stalled() < silentTime) { // run has dealt with a lost one
		_ = next.Close()
		return
	}
	if err != nil && isSilent {
		return
	}
	if err == nil {
		a.next = next
	}
	_ = old.Close() // run connects again
}

// leaveSilent replaces a connection over which nothing came for silentTime although input is unacknowledged, or a ping was
// sent.
func (a *Attachment) leaveSilent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	conn := a.conn
	if a.hasEnded() || a.isLeaving || conn == nil { // attached begins again
		return
	}
	isUnread := a.queued >= outputWindow // by the program, so that no frame can come
	isDead := !isUnread && conn.isDead(calmTime)
	if left := silentTime - a.stalled(); isUnread || !isDead && left > 0 {
		a.silence.Reset(max(left, silentTime/10))
		return
	}
	a.isLeaving = true
	a.mu.Unlock()
	a.moveOn(conn, true)
	a.mu.Lock()
	a.isLeaving = false
	a.silence.Reset(silentTime)
}

// orCanceled returns err, or the error of ctx if it was canceled, because that closes the connection, and err tells only
// of a closed connection.
func orCanceled(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return err
}

// attempt returns a number for an attach, greater than all earlier ones of this process. The
// numbers follow the clock, so that the numbers of a later process are greater, too.
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
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.send(api.Attach{Attachment: number, AttachSpec: spec}); err != nil {
		return nil, err
	}
	m, err := conn.attachAnswer()
	if err != nil {
		return nil, err
	}
	attached, err := answerTo[*api.Attached]("attach", m)
	if err != nil {
		return nil, err
	}
	return &attached.AttachInfo, nil
}

// attached stores a new connection and the answer to its attach.
func (a *Attachment) attached(conn *conn, spec protocol.AttachSpec, info *protocol.AttachInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.info.Writer == ""
	a.conn = conn
	if a.isDetaching {
		_ = conn.SetWriteDeadline(time.Now().Add(detachTimeout)) // as Detach does for the connection that it finds
	}
	a.needsSnapshot = a.repaint || a.spec.View == protocol.ViewOwn && (a.spec.Cols != spec.Cols || a.spec.Rows != spec.Rows)
	a.pos.Attached(*info, spec.Resume)
	a.in.resume(info.InputOffset, first)
	a.watchSilence()
	if a.resize == nil { // an attach that resumes does not change the size of the session
		a.resize = a.unconfirmed
	}
	if first {
		a.spec.Steal = false // a later attach must not replace the client that has replaced this attachment meanwhile
		a.info = *info
		a.missed, a.read = info.BytesMissed, info.Offset
		if info.SnapshotBytes > 0 { // a part of a snapshot is no position, so the position before the snapshot remains
			a.read = 0
			if spec.Resume != nil {
				a.read = spec.Resume.Offset
			}
		}
		return
	}
	if info.Replay == protocol.ReplaySnapshot {
		a.skipOutput(api.Resync{
			Offset: info.Offset, BytesMissed: info.BytesMissed, ScreenOnly: spec.ScreenOnly,
		})
	} else if a.repaint {
		_ = conn.Close() // run connects again, with a snapshot
	}
}

// skipOutput counts and queues a gap in the output. The position must already be set, and a.mu
// must be held.
func (a *Attachment) skipOutput(m api.Resync) {
	a.missed += m.BytesMissed
	a.needsSnapshot = false
	a.queueMessage(Message{Kind: Missed, Offset: m.Offset, Missed: m.BytesMissed, ScreenOnly: m.ScreenOnly})
}

// Info returns the answer to the attach.
func (a *Attachment) Info() protocol.AttachInfo { return a.info }

// Missed returns how many bytes of output never reached this attachment, because the session's
// ring had overwritten them before or after the attach.
func (a *Attachment) Missed() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.missed
}

// Writer returns the name under which the session counts this attachment's input. A later
// attachment that gives it with Resume continues the input.
func (a *Attachment) Writer() string { return a.spec.Writer }

// Position returns the position after the output that the program has read. If the last message
// was a view of the viewer's own, output cannot continue it, so the next attachment must ask for
// a Snapshot.
func (a *Attachment) Position() protocol.Resume {
	a.mu.Lock()
	defer a.mu.Unlock()
	return protocol.Resume{Instance: a.info.Session.Instance, Offset: a.read}
}

// run reads one connection after another until the attachment ends.
func (a *Attachment) run(conn *conn) {
	defer close(a.done)
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.next != nil { // the attachment has ended before it was used
			_ = a.next.Close()
		}
	}()
	var wait backoff
	for {
		before := a.progress()
		stop := context.AfterFunc(a.ctx, func() { _ = conn.Close() })
		go a.flush() // sends the input that this connection does not have yet, and the end if Detach waits for it
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
		if !mayResume(err) {
			a.fail(err)
			return
		}
		_ = pause(a.ctx, min(retryAfter(err), a.c.o.Redial))
		// If a proxy accepts and drops each connection, wait longer each time.
		if a.progress() == before {
			_ = wait.pause(a.ctx, nil)
		} else {
			wait = backoff{}
		}
		if conn, err = a.connect(a.ctx, mayResume); err != nil {
			a.fail(err)
			return
		}
	}
}

// progress returns how many bytes this attachment has received and how many of its input bytes
// were acknowledged, as one sum.
func (a *Attachment) progress() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pos.Offset() + a.in.Base()
}

// nextSpec returns the spec of the next attach. It is made for each attempt, so that it has the size and the need of a
// snapshot at that moment.
func (a *Attachment) nextSpec() protocol.AttachSpec {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.info.Writer == "" { // there was no attach before
		return a.spec
	}
	a.repaint = false
	return a.pos.Resume(a.spec, a.needsSnapshot)
}

// fail queues the error that ends the attachment. If the session has exited and its last output
// is lost, fail queues its exit record instead.
func (a *Attachment) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		return
	}
	if e := protocol.AsError(err); e.Code == protocol.CodeSessionExited && e.Exit != nil {
		a.queueMessage(Message{Kind: Exited, Exit: exitOf(a.spec.SessionID, e.Exit)})
		return
	}
	a.queueMessage(Message{Kind: Failed, Err: err})
}

func exitOf(id protocol.SessionID, r *protocol.ExitRecord) *api.PTYExited {
	return &api.PTYExited{
		SessionID: id, PaneID: string(id), ExitCode: r.ExitCode, LastLines: r.LastLines,
		TimedOut: r.TimedOut, Reason: r.Reason, Signal: r.Signal, Outcome: r.Outcome, ExitedAt: r.ExitedAt,
	}
}

// readFrom reads frames from conn and queues them until the connection breaks or the attachment
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
		a.lastFrame = time.Now()
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

// waitForRoom waits until the queue has room, and returns false after Detach.
func (a *Attachment) waitForRoom() bool {
	for {
		a.mu.Lock()
		full := a.queued >= outputWindow && !a.isDetaching
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
	n, offset, data, err := frame.ParseData(payload)
	if err != nil {
		return garbled(err)
	}
	if n != number {
		return nil
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
	a.queueMessage(m)
	return nil
}

// queueMessage queues m unless the attachment has ended; a.mu must be held.
func (a *Attachment) queueMessage(m Message) {
	if a.ended || a.isDetaching {
		return
	}
	if a.ended = m.last(); a.ended {
		a.why = m.reason()
	}
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

// attachmentOf returns the number of the attachment that a message concerns, or number if it names none.
func attachmentOf(m protocol.Message) uint32 {
	optional := func(n *uint32) uint32 {
		if n == nil {
			return number
		}
		return *n
	}
	switch m := m.(type) {
	case *api.Accepted:
		return optional(m.Attachment)
	case *api.Error:
		return optional(m.Attachment)
	case *api.PTYExited:
		return optional(m.Attachment)
	case *api.Resync:
		return m.Attachment
	case *api.Resized:
		return m.Attachment
	case *api.Stolen:
		return m.Attachment
	case *api.Typed:
		return m.Attachment
	case *api.Detached:
		return m.Attachment
	}
	return number
}

func (a *Attachment) control(conn *conn, m protocol.Message) error {
	if attachmentOf(m) != number {
		return nil
	}
	switch m := m.(type) {
	case *api.Goaway:
		if a.c.o.Gate != nil && m.RetryAfterMS == 0 {
			go a.moveOn(conn, false)
			return nil
		}
		return goingAway(m)
	case *api.Accepted:
		a.mu.Lock()
		a.in.accepted(m.Offset)
		a.mu.Unlock()
	case *api.OK:
		a.confirm(m.RequestID)
	case *api.Error:
		if m.RequestID == pingID { // a proxy that does not know ping
			return nil
		}
		return a.error(&m.Error)
	case *api.Detached:
		a.detachOnce.Do(func() { close(a.detached) })
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch m := m.(type) {
	case *api.Resync:
		a.pos.Resync(m.Offset, m.BytesMissed, m.SnapshotBytes, m.View)
		a.skipOutput(*m)
	case *api.Resized:
		a.queueMessage(Message{Kind: Resized, Size: protocol.Size{Cols: m.Cols, Rows: m.Rows}})
	case *api.Typed:
		a.queueMessage(Message{Kind: Typed, Data: m.Data, Offset: m.Offset, At: m.At, Masked: m.Masked})
	case *api.Stolen:
		a.queueMessage(Message{Kind: Stolen, By: m.StolenBy, Detached: m.Detached})
	case *api.PTYExited:
		a.queueMessage(Message{Kind: Exited, Exit: m})
	}
	return nil
}

// error handles an error message of the attachment. If the session did not accept input, the
// input is sent again from the offset that the session expects; other errors end the attachment.
func (a *Attachment) error(e *protocol.Error) error {
	switch e.Code {
	case protocol.CodeInputGap, protocol.CodeInputFull:
		if e.Offset == nil {
			return nil
		}
		a.mu.Lock()
		a.in.resume(*e.Offset, false)
		waits := a.isFull // an answer to an earlier part of the input has set the timer
		a.isFull = waits || e.Code == protocol.CodeInputFull
		a.mu.Unlock()
		if e.Code == protocol.CodeInputGap {
			go a.flush()
		} else if !waits {
			time.AfterFunc(retryFull, a.retry)
		}
		return nil
	case protocol.CodeLineTooLong:
		a.mu.Lock()
		a.queueMessage(Message{Kind: Warned, Err: e})
		a.mu.Unlock()
		return nil
	case protocol.CodePermissionDenied:
		return nil // Write has returned this error already
	}
	return e
}

// Receive returns the next message. It waits for at most timeout, or without limit if timeout is
// negative. Its errors are ErrTimeout, and io.EOF after the last message and after Detach.
func (a *Attachment) Receive(timeout time.Duration) (*Message, error) {
	m, err := a.receive(timeout)
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.markRead(m, len(m.Data))
	}
	return m, err
}

// markRead sets the position after n bytes of m; a.mu must be held. A part of a snapshot is no
// position, so the position changes only when the whole snapshot is read.
func (a *Attachment) markRead(m *Message, n int) {
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
		if m := a.dequeue(); m != nil {
			return m, nil
		}
		if a.last != nil || a.ctx.Err() != nil {
			return nil, io.EOF
		}
		select {
		case <-a.notify:
		case <-expired:
			if m := a.dequeue(); m != nil {
				return m, nil
			}
			return nil, ErrTimeout
		case <-a.ctx.Done():
		}
	}
}

// dequeue removes the first message of the queue and returns it, or nil if the queue is empty.
func (a *Attachment) dequeue() *Message {
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

// Read reads output of the session. It returns io.EOF when the session has exited (Exit then
// returns the exit record) and after Detach, ErrStolen if another client has replaced the
// attachment, or the error that ended it. If the program reads too slowly, Read returns a
// snapshot in place of the missed bytes, and Missed counts them.
//
// With AttachOptions.View set to ViewOwn, the bytes should be written to a terminal. A snapshot
// after missed output then begins with a reset of the terminal (RIS).
func (a *Attachment) Read(p []byte) (int, error) {
	for len(a.remainder.Data) == 0 {
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
		a.remainder = *m
	}
	n := copy(p, a.remainder.Data)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.markRead(&a.remainder, n)
	a.remainder.Data = a.remainder.Data[n:]
	if a.remainder.Kind == Output {
		a.remainder.Offset += uint64(n)
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

// Exit returns how the session ended if Read or Receive has come to its end, and nil before.
func (a *Attachment) Exit() *api.PTYExited {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		return nil
	}
	return a.last.Exit
}

// Detach ends the attachment; the session continues to run. If there is a connection, Detach
// first sends all input that was written; a Write during or after it fails. If that connection is
// lost meanwhile, Detach uses the next one, for which it waits a second at most. It may be called
// again.
func (a *Attachment) Detach() error {
	a.mu.Lock()
	conn, ended, again := a.conn, a.ended, a.isDetaching
	a.isDetaching = true // messages before the answer are dropped, and nothing is sent after the message of leave
	a.mu.Unlock()
	if again {
		<-a.done
		return nil
	}
	poke(a.drained)
	if conn != nil && !ended && a.ctx.Err() == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(detachTimeout)) // also ends a Write that is blocked
		a.sendMu.Lock()
		err := a.leave()
		a.sendMu.Unlock()
		if !errors.Is(err, os.ErrDeadlineExceeded) { // otherwise the proxy does not read
			// The answer confirms that the proxy has forwarded the input before it. If the
			// connection were closed at once, that input could be lost.
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

// leave sends the input that the connection does not have yet, and then the message that ends the attachment, once over
// each connection; a.sendMu must be held. If it fails because the connection is lost, run calls it for the next one.
func (a *Attachment) leave() error {
	a.mu.Lock()
	conn := a.conn
	a.mu.Unlock()
	if conn == nil || conn == a.leftOver {
		return nil
	}
	a.leftOver = conn
	a.sendAll()
	return conn.send(api.Detach{Attachment: number})
}

// Close calls Detach.
func (a *Attachment) Close() error { return a.Detach() }
