package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gobwas/ws"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
)

const (
	sessionID = "build"
	instance  = "fcde2b2edba56bf4"
	// maxConns is the largest number of connections of one scenario. It ends a client that connects without
	// a pause before it takes all memory.
	maxConns = 2000
)

// A world is one scenario while it runs: the proxy that the suite plays, and the application as far as its
// harness has reported.
//
//	serve  is one goroutine for each connection; it reads the client's frames
//	the scenario runs on the caller's goroutine; it sends output, and reads the harness's events
type world struct {
	ctx       context.Context
	h         *harness
	patience  time.Duration
	transport string
	listener  net.Listener
	address   Command // connects the client
	viewers   chan *viewer
	app       application

	mu          sync.Mutex
	faults      []string
	conns       []*conn
	input       []byte // accepted input
	typed       []byte // input that the harness was asked to type
	writer      string
	attempt     uint64
	printed     uint64 // the end of the output so far
	frames      int    // frames of input so far
	gaps        int    // times that input was missing
	tokens      map[string]bool
	resizes     []protocol.Size
	attachTimes []time.Time

	// Hooks of the scenario; if one is nil, the behaviour is that of a proxy.
	onHello  func(*conn) bool   // returns false if it has dealt with the connection
	welcome  func(*conn) []byte // makes the answer to hello
	onAttach func(*viewer) bool // returns false if it has dealt with the attach
	onInput  func(v *viewer, offset uint64, data []byte)
	onSpawn  func(*conn, *api.Spawn)
	onInfo   func(*conn, *api.Info)
}

// A viewer is an attach of the client, and then the attachment.
type viewer struct {
	*conn
	w        *world
	attach   *api.Attach
	number   uint32
	isInGap  bool // input is dropped until the missing bytes arrive
	detached chan struct{}
}

// A stop ends a scenario early; runScenario recovers it.
type stop struct{}

// faultf records a mistake of the client.
func (w *world) faultf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) < 8 {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}

// fatalf records a mistake of the client and ends the scenario. Only the goroutine of the scenario may call it.
func (w *world) fatalf(format string, args ...any) {
	w.faultf(format, args...)
	panic(stop{})
}

func newWorld(ctx context.Context, h *harness, transport string, o *Options) (*world, func(), error) {
	dir, err := os.MkdirTemp("", "conformance")
	if err != nil {
		return nil, nil, err
	}
	l, address, err := o.listen(transport, dir)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	w := &world{
		ctx: ctx, h: h, patience: o.Patience, transport: transport, listener: l, address: address,
		viewers: make(chan *viewer, maxConns), tokens: make(map[string]bool),
	}
	var serving sync.WaitGroup
	serving.Go(func() { w.acceptAll(&serving) })
	return w, func() {
		_ = l.Close()
		w.mu.Lock()
		conns := w.conns
		w.mu.Unlock()
		for _, c := range conns {
			_ = c.nc.Close()
		}
		serving.Wait()
		_ = os.RemoveAll(dir)
	}, nil
}

func (w *world) acceptAll(serving *sync.WaitGroup) {
	for {
		nc, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		count := len(w.conns)
		w.mu.Unlock()
		if count >= maxConns {
			_ = nc.Close()
			continue
		}
		serving.Go(func() { w.serve(nc) })
	}
}

// serve answers one connection of the client until it ends.
func (w *world) serve(nc net.Conn) {
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(w.patience + scenarioLimit)) // so that a write to a client that does not read ends
	c, err := accept(nc, w.transport)
	if hasLeft(err) {
		return // which it may
	}
	if err != nil {
		w.faultf("%v", err)
		return
	}
	defer c.markEnded()
	w.mu.Lock()
	w.conns = append(w.conns, c)
	onHello := w.onHello
	w.mu.Unlock()
	kind, payload, err := c.next()
	if err != nil {
		return // the client has left, which it may
	}
	if err := checkHello(kind, payload); err != nil {
		w.faultf("%v", err)
		return
	}
	if onHello != nil && !onHello(c) {
		w.readOn(c)
		return
	}
	w.mu.Lock()
	answer := w.welcome
	w.mu.Unlock()
	if answer == nil {
		answer = func(c *conn) []byte { return c.message(welcome()) }
	}
	_ = c.write(answer(c))
	viewers := make(map[uint32]*viewer)
	for {
		kind, payload, err := c.next()
		var e *protocol.Error
		if errors.As(err, &e) {
			w.faultf("the client sent a frame that is no frame: %v", err)
		}
		if err != nil {
			return
		}
		if err := w.received(c, viewers, kind, payload); err != nil {
			w.faultf("%v", err)
			return
		}
	}
}

