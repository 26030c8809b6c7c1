//go:build linux

package compat

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// clients are clients that read and type while proxies are replaced, and check all output.
type clients struct {
	w      *world
	c      *client.Client // for all other requests
	shells []shell
	all    []*checkedClient
	half   *byHand // the connection of across

	over    atomic.Bool // the clients may end
	stopped atomic.Bool // errors of the clients no longer count
	failed  atomic.Bool
	wg      sync.WaitGroup
}

// A checkedClient is one client of clients.
type checkedClient struct {
	name string
	web  bool
	terminal
	seen atomic.Int64 // number of lines read, or of strokes echoed
}

// A shell is a session with the process of its child.
type shell struct {
	*client.Spawned
	process
}

// counting prints numbered lines through a child of its own after a line of input. echoing repeats its input
// until an interrupt.
const (
	counting = `stty -opost -echo; echo ready; read go; sh -c 'i=0; while :; do i=$((i+1)); echo line $i; [ $((i % 50)) = 0 ] && sleep 0.01; done'; exit 3`
	echoing  = `stty raw -echo isig; trap 'exit 7' INT; echo ready; cat`
	ready    = "ready\n"
)

// clients starts sessions and connects to them in each possible way. release is the version whose "proxy
// attach" is one of the clients.
func (w *world) clients(release, address string) *clients {
	w.T.Helper()
	m := &clients{w: w, c: w.connect()}
	w.T.Cleanup(m.stop)
	token, err := os.ReadFile(w.Path("proxy.token"))
	testkit.Must(w.T, err)
	onTCP := func() (wire, error) { return w.dial("ws://" + address + "/v1/api") }

	count := m.spawn("count", counting)
	library, err := w.library(m.c, count, protocol.ModeReadOnly)
	m.add("reader with the library", false, library, err, m.follows)
	framed, err := w.byHand(count, "", w.stream)
	m.add("reader by hand", false, framed, err, m.follows)
	testkit.Must(w.T, m.c.Type(w.ctx(), count.SessionID, []byte("\n")))

	library, err = w.library(m.c, m.spawn("library", echoing), "")
	m.add("typist with the library", false, library, err, m.types)
	attach, err := w.attachCommand(release, m.spawn(attached, echoing))
	m.add("typist with "+release+" attach", false, attach, err, m.typesAndEnds)
	framed, err = w.byHand(m.spawn("framed", echoing), "", w.stream)
	m.add("typist by hand", false, framed, err, m.types)
	web, err := w.byHand(m.spawn("web", echoing), strings.TrimSpace(string(token)), onTCP)
	m.add("typist on a WebSocket", true, web, err, m.types)
	raw, err := w.raw(m.spawn("raw", echoing))
	m.add("typist on a raw WebSocket", true, raw, err, m.types)
	m.awaitProgress()
	m.half, err = w.byHand(m.spawn("half", echoing), "", w.stream)
	if err == nil {
		w.T.Cleanup(m.half.close)
		err = errors.Join((&checkedClient{terminal: m.half}).awaitOutput([]byte(ready)), m.half.say(api.Wait{SessionID: attached}))
	}
	testkit.Must(w.T, err)
	return m
}

// attached is the session of "proxy attach". Its end is awaited by a request of half.
const attached = "attach"

// across hands off while half has sent a part of a frame and waits for the answer to a request. Then it sends
// the remainder.
func (m *clients) across(handOff func()) {
	m.w.T.Helper()
	stroke := []byte("<half>")
	rest, err := m.half.begin(stroke)
	testkit.Must(m.w.T, err)
	handOff()
	if err := errors.Join(m.half.send(rest), (&checkedClient{terminal: m.half}).awaitOutput(stroke)); err != nil {
		m.w.T.Fatalf("a frame that was sent partly before and partly after a handoff: %v", err)
	}
}

// checkAnswer checks the answer to the request of half.
func (m *clients) checkAnswer() {
	m.w.T.Helper()
	for {
		_, payload, err := m.half.receive()
		if err != nil {
			m.w.T.Fatalf("waiting for the answer to wait: %v", err)
		}
		answer, _, err := api.Messages.Decode(payload)
		if w, ok := answer.(*api.Waited); ok && w.Exit.ExitCode == 7 {
			return
		} else if _, ok := answer.(*api.Accepted); !ok {
			m.w.T.Fatalf("the answer to wait is %+v, %v", answer, err)
		}
	}
}

