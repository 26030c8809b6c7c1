package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gobwas/ws"

	"holdfast/protocol/frame"
)

// A plain is a client of one connection, with its harness. It is written from SPEC.md alone, and makes at
// most one mistake, which its name selects; mistakes has the list.
type plain struct {
	mistake string
	out     io.Writer
	net     func(ctx context.Context, network, address string) (net.Conn, error)

	mu       lock
	ctx      context.Context
	end      context.CancelFunc
	address  Command
	link     *plainLink
	ids      int
	requests map[string]*plainRequest
	order    []string
	at       *plainAttachment
	loops    sync.WaitGroup
}

type plainRequest struct {
	command Command
	message map[string]any
}

type plainAttachment struct {
	command      Command
	number       uint32
	instance     string
	offset       uint64 // output before it was received, or told to be missed
	complete     uint64 // the offset before the snapshots that are incomplete
	stands       uint64 // offset of a snapshot under way
	left         int
	isView       bool
	isAttached   bool // by this connection
	wasAttached  bool
	isDetaching  bool
	writer       string
	attempt      int
	base, sent   uint64
	pending      []byte
	cols, rows   int
	needsResize  bool
	isDetachSent bool
	isFull       bool      // no input is sent until the next repetition
	isPending    bool      // an attach has no answer
	attachedAt   time.Time // when the first attach was answered
}

// A plainError is an error that the proxy has answered.
type plainError struct {
	code      string
	retryable bool
	after     time.Duration
	exit      map[string]any
}

func (e *plainError) Error() string { return e.code }

// A lock is a mutex, for which a goroutine waits as synctest requires: then the time of the fake clock passes.
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

// plainStart returns a Start for the client with a mistake, or with none, which connects by the function connect.
func plainStart(mistake string, connect func(ctx context.Context, network, address string) (net.Conn, error)) Start {
	return inProcess(func(in io.Reader, out io.Writer) {
		p := &plain{mistake: mistake, out: out, net: connect, mu: make(lock, 1)}
		p.serve(in)
	})
}

// inProcess returns a Start for a harness that is a function of this process.
func inProcess(serve func(in io.Reader, out io.Writer)) Start {
	return func(context.Context) (io.WriteCloser, io.Reader, func() string, error) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			serve(inR, outW)
			_ = outW.Close()
		}()
		return inW, outR, func() string { <-done; return "" }, nil
	}
}

func (p *plain) is(mistake string) bool { return p.mistake == mistake }

func (p *plain) emit(e Event) {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	_, _ = p.out.Write(append(b, '\n')) // fails if the suite has ended the harness
}

func (p *plain) serve(in io.Reader) {
	p.emit(Event{Event: "ready"})
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var c Command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		p.mu.Lock()
		p.command(c)
		p.mu.Unlock()
	}
	p.mu.Lock()
	p.close()
	p.mu.Unlock()
}

func (p *plain) command(c Command) {
	if p.at == nil && (c.Do == "position" || c.Do == "detach") { // the attach has failed
		p.emit(Event{Event: "failed", Of: c.Do, Code: "lost"})
		return
	}
	switch c.Do {
	case "connect":
		p.ctx, p.end = context.WithCancel(context.Background())
		p.address, p.at, p.requests, p.order = c, nil, make(map[string]*plainRequest), nil
		if err := p.connect(); err != nil {
			p.emit(Event{Event: "failed", Of: "connect", Code: codeOf(err)})
			return
		}
		p.emit(Event{Event: "connected"})
	case "spawn":
		p.request(c, map[string]any{"type": "spawn", "session_id": c.SessionID, "argv": c.Argv, "token": p.token()})
	case "info":
		p.request(c, map[string]any{"type": "info", "session_id": c.SessionID})
	case "attach":
		p.attach(c)
	case "type":
		if p.at != nil && !(p.is("input-away-lost") && !p.at.isAttached) {
			p.at.pending = append(p.at.pending, c.Data...)
			p.flush()
		}
	case "resize":
		if p.at != nil {
			p.at.cols, p.at.rows, p.at.needsResize = c.Cols, c.Rows, !p.is("resize-away-lost") || p.at.isAttached
			p.flush()
		}
	case "position":
		stored := p.at.offset
		if p.at.left > 0 && !p.is("stores-half-a-snapshot") {
			stored = p.at.complete
		}
		p.emit(Event{Event: "position", Instance: p.at.instance, Offset: &stored, Writer: p.at.writer})
	case "detach":
		p.at.isDetaching = true
		if p.is("detached-at-once") {
			p.emit(Event{Event: "detached"})
		}
		p.sendDetach()
	case "close":
		p.close()
		p.emit(Event{Event: "closed"})
	}
}