// readOn reads the frames that the client sends over a connection that the scenario is ending.
func (w *world) readOn(c *conn) {
	for {
		if _, _, err := c.next(); err != nil {
			return
		}
	}
}

func welcome() api.Welcome {
	return api.Welcome{Protocol: protocol.Supported(), Agreed: protocol.Version, PID: 7, Version: "conformance", Instance: "9f86d081884c7d65"}
}

func checkHello(kind frame.Kind, payload []byte) error {
	m, err := parse(kind, payload)
	if err != nil {
		return err
	}
	hello, ok := m.(*api.Hello)
	switch {
	case !ok:
		return fmt.Errorf("the first message is %s, not hello", m.MessageType())
	case len(hello.Client) < 1 || len(hello.Client) > 256:
		return fmt.Errorf("hello has the client %q, and it must have 1 to 256 bytes", hello.Client)
	case len(payload) > frame.MaxHello-1:
		return fmt.Errorf("hello has %d bytes", len(payload))
	}
	if _, err := protocol.Agree(protocol.Supported(), hello.Protocol); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	return nil
}

// parse returns a control message of the client.
func parse(kind frame.Kind, payload []byte) (protocol.Message, error) {
	if kind != frame.Control {
		return nil, fmt.Errorf("the client sent a frame of kind %d, not a message", kind)
	}
	m, _, err := api.Messages.Decode(payload)
	if err != nil {
		return nil, fmt.Errorf("the client sent %.200q: %w", payload, err)
	}
	return m, nil
}

// received handles one frame of the client. An error ends the connection.
func (w *world) received(c *conn, viewers map[uint32]*viewer, kind frame.Kind, payload []byte) error {
	if kind == frame.Input {
		number, offset, data, err := frame.ParseData(payload)
		if err != nil {
			return err
		}
		if v := viewers[number]; v != nil {
			w.inputFrame(v, offset, data)
			return nil
		}
		return fmt.Errorf("the client sent input for attachment %d, which this connection has not", number)
	}
	m, err := parse(kind, payload)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *api.Attach:
		v := &viewer{conn: c, w: w, attach: m, number: m.Attachment, detached: make(chan struct{})}
		viewers[m.Attachment] = v
		return w.attachReceived(v)
	case *api.Detach:
		if v := viewers[m.Attachment]; v != nil {
			delete(viewers, m.Attachment)
			close(v.detached)
			return nil // the scenario answers
		}
		_ = c.write(c.message(api.Detached{Request: m.Request, Attachment: m.Attachment}))
	case *api.Resize:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.resizes = append(w.resizes, protocol.Size{Cols: m.Cols, Rows: m.Rows})
	case *api.Spawn:
		w.spawned(c, m)
	case *api.Info:
		w.mu.Lock()
		onInfo := w.onInfo
		w.mu.Unlock()
		if onInfo != nil {
			onInfo(c, m)
			return nil
		}
		_ = c.write(c.message(api.Session{Request: m.Request, Session: sessionInfo(string(m.SessionID), w.end())}))
	case interface{ ID() string }:
		if m.ID() != "" {
			_ = c.write(c.message(api.Error{Request: protocol.Request{RequestID: m.ID()}, Error: *protocol.Errorf(protocol.CodeUnsupported, "the suite does not know this request")}))
		}
	}
	return nil
}

func sessionInfo(id string, end uint64) protocol.SessionInfo {
	at := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	return protocol.SessionInfo{
		ID: protocol.SessionID(id), Instance: instance, PID: 4712, State: protocol.StateRunning, Size: protocol.Size{Cols: 80, Rows: 24},
		Argv: []string{"cat"}, Cwd: "/", CreatedAt: at, LastIOAt: at, OutputOffset: end, Attachments: 1,
	}
}

func (w *world) spawned(c *conn, m *api.Spawn) {
	w.mu.Lock()
	w.tokens[m.Token] = true
	onSpawn := w.onSpawn
	w.mu.Unlock()
	if onSpawn != nil {
		onSpawn(c, m)
		return
	}
	w.answerSpawn(c, m)
}

func (w *world) answerSpawn(c *conn, m *api.Spawn) {
	s := sessionInfo(string(m.SessionID), 0)
	_ = c.write(c.message(api.Spawned{Request: m.Request, SessionID: m.SessionID, PID: s.PID, CreatedAt: s.CreatedAt, Session: s}))
}

