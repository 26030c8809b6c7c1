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

// startProxy starts a proxy, for client.Options.
func (w *world) startProxy(context.Context) error {
	_, err := w.Launch(w.Command("proxy", "serve", "--background"))
	return err
}

// dial returns a client of the world's proxy, which is started where there is
// none, unless the options say how.
func (w *world) dial(o client.Options) *client.Client {
	w.T.Helper()
	o.Dir, o.Name = w.Dir, cmp.Or(o.Name, "e2e")
	if o.Start == nil {
		o.Start = w.startProxy
	}
	return w.connect(o)
}

// connect is dial for a proxy that is there, or is not started.
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

// ctx ends with the limit, or with the test.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.T.Context(), limit)
	w.T.Cleanup(cancel)
	return ctx
}

// none is an early-exit check that does not look.
var none = new(time.Duration)

// spawn starts a session without a look at its early exit.
func (w *world) spawn(c *client.Client, id string, spec protocol.SpawnSpec) *client.Spawned {
	w.T.Helper()
	s, err := c.Spawn(w.ctx(), client.SpawnRequest{ID: protocol.SessionID(id), SpawnSpec: spec, EarlyExit: none})
	if err != nil {
		w.T.Fatalf("spawn %s: %v", id, err)
	}
	w.Adopt(lookup(s.PID))
	return s
}

// shell is a session's command.
func shell(script string) protocol.SpawnSpec {
	return protocol.SpawnSpec{Argv: []string{"/bin/sh", "-c", script}}
}

// burstsOf is a session that prints a line without end: first so much that the queues of a viewer that
// reads nothing are full, and then 10,000 lines every 0.3 s. A program that never paused would take a
// processor from everything else in the test.
func burstsOf(line string) protocol.SpawnSpec {
	return shell("stty -opost; yes " + line + " | head -n 200000; while :; do yes " + line + " | head -n 10000; sleep 0.3; done")
}

// echoing is a session that says back what is typed, and nothing else.
var echoing = shell(echoScript)

const echoScript = "stty raw -echo; echo ready; exec cat"

// attach attaches to all that is kept of the output, byte by byte, unless o
// says where, and returns what is then read.
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

// attachScreen attaches, and returns what is then read.
func (w *world) attachScreen(c *client.Client, id string, o client.AttachOptions) *view {
	w.T.Helper()
	a, err := c.Attach(w.ctx(), protocol.SessionID(id), o)
	if err != nil {
		w.T.Fatalf("attach to %s: %v", id, err)
	}
	w.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.Flush(ctx) // Detach waits for that, too, and longer
		_ = a.Detach()
	})
	return &view{t: w.T, Attachment: a}
}

// echo starts a session that echoes, and waits for it to be ready.
func (w *world) echo(c *client.Client, id string) *view {
	w.T.Helper()
	w.spawn(c, id, echoing)
	v := w.attach(c, id, client.AttachOptions{})
	v.until("ready\n")
	return v
}

// A view reads an attachment step by step.
type view struct {
	t testing.TB
	*client.Attachment
	buf []byte
	end *client.Message // the last message, once it has come
}

// next takes one message in, and reports false after the last.
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

// until reads until text has come, and returns what came before it.
func (v *view) until(text string) string {
	v.t.Helper()
	for {
		if before, after, ok := bytes.Cut(v.buf, []byte(text)); ok {
			v.buf = after
			return string(before)
		}
		if v.end != nil || !v.next() {
			v.t.Fatalf("%q does not come, but %q and %+v", text, v.buf, v.end)
		}
	}
}

// last reads to the end and returns the message that ended it.
func (v *view) last() *client.Message {
	v.t.Helper()
	for v.end == nil && v.next() {
	}
	return v.end
}

// say types.
func (v *view) say(text string) {
	v.t.Helper()
	if _, err := v.Write([]byte(text)); err != nil {
		v.t.Fatalf("write %q: %v", text, err)
	}
}

// ask types into an echoing session and reads it back.
func (v *view) ask(text string) {
	v.t.Helper()
	v.say(text)
	v.until(text)
}

// code returns an error's code, for comparison in one line.
func code(err error) protocol.Code { return protocol.CodeOf(err) }