func (p *plain) close() {
	if p.end != nil {
		p.end()
	}
	if p.link != nil {
		_ = p.link.nc.Close()
	}
	p.at = nil
	p.mu.Unlock()
	p.loops.Wait()
	p.mu.Lock()
	p.link = nil
}

func (p *plain) token() string {
	p.ids++
	return fmt.Sprintf("token-%p-%d", p, p.ids)
}

func (p *plain) request(c Command, m map[string]any) {
	p.ids++
	id := fmt.Sprint(p.ids)
	m["request_id"] = id
	p.requests[id] = &plainRequest{c, m}
	p.order = append(p.order, id)
	if p.link == nil {
		if err := p.connect(); err != nil {
			p.emit(Event{Event: "failed", Of: c.Do, Code: codeOf(err), SessionID: c.SessionID})
		}
		return // connect has sent it
	}
	p.link.send(m)
}

func (p *plain) attach(c Command) {
	a := &plainAttachment{command: c, number: 1, writer: p.token(), cols: c.Cols, rows: c.Rows, instance: c.Instance}
	if c.Offset != nil {
		a.offset = *c.Offset
	}
	if c.Writer != "" {
		a.writer = c.Writer
	}
	p.at = a
	if p.link == nil {
		if err := p.connect(); err != nil {
			p.at = nil
			p.emit(Event{Event: "failed", Of: "attach", Code: codeOf(err)})
		}
		return // connect has sent it
	}
	p.sendAttach()
}

func codeOf(err error) string {
	var e *plainError
	if errors.As(err, &e) {
		return e.code
	}
	return "lost"
}

// connect makes a connection, and starts the loop that replaces it.
func (p *plain) connect() error {
	link, err := p.dial()
	for wait, until := 5*time.Millisecond, time.Now().Add(2*time.Second); err != nil && p.mayRetry(err) && time.Now().Before(until); wait *= 2 {
		p.mu.Unlock()
		if p.is("no-backoff") {
			wait = time.Millisecond
		}
		time.Sleep(wait)
		p.mu.Lock()
		link, err = p.dial()
	}
	if err != nil {
		return err
	}
	p.begin(link)
	p.loops.Add(1)
	go func() {
		defer p.loops.Done()
		p.loop(link)
	}()
	return nil
}

func (p *plain) mayRetry(err error) bool {
	var e *plainError
	if !errors.As(err, &e) {
		return true
	}
	return e.retryable || p.is("retries-refusals")
}

// begin uses a new connection.
func (p *plain) begin(link *plainLink) {
	p.link = link
	for _, id := range p.order {
		if r := p.requests[id]; r != nil {
			if r.command.Do == "spawn" && p.is("new-token") {
				r.message["token"] = p.token()
			}
			link.send(r.message)
		}
	}
	if p.at != nil {
		p.sendAttach()
	}
}