// attachReceived checks an attach, and passes it to the scenario.
func (w *world) attachReceived(v *viewer) error {
	a := v.attach
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attachTimes = append(w.attachTimes, time.Now())
	var err error
	isAgain := w.writer != ""
	switch {
	case a.SessionID != sessionID:
		err = fmt.Errorf("attach names the session %q", a.SessionID)
	case a.Attachment >= 1<<31:
		err = fmt.Errorf("attach has the number %d, and it must be below 2147483648", a.Attachment)
	case a.Resume != nil && a.Resume.Instance != instance:
		err = fmt.Errorf("attach resumes at the instance %q, and the session has %q", a.Resume.Instance, instance)
	case a.Resume != nil && a.Resume.Offset > w.printed:
		err = fmt.Errorf("attach resumes at offset %d, and the session has printed %d bytes", a.Resume.Offset, w.printed)
	case isAgain && a.Resume == nil:
		err = errors.New("the client attaches again without resume, so output would be lost or repeated")
	case isAgain && a.Writer != w.writer:
		err = fmt.Errorf("the client attaches again as writer %q, and it was %q, so input may be lost or repeated", a.Writer, w.writer)
	case isAgain && a.Steal:
		err = errors.New("the client attaches again with steal, so it would replace a client that has attached in the meantime")
	case isAgain && w.attempt > 0 && a.Attempt > 0 && a.Attempt <= w.attempt:
		err = fmt.Errorf("attach has the attempt %d after %d, so a late one could end its successor", a.Attempt, w.attempt)
	}
	if err != nil {
		return err
	}
	w.attempt = max(w.attempt, a.Attempt)
	if a.Writer == "" {
		a.Writer = "2c26b46b68ffc68f"
	}
	if onAttach := w.onAttach; onAttach != nil {
		w.mu.Unlock()
		passes := onAttach(v)
		w.mu.Lock()
		if !passes {
			return nil
		}
	}
	w.viewers <- v
	return nil
}

// inputFrame checks a frame of input, and accepts it as a supervisor does, unless the scenario has a hook.
func (w *world) inputFrame(v *viewer, offset uint64, data []byte) {
	if len(data) > frame.MaxData {
		w.faultf("a frame of input has %d bytes of data, and a sender puts at most %d into one", len(data), frame.MaxData)
	}
	w.mu.Lock()
	w.frames++
	onInput := w.onInput
	w.mu.Unlock()
	if onInput != nil {
		onInput(v, offset, data)
		return
	}
	w.takeInput(v, offset, data, len(data))
}

// takeInput accepts at most n new bytes of a frame of input, and answers.
func (w *world) takeInput(v *viewer, offset uint64, data []byte, n int) {
	if have, isGap := w.take(v, offset, data, n); isGap {
		v.inputError(protocol.CodeInputGap, have)
	} else {
		v.accepted(have)
	}
}

// take accepts at most n new bytes of a frame of input. It returns how much input was accepted so far, and whether
// the client must learn that input before this frame is missing.
func (w *world) take(v *viewer, offset uint64, data []byte, n int) (have uint64, isGap bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have = uint64(len(w.input))
	if offset > have {
		isGap = !v.isInGap
		v.isInGap = true
		w.gaps++
		return have, isGap
	}
	v.isInGap = false
	old := min(have-offset, uint64(len(data)))
	if at := w.input[offset : offset+old]; !bytes.Equal(at, data[:old]) {
		w.faults = append(w.faults, fmt.Sprintf("the client sent input again from offset %d, and it has other bytes now: %q, not %q", offset, cut(data[:old]), cut(at)))
	}
	fresh := data[old:]
	w.input = append(w.input, fresh[:min(n, len(fresh))]...)
	return uint64(len(w.input)), false
}

// cut shortens bytes for a message.
func cut(b []byte) []byte { return b[:min(len(b), 48)] }

// end returns the offset of the end of the output.
func (w *world) end() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.printed
}

// prints tells that the session has printed everything before an offset.
func (w *world) prints(end uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.printed = max(w.printed, end)
}

// hook sets hooks of the world.
func (w *world) hook(set func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set()
}

// connCount returns the number of connections so far.
func (w *world) connCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns)
}

// connTimes returns when each connection was made.
func (w *world) connTimes() (all []time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		all = append(all, c.began)
	}
	return all
}

// attachedAt returns when each attach arrived.
func (w *world) attachedAt() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.attachTimes)
}

func (w *world) attachCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.attachTimes)
}

// send writes to the client. If the client has closed the connection, the following steps of the scenario find
// that out.
func (v *viewer) send(all ...[]byte) { _ = v.write(bytes.Join(all, nil)) }

// attachedMessage returns the answer to the attach, and notes that the writer is in use.
func (v *viewer) attachedMessage(replay protocol.Replay, offset, missed uint64, snapshotBytes int) []byte {
	return v.message(v.attachedInfo(replay, offset, missed, snapshotBytes))
}

