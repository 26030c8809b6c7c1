package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// A goHarness is the harness of the Go client.
type goHarness struct {
	out io.Writer

	mu    sync.Mutex // held while a line is written
	c     *client.Client
	tasks sync.WaitGroup
	ctx   context.Context
	end   context.CancelFunc

	attached chan *client.Attachment // holds the attachment, once there is one
	typed    <-chan struct{}         // closed when the last input has been written, so that input stays in order
}

func serveGo(in io.Reader, out io.Writer) {
	h := &goHarness{out: out}
	h.emit(Event{Event: "ready", Lacks: []string{WebSocket}})
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var c Command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		h.command(c)
	}
	h.close()
}

func (h *goHarness) emit(e Event) {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, _ = h.out.Write(append(b, '\n')) // fails if the suite has ended the harness
}

func (h *goHarness) failed(of, id string, err error) {
	h.emit(Event{Event: "failed", Of: of, SessionID: id, Code: goCode(err)})
}

// goCode returns the code of an error, or the kind of failure.
func goCode(err error) string {
	var e *protocol.Error
	switch {
	case errors.As(err, &e):
		return string(e.Code)
	case errors.Is(err, client.ErrConnect):
		return "connect"
	case errors.Is(err, client.ErrIO):
		return "io"
	case errors.Is(err, client.ErrDecode):
		return "decode"
	}
	return err.Error()
}

// a returns the attachment, or nil after the end of the client.
func (h *goHarness) a() *client.Attachment {
	select {
	case a := <-h.attached:
		h.attached <- a
		return a
	case <-h.ctx.Done():
		return nil
	}
}

func (h *goHarness) command(c Command) {
	switch c.Do {
	case "connect":
		h.attached = make(chan *client.Attachment, 1)
		h.ctx, h.end = context.WithCancel(context.Background())
		cl, err := client.Dial(h.ctx, client.Options{Name: "go harness", Dial: func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.Socket)
		}})
		if err != nil {
			h.failed("connect", "", err)
			return
		}
		h.c = cl
		h.emit(Event{Event: "connected"})
	case "spawn":
		h.tasks.Go(func() {
			s, err := h.c.Spawn(h.ctx, client.SpawnRequest{ID: protocol.SessionID(c.SessionID), SpawnSpec: protocol.SpawnSpec{Argv: c.Argv}})
			if err != nil {
				h.failed("spawn", c.SessionID, err)
				return
			}
			h.emit(Event{Event: "spawned", SessionID: string(s.SessionID), Instance: string(s.Session.Instance)})
		})
	case "info":
		h.tasks.Go(func() {
			s, err := h.c.SessionInfo(h.ctx, protocol.SessionID(c.SessionID))
			if err != nil {
				h.failed("info", c.SessionID, err)
				return
			}
			h.emit(Event{Event: "info", SessionID: c.SessionID, PID: s.PID})
		})
	case "attach":
		h.tasks.Go(func() { h.attach(c) })
	case "type":
		a, before, done := h.a(), h.typed, make(chan struct{})
		h.typed = done
		h.tasks.Go(func() { // Write waits while much input is not acknowledged, and commands must be obeyed meanwhile
			defer close(done)
			if before != nil {
				<-before
			}
			_, _ = a.Write(c.Data)
		})
	case "resize":
		_ = h.a().Resize(c.Cols, c.Rows)
	case "position":
		p := h.a().Position()
		h.emit(Event{Event: "position", Instance: string(p.Instance), Offset: &p.Offset, Writer: h.a().Writer()})
	case "detach":
		a, before := h.a(), h.typed
		h.tasks.Go(func() {
			if before != nil { // Detach refuses the writes that wait
				<-before
			}
			_ = a.Detach()
			h.emit(Event{Event: "detached"})
		})
	case "close":
		h.close()
		h.emit(Event{Event: "closed"})
	}
}

func (h *goHarness) attach(c Command) {
	o := client.AttachOptions{Cols: c.Cols, Rows: c.Rows, View: protocol.View(c.View), Writer: c.Writer}
	if c.Offset != nil {
		o.Resume = &protocol.Resume{Instance: protocol.Instance(c.Instance), Offset: *c.Offset}
	}
	a, err := h.c.Attach(h.ctx, protocol.SessionID(c.SessionID), o)
	if err != nil {
		h.failed("attach", "", err)
		return
	}
	h.attached <- a
	h.emit(Event{Event: "attached"})
	if missed := a.Missed(); a.Info().BytesMissed > 0 {
		h.emit(Event{Event: "reset", Missed: missed})
	}
	for {
		m, err := a.Receive(-1)
		if err != nil {
			return
		}
		switch m.Kind {
		case client.Output:
			h.emit(Event{Event: "output", Offset: &m.Offset, Data: m.Data})
		case client.Snapshot:
			h.emit(Event{Event: "snapshot", Data: m.Data})
		case client.View:
			h.emit(Event{Event: "view", Data: m.Data})
		case client.Missed:
			h.emit(Event{Event: "reset", Missed: m.Missed, ScreenOnly: m.ScreenOnly})
		case client.Resized:
			h.emit(Event{Event: "resized", Cols: m.Size.Cols, Rows: m.Size.Rows})
		case client.Exited:
			h.emit(Event{Event: "exit", ExitCode: m.Exit.ExitCode})
		case client.Stolen:
			h.emit(Event{Event: "stolen"})
		case client.Failed:
			h.failed("attachment", "", m.Err)
		}
	}
}

func (h *goHarness) close() {
	if h.c == nil {
		return
	}
	h.end()
	select {
	case a := <-h.attached:
		_ = a.Close()
	default:
	}
	_ = h.c.Close()
	h.tasks.Wait()
	h.c = nil
}

func TestGoClient(t *testing.T) {
	t.Parallel()
	passes(t, Options{Start: inProcess(serveGo), Patience: patience})
}