func (p *plain) sendAttach() {
	a := p.at
	a.attempt++
	a.isAttached, a.isPending = false, true
	m := map[string]any{
		"type": "attach", "request_id": "a", "attachment": a.number, "session_id": a.command.SessionID, "writer": a.writer, "attempt": a.attempt,
	}
	if p.is("same-attempt") {
		m["attempt"] = 1
	}
	if a.cols > 0 {
		m["cols"], m["rows"] = a.cols, a.rows
	}
	if a.command.View != "" {
		m["view"] = a.command.View
	}
	if a.instance != "" && !(p.is("ignores-stored-position") && !a.wasAttached) && !(p.is("resumes-without-position") && a.wasAttached) {
		resume := map[string]any{"instance": a.instance, "offset": a.offset}
		if p.is("offset-32-bit") {
			resume["offset"] = uint32(a.offset)
		}
		if p.is("offset-float") {
			resume["offset"] = uint64(float32(a.offset))
		}
		if a.wasAttached {
			switch {
			case p.is("resumes-at-0"):
				resume["offset"] = 0
			case p.is("half-snapshot-counts") && a.left > 0:
				resume["offset"] = a.stands
			case p.is("resumes-one-late"):
				resume["offset"] = a.offset + 1
			}
		}
		m["resume"] = resume
		m["snapshot"] = (a.left > 0 && !p.is("half-snapshot-counts") && !p.is("no-new-snapshot")) || a.isView && !p.is("view-resumes-exactly")
		if p.is("always-snapshot") {
			m["snapshot"] = true
		}
	}
	if a.wasAttached {
		if p.is("new-writer") {
			m["writer"] = p.token()
		}
		if p.is("steals-back") {
			m["steal"] = true
		}
	}
	p.link.send(m)
}

// loop reads a connection, and makes the next one, until there is no attachment and no request.
func (p *plain) loop(link *plainLink) {
	const least, most = 5 * time.Millisecond, 200 * time.Millisecond
	wait := least
	for {
		before := p.progress()
		err := p.read(link)
		_ = link.nc.Close()
		if p.progress() != before || p.is("attached-is-progress") {
			wait = least
		}
		for {
			p.mu.Lock()
			goesOn := p.lost(err)
			p.mu.Unlock()
			if !goesOn {
				return
			}
			pause := wait
			var e *plainError
			if errors.As(err, &e) && !p.is("ignores-retry-after") {
				pause = max(pause, e.after)
			}
			if p.is("no-backoff") {
				pause = 0
			}
			if p.is("constant-backoff") {
				pause = least
			}
			if wait = min(2*wait, most); p.is("no-limit-of-backoff") {
				wait = pause * 40
			}
			select {
			case <-time.After(pause):
			case <-p.ctx.Done():
				return
			}
			p.mu.Lock()
			link, err = p.dial()
			if err == nil {
				p.begin(link)
			}
			p.mu.Unlock()
			if err == nil {
				break
			}
			if p.is("gives-up-at-hello") {
				err = &plainError{code: "lost"}
			}
		}
	}
}

func (p *plain) progress() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		return 0
	}
	return p.at.offset + p.at.base
}

// lost deals with the end of a connection, and reports whether another one is needed.
func (p *plain) lost(err error) bool {
	p.link = nil
	if p.ctx.Err() != nil {
		return false
	}
	a := p.at
	if a != nil {
		a.isAttached = false
		if p.is("lost-input") {
			a.pending, a.base = nil, a.base+uint64(len(a.pending))
		}
	}
	if p.is("gives-up-at-attach") && a != nil && a.wasAttached && a.isPending {
		err = &plainError{code: "lost"}
	}
	if p.is("exit-when-lost") && a != nil {
		p.ends(Event{Event: "exit"})
	}
	var e *plainError
	if errors.As(err, &e) && !p.mayRetry(e) {
		if p.at != nil && p.at.wasAttached {
			p.ends(Event{Event: "failed", Of: "attachment", Code: e.code})
		} else if p.at != nil {
			p.at = nil
			p.emit(Event{Event: "failed", Of: "attach", Code: e.code})
		}
	}
	return p.at != nil || len(p.requests) > 0 || p.is("connects-for-nothing")
}

