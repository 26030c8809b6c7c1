//go:build linux

package compat

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// Clients look on while proxies are replaced, and check what they see.
type clients struct {
	w      *world
	c      *client.Client // for all else
	shells []shell
	all    []*one

	over   atomic.Bool // they have seen enough
	wg     sync.WaitGroup
	failed atomic.Bool
}

// One of them.
type one struct {
	name string
	web  bool
	terminal
	seen atomic.Int64 // lines read, or strokes echoed

	mu     sync.Mutex
	codes []websocket.StatusCode // what it was closed with, each time
}

// A shell is a session's child.
type shell struct {
	*client.Spawned
	process
}

// The children: one prints lines through a child of its own once a line is
// typed, the other echoes until it is interrupted.
const (
	counting = `stty -opost -echo; read go; sh -c 'echo child $$; i=0; while :; do i=$((i+1)); echo line $i; [ $((i % 50)) = 0 ] && sleep 0.01; done'; exit 3`
	echoing  = `stty raw -echo isig; trap 'exit 7' INT; echo ready; cat`
	ready    = "ready\n"
)

// clients starts sessions, and connects to them in every way there is; one is the
// "proxy attach" of a release.
func (w *world) clients(release, address string) *clients {
	w.t.Helper()
	m := &clients{w: w, c: w.connect()}
	w.t.Cleanup(m.stop)
	token, err := os.ReadFile(w.path("proxy.token"))
	if err != nil {
		w.t.Fatal(err)
	}
	onTCP := func() (wire, error) { return w.dial("ws://" + address + "/v1/api") }

	count := m.spawn("count", counting)
	library, err := w.library(m.c, count, protocol.ModeReadOnly)
	m.add("reader with the library", false, library, err, m.follows)
	framed, err := w.byHand(count, "", w.stream)
	m.add("reader by hand", false, framed, err, m.follows)
	if err := m.c.Type(w.ctx(), count.SessionID, []byte("\n")); err != nil {
		w.t.Fatal(err)
	}

	library, err = w.library(m.c, m.echo("library"), "")
	m.add("typist with the library", false, library, err, m.types)
	attach, err := w.attachCommand(release, m.echo("attach"))
	m.add("typist with "+release+" attach", false, attach, err, m.typesAndEnds)
	framed, err = w.byHand(m.echo("framed"), "", w.stream)
	m.add("typist by hand", false, framed, err, m.types)
	api, err := w.byHand(m.echo("web"), strings.TrimSpace(string(token)), onTCP)
	m.add("typist on a WebSocket", true, api, err, m.types)
	raw, err := w.raw(m.echo("raw"))
	m.add("typist on a raw WebSocket", true, raw, err, m.types)
	m.goOn()
	return m
}

// spawn starts a session.
func (m *clients) spawn(id, script string) *client.Spawned {
	m.w.t.Helper()
	s, err := m.c.Spawn(m.w.ctx(), client.SpawnRequest{
		ID: protocol.SessionID(id), SpawnSpec: protocol.SpawnSpec{Argv: []string{"/bin/sh", "-c", script}}, EarlyExit: new(time.Duration),
	})
	if err != nil {
		m.w.t.Fatal(err)
	}
	m.shells = append(m.shells, shell{s, lookup(s.PID)})
	return s
}

// echo starts a session that echoes, and returns when it does.
func (m *clients) echo(id string) *client.Spawned {
	m.w.t.Helper()
	s := m.spawn(id, echoing)
	l, err := m.w.library(m.c, s, protocol.ModeReadOnly)
	if err != nil {
		m.w.t.Fatal(err)
	}
	defer l.close()
	if err := (&one{terminal: l}).hears([]byte(ready)); err != nil {
		m.w.t.Fatal(err)
	}
	return s
}

// add lets a client run on its own.
func (m *clients) add(name string, web bool, term terminal, err error, run func(*one) error) {
	m.w.t.Helper()
	if err != nil {
		m.w.t.Fatalf("%s: %v", name, err)
	}
	y := &one{name: name, web: web, terminal: term}
	m.all = append(m.all, y)
	m.wg.Go(func() {
		if err := run(y); err != nil {
			m.w.t.Errorf("%s, after %d: %v", name, y.seen.Load(), err)
			m.failed.Store(true)
		}
	})
}

// goOn returns when each has seen something that was printed from here on.
func (m *clients) goOn() {
	m.w.t.Helper()
	for _, y := range m.all {
		n := y.seen.Load()
		testkit.Eventually(m.w.t, limit, func() bool { return y.seen.Load() > n+2 || m.failed.Load() }, y.name+" goes on")
	}
	if m.failed.Load() {
		m.w.t.FailNow()
	}
}

