//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/proxy/client"
	"holdfast/shared/testkit/sshhost"
)

// The connections of a client on another host are cut repeatedly while the client types and reads. No byte
// may be missing or duplicated in either direction, even if the proxy is replaced meanwhile.
// demand: S9
func TestSSHCut(t *testing.T) {
	const cuts = 6
	w := newWorld(t, bigRing)
	h := sshhost.Start(t, "away", w.Path("ssh"), w.Env)
	c := w.connect(client.Options{SSH: &client.SSHOptions{Host: h.Name, Command: h.Command, Program: w.Program("proxy"), Start: true}})
	w.spawn(c, "flow", flowing)
	flow := w.followLines(c, "flow")
	s := newScribe(w.echo(c, "echo"))
	var worst time.Duration
	for i := range cuts {
		end := beginSpan()
		if n := h.Cut(t); n < 2 {
			t.Errorf("%d connections were cut, want at least the two attachments", n)
		}
		if i == cuts/2 {
			w.handOff()
		}
		before := flow.lines.Load()
		worst = max(worst, s.longest(t, end()))
		if !eventually(func() bool { return t.Failed() || flow.lines.Load() > before }) {
			t.Errorf("the output stopped at line %d", before)
		}
	}
	flow.over.Store(true)
	s.stop()
	flow.wg.Wait()
	t.Logf("%d cuts: the longest echo took %v, %d lines came", cuts, worst, flow.lines.Load())
}

// lineReader reads the numbered lines of a flowing session in a goroutine, and fails the test if a line is
// missing or comes twice.
type lineReader struct {
	lines atomic.Int64 // number of lines read
	over  atomic.Bool  // ends the goroutine after its next message
	wg    sync.WaitGroup
}

// followLines attaches to a session that runs flowing, and makes it print.
func (w *world) followLines(c *client.Client, id string) *lineReader {
	w.T.Helper()
	flow := w.attach(c, id, client.AttachOptions{})
	flow.until("ready\n")
	flow.say("go\n")
	r := &lineReader{}
	r.wg.Go(func() {
		var seen []byte
		for !r.over.Load() {
			m, err := flow.Receive(limit)
			if err != nil || m.Kind != client.Output && m.Kind != client.Resized {
				w.T.Errorf("unexpected message after line %d: %+v, %v", r.lines.Load(), m, err)
				return
			}
			for seen = append(seen, m.Data...); ; {
				line, rest, ok := bytes.Cut(seen, []byte("\n"))
				if !ok {
					break
				}
				if want := fmt.Sprint("line ", r.lines.Add(1)); string(line) != want {
					w.T.Errorf("the line is %q, want %q", line, want)
					return
				}
				seen = rest
			}
		}
	})
	return r
}

// The npm client reaches another host as the Go client does, and must lose no byte if the connections are
// cut.
// demand: S9
func TestNPMClientSSH(t *testing.T) {
	t.Parallel()
	dir := npmClient(t)
	w := newWorld(t)
	w.echoAlone(w.dial(client.Options{Start: w.startProxy}), "typed")
	h := sshhost.Start(t, "away", w.Path("ssh"), w.Env)
	config, err := json.Marshal([]map[string]any{{
		"name": "types", "does": "types", "session": "typed",
		"ssh": map[string]any{"host": h.Name, "command": h.Command, "program": w.Program("proxy")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	n := startNode(t, dir, filepath.Join("test", "real.mjs"))
	n.ask(string(config), "open")
	for range 3 {
		n.ask("on", "on")
		h.Cut(t)
	}
	n.ask("on", "on")
	t.Logf("%s", n.ask("end", "end"))
}