// ends ends the attachment.
func (p *plain) ends(e Event) {
	p.at = nil
	p.emit(e)
}

func (p *plain) read(link *plainLink) error {
	for {
		kind, payload, err := link.next(p)
		if err != nil {
			if p.is("partial-frame-counts") && len(payload) > frame.DataHeadLen && kind == frame.Output {
				p.mu.Lock()
				_ = p.data(kind, payload)
				p.mu.Unlock()
			}
			return err
		}
		p.mu.Lock()
		if p.link == link {
			err = p.frame(kind, payload)
		}
		p.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (p *plain) frame(kind frame.Kind, payload []byte) error {
	switch kind {
	case frame.Control:
		return p.message(payload)
	case frame.Output, frame.Snapshot, frame.View:
		return p.data(kind, payload)
	}
	if p.is("fails-at-unknown-kind") {
		return fmt.Errorf("frame of kind %d", kind)
	}
	return nil
}

func (p *plain) data(kind frame.Kind, payload []byte) error {
	number, offset, data, err := frame.ParseData(payload)
	if err != nil {
		return err
	}
	a := p.at
	if a == nil || !a.isAttached || number != a.number && !p.is("any-number") {
		return nil
	}
	if p.is("listens-late") && !a.attachedAt.IsZero() && time.Since(a.attachedAt) < 20*time.Millisecond {
		return nil
	}
	if p.is("decodes-frames") {
		data = []byte(strings.ToValidUTF8(string(data), "\uFFFD"))
	}
	if p.is("decodes-frames-twice") && kind == frame.Output {
		data = bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))
	}
	switch {
	case kind == frame.Snapshot:
		a.left -= len(data)
		if a.left <= 0 {
			a.left, a.offset = 0, a.stands
		}
		if p.is("snapshot-counts-as-output") {
			a.offset += uint64(len(data))
		}
		p.emit(Event{Event: "snapshot", Data: data})
	case kind == frame.View && a.command.View != "own" && !p.is("view-counts-as-output"):
	case kind == frame.View && !p.is("view-counts-as-output"):
		a.offset, a.isView = offset, true
		p.emit(Event{Event: "view", Data: data})
	default:
		if a.isDetaching && !p.is("detached-at-once") {
			return nil
		}
		a.offset = offset + uint64(len(data))
		if p.is("offset-of-frame") {
			a.offset = offset
		}
		if p.is("exit-overtakes-output") {
			time.AfterFunc(10*time.Millisecond, func() { p.emit(Event{Event: "output", Offset: &offset, Data: data}) })
			return nil
		}
		p.emit(Event{Event: "output", Offset: &offset, Data: data})
		if p.is("delivers-twice") && a.attempt == 2 {
			p.emit(Event{Event: "output", Offset: &offset, Data: data})
		}
	}
	return nil
}

type plainMessage struct {
	Type          string         `json:"type"`
	RequestID     string         `json:"request_id"`
	Attachment    *uint32        `json:"attachment"`
	Code          string         `json:"code"`
	Message       string         `json:"message"`
	Retryable     bool           `json:"retryable"`
	RetryAfterMS  int            `json:"retry_after_ms"`
	Exit          map[string]any `json:"exit"`
	Offset        uint64         `json:"offset"`
	Replay        string         `json:"replay"`
	BytesMissed   uint64         `json:"bytes_missed"`
	SnapshotBytes int            `json:"snapshot_bytes"`
	InputOffset   uint64         `json:"input_offset"`
	View          bool           `json:"view"`
	ScreenOnly    bool           `json:"screen_only"`
	ExitCode      int            `json:"exit_code"`
	Cols          int            `json:"cols"`
	Rows          int            `json:"rows"`
	SessionID     string         `json:"session_id"`
	Session       struct {
		ID       string `json:"id"`
		Instance string `json:"instance"`
		PID      int    `json:"pid"`
	} `json:"session"`
}