func (v *viewer) attachedInfo(replay protocol.Replay, offset, missed uint64, snapshotBytes int) api.Attached {
	v.w.prints(offset)
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	v.w.writer = v.attach.Writer
	return api.Attached{Request: v.attach.Request, Attachment: v.number, AttachInfo: protocol.AttachInfo{
		Session: sessionInfo(sessionID, v.w.printed), Replay: replay, Offset: offset, BytesMissed: missed, SnapshotBytes: snapshotBytes,
		Writer: v.attach.Writer, InputOffset: uint64(len(v.w.input)),
	}}
}

// exact answers the attach: output from the offset on follows at which the client resumes.
func (v *viewer) exact() {
	if v.attach.Resume == nil {
		v.w.fatalf("attach has no resume")
	}
	v.send(v.attachedMessage(protocol.ReplayExact, v.attach.Resume.Offset, 0, 0))
}

// snapshot answers the attach with a snapshot for an offset, and sends its pieces.
func (v *viewer) snapshot(offset, missed uint64, pieces ...[]byte) {
	v.send(v.attachedMessage(protocol.ReplaySnapshot, offset, missed, length(pieces)))
	v.pieces(offset, pieces...)
}

// resync makes the viewer begin again with a snapshot.
func (v *viewer) resync(offset, missed uint64, screenOnly bool, pieces ...[]byte) {
	v.w.prints(offset)
	v.send(v.message(api.Resync{Attachment: v.number, Offset: offset, BytesMissed: missed, SnapshotBytes: length(pieces), ScreenOnly: screenOnly}))
	v.pieces(offset, pieces...)
}

func length(pieces [][]byte) (n int) {
	for _, p := range pieces {
		n += len(p)
	}
	return n
}

func (v *viewer) pieces(offset uint64, pieces ...[]byte) {
	for _, p := range pieces {
		v.send(v.data(frame.Snapshot, offset, p))
	}
}

// data returns the bytes of a data frame of this attachment.
func (v *viewer) data(kind frame.Kind, offset uint64, data []byte) []byte {
	return v.encode(kind, dataPayload(v.number, offset, data))
}

// outputFrame returns the bytes of a frame of output.
func (v *viewer) outputFrame(from, to uint64) []byte {
	v.w.prints(to)
	return v.data(frame.Output, from, text(from, to))
}

// output sends output between two offsets in frames of a size.
func (v *viewer) output(from, to uint64, size uint64) {
	for at := from; at < to; at += size {
		v.send(v.outputFrame(at, min(at+size, to)))
	}
}

func (v *viewer) accepted(offset uint64) {
	v.send(v.message(api.Accepted{Attachment: &v.number, Offset: offset}))
}

func (v *viewer) inputError(code protocol.Code, offset uint64) {
	e := protocol.Errorf(code, "input was not accepted")
	e.Offset, e.Retryable = &offset, true
	v.send(v.message(api.Error{Attachment: &v.number, Error: *e}))
}

// refuse answers the attach with an error.
func (v *viewer) refuse(e *protocol.Error) {
	v.send(v.message(api.Error{Request: v.attach.Request, Error: *e}))
}

// fail ends the attachment with an error.
func (v *viewer) fail(e *protocol.Error) {
	v.send(v.message(api.Error{Attachment: &v.number, Error: *e}))
}

func (v *viewer) exitMessage(code int) []byte {
	return v.message(api.PTYExited{
		SessionID: sessionID, PaneID: sessionID, ExitCode: code, LastLines: []string{}, Instance: instance, Attachment: &v.number,
		Reason: protocol.ReasonExited, Outcome: protocol.OutcomeNatural,
	})
}

// exit ends the session.
func (v *viewer) exit(code int) { v.send(v.exitMessage(code)) }

func (v *viewer) goaway(after time.Duration) {
	v.send(v.message(api.Goaway{RetryAfterMS: after.Milliseconds(), Reason: "the suite replaces its proxy"}))
}

// retryable returns a retryable error.
func retryable(code protocol.Code, after time.Duration) *protocol.Error {
	e := protocol.Errorf(code, "not now")
	e.Retryable, e.RetryAfterMS = true, after.Milliseconds()
	return e
}

// serviceRestart is the status with which a proxy closes a WebSocket that it cannot pass on.
const serviceRestart ws.StatusCode = 1012

// describe returns an event as text for a message.
func describe(e *Event) string {
	parts := []string{e.Event}
	if e.Of != "" {
		parts = append(parts, "of "+e.Of)
	}
	if e.Code != "" {
		parts = append(parts, e.Code)
	}
	if e.Data != nil {
		parts = append(parts, fmt.Sprintf("%q", cut(e.Data)))
	}
	return strings.Join(parts, " ")
}
