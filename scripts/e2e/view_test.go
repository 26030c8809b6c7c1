package e2e

import (
	"bytes"
	"cmp"
	"context"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// startProxy starts a proxy. It is the value of client.Options.Start.
func (w *world) startProxy(context.Context) error {
	_, err := w.Launch(w.Command("proxy", "serve", "--background"))
	return err
}

// dial returns a client of the world's proxy. Unless the options have another Start, a missing proxy is
// started.
func (w *world) dial(o client.Options) *client.Client {
	w.T.Helper()
	o.Dir, o.Name = w.Dir, cmp.Or(o.Name, "e2e")
	if o.Start == nil {
		o.Start = w.startProxy
	}
	return w.connect(o)
}

// connect is like dial, but does not start a proxy unless the options say so.
func (w *world) connect(o client.Options) *client.Client {
	w.T.Helper()
	o.Dir = w.Dir
	c, err := client.Dial(w.ctx(), o)
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { _ = c.Close() })
	return c
}

// ctx returns a context that ends with the test, at the latest after limit.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.T.Context(), limit)
	w.T.Cleanup(cancel)
	return ctx
}

// none is the early-exit time 0: Spawn returns without waiting for an early exit.
var none = new(time.Duration)

// spawn starts a session and does not wait for an early exit.
func (w *world) spawn(c *client.Client, id string, spec protocol.SpawnSpec) *client.Spawned {
	w.T.Helper()
	s, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: protocol.SessionID(id), SpawnSpec: spec, EarlyExit: none})
	if err != nil {
		w.T.Fatalf("spawn %s: %v", id, err)
	}
	w.Adopt(lookup(s.PID))
	return s
}

// shell returns a session that runs a script of sh.
func shell(script string) protocol.SpawnSpec {
	return protocol.SpawnSpec{Argv: []string{"/bin/sh", "-c", script}}
}

// burstsOf returns a session that prints a line without end: first so much that the queues of a viewer that
// does not read are full, and then 10,000 lines every 0.3 s. A program without pauses would occupy a
// processor that the rest of the test needs.
func burstsOf(line string) protocol.SpawnSpec {
	return shell("stty -opost; yes " + line + " | head -n 200000; while :; do yes " + line + " | head -n 10000; sleep 0.3; done")
}

// echoing is a session that repeats its input and prints nothing else after "ready".
var echoing = shell(echoScript)

const echoScript = "stty raw -echo; echo ready; exec cat"

// attach attaches at the start of the ring, so that the view receives the output byte by byte, unless o has
// an offset or a size.
func (w *world) attach(c *client.Client, id string, o client.AttachOptions) *view {
	w.T.Helper()
	if o.Resume == nil && o.Cols == 0 {
		info, err := c.SessionInfo(w.ctx(), protocol.SessionID(id))
		if err != nil {
			w.T.Fatalf("attach to %s: %v", id, err)
		}
		o.Resume = &protocol.Resume{Instance: info.Instance, Offset: info.RingStart}
	}
	return w.attachScreen(c, id, o)
}

// attachScreen attaches with the options o.
func (w *world) attachScreen(c *client.Client, id string, o client.AttachOptions) *view {
	w.T.Helper()
	a, err := c.Attach(w.ctx(), protocol.SessionID(id), o)
	if err != nil {
		w.T.Fatalf("attach to %s: %v", id, err)
	}
	w.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.Flush(ctx) // Detach waits for the flush too, and longer
		_ = a.Detach()
	})
	return &view{t: w.T, Attachment: a}
}

// echo starts a session that echoes its input, and waits until it is ready.
func (w *world) echo(c *client.Client, id string) *view {
	w.T.Helper()
	w.spawn(c, id, echoing)
	v := w.attach(c, id, client.AttachOptions{})
	v.until("ready\n")
	return v
}

// A view reads the messages of an attachment step by step.
type view struct {
	t testing.TB
	*client.Attachment
	buf []byte
	end *client.Message // the message that ended the attachment, or nil
}

// next receives one message. It returns false if the message ends the attachment.
func (v *view) next() bool {
	v.t.Helper()
	m, err := v.Receive(limit)
	if err != nil {
		v.t.Fatalf("after %q: %v", last(string(v.buf), 200), err)
	}
	v.buf = append(v.buf, m.Data...)
	if m.Kind == client.Exited || m.Kind == client.Stolen || m.Kind == client.Failed {
		v.end = m
	}
	return v.end == nil
}

// until receives until text has come, and returns the output before it.
func (v *view) until(text string) string {
	v.t.Helper()
	for {
		if before, after, ok := bytes.Cut(v.buf, []byte(text)); ok {
			v.buf = after
			return string(before)
		}
		if v.end != nil || !v.next() {
			v.t.Fatalf("waiting for %q: got %q, then %+v", text, v.buf, v.end)
		}
	}
}

// last receives until the attachment has ended, and returns the message that ended it.
func (v *view) last() *client.Message {
	v.t.Helper()
	for v.end == nil && v.next() {
	}
	return v.end
}

// say sends input.
func (v *view) say(text string) {
	v.t.Helper()
	if _, err := v.Write([]byte(text)); err != nil {
		v.t.Fatalf("write %q: %v", text, err)
	}
}

// ask sends input to an echoing session and waits for the echo.
func (v *view) ask(text string) {
	v.t.Helper()
	v.say(text)
	v.until(text)
}

// code returns the error code of err.
func code(err error) protocol.Code { return protocol.CodeOf(err) }