func (p *plain) message(payload []byte) error {
	var m plainMessage
	if err := json.Unmarshal(payload, &m); err != nil {
		return err
	}
	if p.is("strict-fields") && bytes.Contains(payload, []byte(`"news"`)) {
		return errors.New("unknown field")
	}
	if r := p.requestOf(m); r != nil {
		return p.answered(r, m)
	}
	a := p.at
	switch m.Type {
	case "goaway":
		if p.is("goaway-is-an-end") && a != nil {
			p.ends(Event{Event: "failed", Of: "attachment", Code: "goaway"})
			return nil
		}
		after := time.Duration(m.RetryAfterMS) * time.Millisecond
		if p.is("ignores-goaway-time") {
			after = 0
		}
		return &plainError{code: "goaway", retryable: true, after: after}
	case "attached", "error", "accepted", "resync", "resized", "stolen", "pty_exited", "detached", "sessions", "session", "spawned", "event":
	default:
		if p.is("fails-at-unknown-message") {
			return fmt.Errorf("message %s", m.Type)
		}
		return nil
	}
	if a == nil {
		return nil
	}
	isOurs := m.Attachment != nil && *m.Attachment == a.number || p.is("any-number")
	if m.Type == "error" && (isOurs || m.RequestID == "a") {
		return p.failed(m)
	}
	if m.Type == "attached" && isOurs {
		p.attached(m)
		return nil
	}
	if !isOurs || !a.isAttached && m.Type != "detached" {
		return nil
	}
	switch m.Type {
	case "accepted":
		p.accept(m.Offset)
	case "resync":
		if p.is("ignores-resync") {
			return nil
		}
		p.anew(m)
		a.isView = m.View
	case "resized":
		if !p.is("ignores-resized") {
			p.emit(Event{Event: "resized", Cols: m.Cols, Rows: m.Rows})
		}
	case "stolen":
		if !p.is("takes-back") {
			p.ends(Event{Event: "stolen"})
		}
	case "pty_exited":
		if p.is("exit-twice") {
			p.emit(Event{Event: "exit", ExitCode: m.ExitCode})
		}
		if p.is("exit-code-lost") {
			m.ExitCode = 0
		}
		p.ends(Event{Event: "exit", ExitCode: m.ExitCode})
		if p.is("attaches-after-exit") {
			p.at = a
		}
	case "detached":
		if p.is("attaches-after-detach") {
			p.emit(Event{Event: "detached"})
			a.isDetaching = false
			return io.EOF
		}
		if !p.is("detached-at-once") {
			p.ends(Event{Event: "detached"})
		}
	}
	return nil
}

// requestOf returns the request that a message answers.
func (p *plain) requestOf(m plainMessage) *plainRequest {
	id := m.RequestID
	if p.is("answers-in-order") && id != "" && id != "a" && len(p.order) > 0 {
		id = p.order[0]
	}
	r := p.requests[id]
	if r != nil {
		delete(p.requests, id)
		for i := range p.order {
			if p.order[i] == id {
				p.order = append(p.order[:i:i], p.order[i+1:]...)
				break
			}
		}
	}
	return r
}

func (p *plain) answered(r *plainRequest, m plainMessage) error {
	if m.Type == "error" {
		code := m.Code
		if p.is("loses-codes") {
			code = "error"
		}
		if p.is("repeats-spawn-at-once") && m.Retryable {
			p.request(r.command, r.message)
			return nil
		}
		p.emit(Event{Event: "failed", Of: r.command.Do, Code: code, SessionID: r.command.SessionID})
		return nil
	}
	if p.is("loses-instance") {
		m.Session.Instance = ""
	}
	e := Event{Event: m.Type, SessionID: r.command.SessionID, Instance: m.Session.Instance, PID: m.Session.PID}
	if m.Type == "session" {
		e.Event = "info"
	}
	p.emit(e)
	return nil
}