// spawn starts a session, and waits until its child is ready.
func (m *clients) spawn(id, script string) *client.Spawned {
	m.w.T.Helper()
	s, err := m.c.Spawn(m.w.ctx(), client.SpawnRequest{
		ID: protocol.SessionID(id), SpawnSpec: protocol.SpawnSpec{Argv: []string{"/bin/sh", "-c", script}}, EarlyExit: new(time.Duration),
	})
	testkit.Must(m.w.T, err)
	m.shells = append(m.shells, shell{s, lookup(s.PID)})
	l, err := m.w.library(m.c, s, protocol.ModeReadOnly)
	testkit.Must(m.w.T, err)
	defer l.close()
	testkit.Must(m.w.T, (&checkedClient{terminal: l}).awaitOutput([]byte(ready)))
	return s
}

// add starts a client in a goroutine.
func (m *clients) add(name string, web bool, term terminal, err error, run func(*checkedClient) error) {
	m.w.T.Helper()
	if err != nil {
		m.w.T.Fatalf("%s: %v", name, err)
	}
	y := &checkedClient{name: name, web: web, terminal: term}
	m.all = append(m.all, y)
	m.wg.Go(func() {
		if err := run(y); err != nil && !m.stopped.Load() {
			m.w.T.Errorf("%s, after %d: %v", name, y.seen.Load(), err)
			m.failed.Store(true)
		}
		if web {
			y.close()
		}
	})
}

// awaitProgress waits until each client has received output that was printed after the call.
func (m *clients) awaitProgress() {
	m.w.T.Helper()
	for _, y := range m.all {
		n := y.seen.Load()
		testkit.Eventually(m.w.T, limit, func() bool { return y.seen.Load() > n+2 || m.failed.Load() }, y.name+" continues")
	}
	if m.failed.Load() {
		m.w.T.FailNow()
	}
}

// end ends all clients, and waits for their goroutines.
func (m *clients) end() {
	m.over.Store(true)
	m.wg.Wait()
}

// stop ends all clients, whatever they wait for. hangUp ends the WebSockets.
func (m *clients) stop() {
	m.over.Store(true)
	m.stopped.Store(true)
	m.w.hangUp()
	for _, y := range m.all {
		if !y.web {
			y.close()
		}
	}
	m.wg.Wait()
}

// live reports whether each session has the same running child and instance as at its start.
func (m *clients) live() bool {
	m.w.T.Helper()
	for _, s := range m.shells {
		info, err := m.c.SessionInfo(m.w.ctx(), s.SessionID)
		testkit.Must(m.w.T, err)
		if info.PID != s.Spawned.PID || info.Instance != s.Session.Instance || !s.Running() {
			m.w.T.Errorf("%s was pid %d of instance %s; now it is pid %d of %s", s.SessionID, s.Spawned.PID, s.Session.Instance, info.PID, info.Instance)
			return false
		}
	}
	return true
}

// follows reads numbered lines. They come from the child of the shell, so they also show that this child
// runs.
func (m *clients) follows(y *checkedClient) error {
	var seen []byte
	for want := ready; !m.over.Load(); {
		data, err := y.printed()
		if err != nil {
			return err
		}
		for seen = append(seen, data...); ; {
			line, rest, ok := bytes.Cut(seen, []byte("\n"))
			if !ok {
				break
			}
			if string(line)+"\n" != want {
				return fmt.Errorf("the output is %.100q, want %q", line, want)
			}
			seen, want = rest, fmt.Sprintf("line %d\n", y.seen.Add(1))
		}
	}
	return nil
}

// types types numbers, each after the echo of the one before.
func (m *clients) types(y *checkedClient) error {
	if _, raw := y.terminal.(*rawTerminal); !raw {
		if err := y.awaitOutput([]byte(ready)); err != nil {
			return err
		}
	}
	for n := 1; !m.over.Load(); n++ {
		stroke := fmt.Appendf(nil, "<%d>", n)
		if _, err := y.Write(stroke); err != nil {
			return err
		}
		if err := y.awaitOutput(stroke); err != nil {
			return err
		}
		y.seen.Add(1)
	}
	return nil
}

// typesAndEnds is like types, for a command that must end with its child's code.
func (m *clients) typesAndEnds(y *checkedClient) error {
	if err := m.types(y); err != nil {
		return err
	}
	if _, err := y.Write([]byte{'C' & 0x1f}); err != nil {
		return err
	}
	if _, err := y.printed(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("read after the interrupt: %w, want EOF", err)
	}
	cmd := y.terminal.(*command)
	_ = cmd.Wait() // the exit code contains the result
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		return fmt.Errorf("the command exits with %d, want 7", code)
	}
	return nil
}

// awaitOutput waits for the output text. It fails if the connection is closed, because each version must pass
// connections on.
func (y *checkedClient) awaitOutput(text []byte) error {
	for len(text) > 0 {
		data, err := y.printed()
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(text, data) {
			return fmt.Errorf("the output is %.100q, want %q", data, text)
		}
		text = text[len(data):]
	}
	return nil
}