// end lets all come to their ends, and returns when they have.
func (m *clients) end() {
	m.over.Store(true)
	m.wg.Wait()
}

// stop ends all, whatever they wait for.
func (m *clients) stop() {
	m.over.Store(true)
	for _, y := range m.all {
		y.close()
	}
	m.wg.Wait()
}

// live reports whether all children are what they were.
func (m *clients) live() bool {
	m.w.t.Helper()
	for _, s := range m.shells {
		info, err := m.c.SessionInfo(m.w.ctx(), s.SessionID)
		if err != nil {
			m.w.t.Fatal(err)
		}
		if info.PID != s.PID || info.Instance != s.Session.Instance || !s.running() {
			m.w.t.Errorf("%s was pid %d of %s, and is %d of %s", s.SessionID, s.PID, s.Session.Instance, info.PID, info.Instance)
			return false
		}
	}
	return true
}

// follows reads numbered lines, the first of which names who prints them.
func (m *clients) follows(y *one) error {
	var child process
	var seen []byte
	for lines := 0; !m.over.Load(); {
		data, err := y.printed()
		if err != nil {
			return err
		}
		for seen = append(seen, data...); ; {
			line, rest, ok := bytes.Cut(seen, []byte("\n"))
			if !ok {
				break
			}
			seen = rest
			if pid, first := strings.CutPrefix(string(line), "child "); first && child.pid == 0 {
				n, _ := strconv.Atoi(pid)
				child = lookup(n)
				continue
			}
			if lines++; string(line) != fmt.Sprint("line ", lines) {
				return fmt.Errorf("line %d is %q", lines, line)
			}
			y.seen.Store(int64(lines))
		}
	}
	if !child.running() {
		return fmt.Errorf("the shell's child %d does not run", child.pid)
	}
	return nil
}

// types types numbers, each when the one before has come back.
func (m *clients) types(y *one) error {
	if _, raw := y.terminal.(*rawTerminal); !raw {
		if err := y.hears([]byte(ready)); err != nil {
			return err
		}
	}
	for n := 1; !m.over.Load(); n++ {
		stroke := fmt.Appendf(nil, "<%d>", n)
		if _, err := y.Write(stroke); err != nil {
			return err
		}
		if err := y.hears(stroke); err != nil {
			return err
		}
		y.seen.Add(1)
	}
	return nil
}

// typesAndEnds is types for a command, which ends with its child's code.
func (m *clients) typesAndEnds(y *one) error {
	if err := m.types(y); err != nil {
		return err
	}
	if _, err := y.Write([]byte{'C' & 0x1f}); err != nil {
		return err
	}
	if _, err := y.printed(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("something follows: %w", err)
	}
	cmd := y.terminal.(*command)
	_ = cmd.Wait() // the code says it
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		return fmt.Errorf("it ends with %d", code)
	}
	return nil
}

// hears returns when text has been read, coming again where that is wanted.
func (y *one) hears(text []byte) error {
	for len(text) > 0 {
		data, err := y.printed()
		if err == nil && !bytes.HasPrefix(text, data) {
			err = fmt.Errorf("%.100q is read, want %q", data, text)
		}
		if err == nil {
			text = text[len(data):]
			continue
		}
		status := websocket.CloseStatus(err)
		if status != -1 {
			y.mu.Lock()
			y.codes = append(y.codes, status)
			y.mu.Unlock()
		}
		if status != websocket.StatusServiceRestart {
			return err
		}
		if text, err = y.terminal.(returner).again(text); err != nil {
			return fmt.Errorf("coming again: %w", err)
		}
	}
	return nil
}

// closed returns what the WebSockets were closed with since it was asked last, in
// words: the same for all.
func (m *clients) closed() string {
	m.w.t.Helper()
	said := map[string]bool{}
	for _, y := range m.all {
		if !y.web {
			continue
		}
		y.mu.Lock()
		codes := fmt.Sprint(y.codes)
		if len(y.codes) == 0 {
			codes = kept
		} else if len(y.codes) == 1 {
			codes = fmt.Sprint("closed with ", int(y.codes[0]))
		}
		y.codes = nil
		y.mu.Unlock()
		said[codes] = true
	}
	words := slices.Sorted(maps.Keys(said))
	if len(words) > 1 {
		m.w.t.Errorf("not all WebSockets went the same way: %v", words)
	}
	return strings.Join(words, ", ")
}