// failed deals with an error of the attachment.
func (p *plain) failed(m plainMessage) error {
	a := p.at
	switch m.Code {
	case "input_gap":
		if !p.is("ignores-input-gap") {
			p.inputAgain(m.Offset)
			p.flush()
		}
		return nil
	case "input_full":
		if p.is("ignores-input-full") {
			return nil
		}
		p.inputAgain(m.Offset)
		if p.is("input-full-at-once") {
			p.flush()
			return nil
		}
		if a.isFull { // the answers to the other parts of the input must not lead to further repetitions
			return nil
		}
		a.isFull = true
		time.AfterFunc(20*time.Millisecond, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			a.isFull = false
			if p.at == a {
				p.flush()
			}
		})
		return nil
	case "line_too_long":
		if p.is("line-too-long-is-an-end") {
			p.ends(Event{Event: "failed", Of: "attachment", Code: m.Code})
		}
		if p.is("line-too-long-again") {
			a.pending = append(a.pending, keys(0, 100)...)
			p.flush()
		}
		return nil
	}
	e := &plainError{code: m.Code, retryable: m.Retryable, exit: m.Exit, after: time.Duration(m.RetryAfterMS) * time.Millisecond}
	switch {
	case p.is("exit-when-unreachable") && m.Code == "supervisor_unreachable" && a.wasAttached,
		p.is("exit-when-not-found") && m.Code == "session_not_found":
		p.ends(Event{Event: "exit"})
		return nil
	case p.is("attaches-to-other-instance") && m.Code == "instance_mismatch":
		a.instance, a.offset, a.wasAttached = "", 0, false
		p.sendAttach()
		return nil
	case p.is("fails-at-unknown-code") && m.Code == "newer_code", p.is("retries-unreachable-only") && m.Code != "supervisor_unreachable":
		e.retryable = false
	case p.is("absent-means-retryable") && m.Code == "session_not_found":
		e.retryable = true
	}
	if m.Code == "session_exited" && m.Exit != nil && a.wasAttached && !p.is("exited-is-an-error") {
		code, _ := m.Exit["exit_code"].(float64)
		p.ends(Event{Event: "exit", ExitCode: int(code)})
		return nil
	}
	if p.is("ignores-attachment-errors") && a.isAttached {
		return nil
	}
	if !a.wasAttached && (!m.Retryable || p.is("loses-codes")) {
		p.at = nil
		if p.is("loses-codes") {
			m.Code = "error"
		}
		p.emit(Event{Event: "failed", Of: "attach", Code: m.Code})
		return nil
	}
	return e
}

func (p *plain) attached(m plainMessage) {
	a := p.at
	first := !a.wasAttached
	a.isAttached, a.wasAttached, a.isPending, a.isView = true, true, false, m.View
	a.instance = m.Session.Instance
	if first {
		a.base, a.sent = m.InputOffset, m.InputOffset
		a.attachedAt = time.Now()
		p.emit(Event{Event: "attached"})
	} else {
		p.inputAgain(m.InputOffset)
	}
	if m.Replay == "snapshot" || p.is("always-resets") && !first {
		p.anew(m)
	} else {
		a.left, a.offset = 0, m.Offset
	}
	a.needsResize = a.needsResize || !first && a.cols > 0 && !p.is("resize-away-lost")
	if a.isDetaching {
		p.sendDetach()
	}
	p.flush()
}

// anew begins a snapshot.
func (p *plain) anew(m plainMessage) {
	a := p.at
	if a.left == 0 {
		a.complete = a.offset
	}
	missed := m.BytesMissed
	if p.is("ignores-missed") {
		missed = 0
	}
	if !p.is("no-reset") {
		p.emit(Event{Event: "reset", Missed: missed, ScreenOnly: m.ScreenOnly && !p.is("ignores-screen-only")})
	}
	a.stands, a.left = m.Offset, m.SnapshotBytes
	a.offset += m.BytesMissed
	if p.is("missed-counts-at-the-end") {
		a.offset -= m.BytesMissed
	}
	if a.left == 0 && !p.is("waits-for-empty-snapshot") {
		a.offset = a.stands
	}
	if p.is("waits-for-empty-snapshot") && a.left == 0 {
		a.left = 1
	}
	if p.is("snapshot-counts-at-once") {
		a.offset, a.left = a.stands, 0
	}
}

func (p *plain) accept(offset uint64) {
	a := p.at
	if p.is("accepted-is-a-count") {
		offset += a.base
	}
	if offset <= a.base {
		if p.is("accepted-goes-back") && offset < a.base {
			a.sent -= a.base - offset
			a.base = offset
		}
		return
	}
	n := min(offset-a.base, uint64(len(a.pending)))
	a.pending = a.pending[n:]
	a.base += n
	a.sent = max(a.sent, a.base)
}

// inputAgain continues the input at an offset that the session has told.
func (p *plain) inputAgain(offset uint64) {
	a := p.at
	switch {
	case p.is("input-renumbered"):
		a.base, a.sent = offset, offset
	case p.is("input-not-again"):
		p.accept(offset)
	case offset < a.base && !p.is("writer-is-never-forgotten"):
		a.base, a.sent = offset, offset
	default:
		p.accept(offset)
		a.sent = a.base
	}
}

func (p *plain) flush() {
	a := p.at
	if a == nil || !a.isAttached || a.isDetachSent {
		return
	}
	if a.needsResize {
		p.link.send(map[string]any{"type": "resize", "attachment": a.number, "cols": a.cols, "rows": a.rows})
		a.needsResize = false
	}
	for !a.isFull || a.isDetaching {
		part := a.pending[a.sent-a.base:]
		if len(part) == 0 {
			return
		}
		if !p.is("large-input-frames") {
			part = part[:min(len(part), frame.MaxData)]
		}
		if p.is("input-skips-a-byte") && a.sent > 0 {
			part = part[1:]
			a.sent++
		}
		p.link.frame(frame.Input, dataPayload(a.number, a.sent, part))
		a.sent += uint64(len(part))
		if p.is("input-is-sent-and-forgotten") {
			a.pending, a.base = a.pending[a.sent-a.base:], a.sent
		}
	}
}

func (p *plain) sendDetach() {
	a := p.at
	if a == nil || !a.isAttached {
		return
	}
	p.flush()
	a.isDetachSent = true
	p.link.send(map[string]any{"type": "detach", "attachment": a.number})
}

// A plainLink is a connection of the client.
type plainLink struct {
	nc    net.Conn
	isWeb bool
	wmu   sync.Mutex
}

// dial connects and sends the hello.
func (p *plain) dial() (*plainLink, error) {
	l := &plainLink{isWeb: p.address.URL != ""}
	var err error
	if l.isWeb {
		d := ws.Dialer{Protocols: []string{"holdfast.v1"}, NetDial: p.net}
		l.nc, _, _, err = d.Dial(p.ctx, p.address.URL)
	} else {
		l.nc, err = p.net(p.ctx, "unix", p.address.Socket)
	}
	if err != nil {
		return nil, err
	}
	hello := map[string]any{"type": "hello", "protocol": map[string]any{"min": 1, "max": 1}, "client": "plain"}
	if p.is("no-hello") {
		hello["client"] = ""
	}
	l.send(hello)
	for {
		kind, payload, err := l.next(p)
		if err != nil {
			_ = l.nc.Close()
			return nil, err
		}
		if kind != frame.Control {
			continue
		}
		var m plainMessage
		if err := json.Unmarshal(payload, &m); err != nil {
			return nil, err
		}
		if p.is("strict-fields") && bytes.Contains(payload, []byte(`"news"`)) {
			return nil, errors.Join(errors.New("unknown field"), l.nc.Close())
		}
		e := &plainError{code: m.Code, retryable: m.Retryable, after: time.Duration(m.RetryAfterMS) * time.Millisecond}
		switch m.Type {
		case "welcome":
			return l, nil
		case "error":
			if p.is("hello-errors-are-final") {
				e.retryable = false
			}
			return nil, errors.Join(e, l.nc.Close())
		case "goaway":
			e.code, e.retryable = "goaway", !p.is("goaway-at-hello-is-an-end")
			return nil, errors.Join(e, l.nc.Close())
		}
		if p.is("fails-at-unknown-message") {
			return nil, errors.Join(fmt.Errorf("message %s", m.Type), l.nc.Close())
		}
	}
}

func (l *plainLink) send(m map[string]any) {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	l.frame(frame.Control, b)
}

func (l *plainLink) frame(kind frame.Kind, payload []byte) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	raw := frame.Append(nil, kind, payload)
	if l.isWeb {
		f := ws.NewBinaryFrame(raw[4:])
		if kind == frame.Control {
			f = ws.NewTextFrame(raw[5:])
		}
		raw = compile(ws.MaskFrameInPlace(f))
	}
	_, _ = l.nc.Write(raw) // the reader finds out that the connection is lost
}

// next reads a frame. With an error it returns the part of the frame that has arrived.
func (l *plainLink) next(p *plain) (frame.Kind, []byte, error) {
	if p.is("impatient") {
		_ = l.nc.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	}
	if l.isWeb {
		return l.nextMessage(p)
	}
	var head [5]byte
	if _, err := io.ReadFull(l.nc, head[:]); err != nil {
		return 0, nil, p.ignoring(l, err)
	}
	size := binary.BigEndian.Uint32(head[:4])
	if size < 1 || size > frame.Max || size > frame.MaxHello && p.is("small-frames-only") {
		return 0, nil, fmt.Errorf("frame of %d bytes", size)
	}
	payload := make([]byte, size-1)
	n, err := p.readFull(l.nc, payload)
	return frame.Kind(head[4]), payload[:n], err
}

// ignoring returns the error of a read, after a client that ignores the end of the stream has waited.
func (p *plain) ignoring(l *plainLink, err error) error {
	if p.is("ignores-half-closed") && errors.Is(err, io.EOF) {
		for { // until a write fails
			time.Sleep(20 * time.Millisecond)
			l.wmu.Lock()
			_, failed := l.nc.Write(nil)
			l.wmu.Unlock()
			if failed != nil || p.ctx.Err() != nil {
				break
			}
		}
	}
	return err
}

// readFull reads a payload. A client with the mistake takes the first piece of a payload for all of it.
func (p *plain) readFull(r io.Reader, b []byte) (int, error) {
	if p.is("one-read-is-one-frame") && len(b) > 0 {
		n, err := r.Read(b)
		return n, err
	}
	return io.ReadFull(r, b)
}

func (l *plainLink) nextMessage(p *plain) (frame.Kind, []byte, error) {
	var message []byte
	var op ws.OpCode
	for {
		f, err := readFrame(l.nc, frame.Max-len(message))
		if err != nil {
			return 0, nil, p.ignoring(l, err)
		}
		switch f.Header.OpCode {
		case ws.OpPing, ws.OpPong:
			continue
		case ws.OpClose:
			if status, _ := ws.ParseCloseFrameData(f.Payload); p.is("close-is-an-end") && status == serviceRestart {
				return 0, nil, &plainError{code: "closed"}
			}
			return 0, nil, io.EOF
		case ws.OpText, ws.OpBinary:
			op = f.Header.OpCode
		}
		message = append(message, f.Payload...)
		if !f.Header.Fin && !p.is("no-fragments") {
			continue
		}
		if len(message) > frame.MaxHello && p.is("small-frames-only") {
			return 0, nil, errors.New("large message")
		}
		if op == ws.OpText {
			return frame.Control, message, nil
		}
		if len(message) == 0 {
			return 0, nil, errors.New("empty message")
		}
		return frame.Kind(message[0]), message[1:], nil
	}
}
