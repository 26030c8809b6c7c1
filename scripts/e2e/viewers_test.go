package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A window is a viewer with a terminal of its own size, a real xterm.js.
type window struct {
	*view
	term       *xterm
	cols, rows int
	offset     uint64 // the terminal shows the screen at this offset
}

// window attaches with a view of its own, which the supervisor renders at the size of the viewer.
func (w *world) window(c *client.Client, id string, term *xterm, cols, rows int) *window {
	w.T.Helper()
	v := &window{view: w.attachScreen(c, id, client.AttachOptions{Cols: cols, Rows: rows, View: protocol.ViewOwn}), term: term, cols: cols, rows: rows}
	v.offset = v.Info().Offset
	term.new(cols, rows)
	return v
}

// see shows messages until the terminal shows the screen at offset or later.
func (v *window) see(offset uint64) {
	v.t.Helper()
	for v.offset < offset {
		m, err := v.Receive(limit)
		if err != nil {
			v.t.Fatalf("receive at offset %d, waiting for %d: %v", v.offset, offset, err)
		}
		v.take(m)
	}
	for { // and the messages that follow without a pause
		m, err := v.Receive(100 * time.Millisecond)
		if err != nil {
			return
		}
		v.take(m)
	}
}

func (v *window) take(m *client.Message) {
	v.t.Helper()
	switch m.Kind {
	case client.Missed:
		v.term.new(v.cols, v.rows)
		v.offset = m.Offset
	case client.Output:
		v.term.write(m.Data)
		v.offset = m.Offset + uint64(len(m.Data))
	case client.Snapshot, client.View:
		v.term.write(m.Data)
		v.offset = m.Offset
	case client.Exited, client.Stolen, client.Failed, client.Resized:
		v.t.Fatalf("unexpected message %+v", m)
	}
}

// same compares the window with the session's screen at the window's size, after the output has paused.
func (v *window) same(c *client.Client, id string) {
	v.t.Helper()
	var diff string
	ok := eventually(func() bool {
		want, err := c.Screen(v.t.Context(), protocol.SessionID(id), client.ScreenOptions{Format: protocol.ScreenCells, Cols: v.cols, Rows: v.rows})
		testkit.Must(v.t, err)
		v.see(want.Offset)
		diff = v.term.visible().differs(want)
		return v.offset == want.Offset && diff == ""
	})
	if !ok {
		v.t.Fatalf("the %dx%d window differs from the terminal core: %s", v.cols, v.rows, diff)
	}
}

// picture is the visible content of a terminal.
type picture struct {
	rows []string
	x, y int
	alt  bool
}

func (x *xterm) visible() picture {
	x.t.Helper()
	type buffer struct {
		X, Y, History int
		Lines         []struct {
			Cells []struct {
				T string
				W int
			}
		}
	}
	var state struct {
		Cols      int
		Normal    buffer
		Alternate *buffer
	}
	testkit.Must(x.t, json.Unmarshal(x.call('S', nil), &state))
	b := &state.Normal
	if state.Alternate != nil {
		b = state.Alternate
	}
	p := picture{x: min(b.X, state.Cols-1), y: b.Y, alt: state.Alternate != nil}
	for _, l := range b.Lines[b.History:] {
		var text strings.Builder
		for _, c := range l.Cells {
			if c.W > 0 {
				text.WriteString(cmp.Or(c.T, " "))
			}
		}
		p.rows = append(p.rows, strings.TrimRight(text.String(), " "))
	}
	return p
}

// differs returns the first difference between the picture and want, or "".
func (p picture) differs(want *protocol.ScreenContent) string {
	for y, got := range p.rows {
		var text strings.Builder
		if y < len(want.Cells) {
			for _, c := range want.Cells[y].Cells {
				text.WriteString(cmp.Or(c.Text, " "))
			}
		}
		if w := strings.TrimRight(text.String(), " "); got != w {
			return fmt.Sprintf("row %d is %q, want %q", y, got, w)
		}
	}
	if c := want.Cursor; p.x != c.X || p.y != c.Y || p.alt != want.Alternate || len(p.rows) != want.Rows {
		return fmt.Sprintf("cursor %d,%d of %d rows, alternate %v; want %d,%d of %d, %v", p.x, p.y, len(p.rows), p.alt, c.X, c.Y, want.Rows, want.Alternate)
	}
	return ""
}

// Two viewers of 200x50 and 80x24 look at the same shell and at the same vim. Each must show the screen at
// its own size, and the program must run at the size of the viewer that typed last.
func TestTwoWindows(t *testing.T) {
	terms := []*xterm{newXterm(t), newXterm(t)}
	w := newWorld(t)
	c := w.dial(client.Options{})
	text := w.Path("text")
	var lines strings.Builder
	for i := range 300 {
		fmt.Fprintf(&lines, "%d\t%s 漢字 é\n", i, strings.Repeat(string(rune('a'+i%26)), i%250))
	}
	testkit.Must(t, os.WriteFile(text, []byte(lines.String()), 0o600))
	for _, tt := range []struct {
		name  string
		argv  []string
		ready string
		keys  []string
	}{
		{"bash", []string{"bash", "--norc", "--noprofile", "-i"}, "$", []string{
			"head -70 " + text + "\r", "printf '\\e[5;10Hhere\\e[41mred\\e[0m'\r", "seq 500\r", "clear\r", "echo done\r",
		}},
		{"vim", []string{"vim", "-u", "NONE", "-N", "--cmd", "set nomore", text}, "aaa", []string{
			"\x04", "G", "gg", ":set number\r", "50Ginserted text\x1b", ":vsplit\r", ":syntax on\r", "dd", ":only\r", "ihello\x1b",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := exec.LookPath(tt.argv[0]); err != nil {
				t.Skip(err)
			}
			id := tt.name
			w.spawn(c, id, protocol.SpawnSpec{Argv: tt.argv, Cols: 200, Rows: 50, Env: []string{"PS1=$ "}})
			large := w.window(c, id, terms[0], 200, 50)
			small := w.window(c, id, terms[1], 80, 24)
			w.shows(c, id, tt.ready)
			large.same(c, id)
			small.same(c, id)
			for i, key := range tt.keys {
				typist, size := large, protocol.Size{Cols: 200, Rows: 50}
				if i%2 == 1 {
					typist, size = small, protocol.Size{Cols: 80, Rows: 24}
				}
				typist.say(key)
				testkit.Must(t, typist.Flush(w.ctx()))
				if s, err := c.SessionInfo(w.ctx(), protocol.SessionID(id)); err != nil || s.Size != size {
					t.Fatalf("after the input %q the session has the size %v, want %v (%v)", key, s.Size, size, err)
				}
				w.quiet(c, id)
				large.same(c, id)
				small.same(c, id)
			}
		})
	}
}

// shows waits until the screen of a session contains a text.
func (w *world) shows(c *client.Client, id, text string) {
	w.T.Helper()
	var seen []string
	if !eventually(func() bool {
		s, err := c.Screen(w.T.Context(), protocol.SessionID(id), client.ScreenOptions{})
		testkit.Must(w.T, err)
		seen = s.Lines
		return slices.ContainsFunc(seen, func(l string) bool { return strings.Contains(l, text) })
	}) {
		w.T.Fatalf("the screen of %s does not contain %q; it is %q", id, text, seen)
	}
}

// quiet waits until a session has not printed for 150 ms. The program itself does not report that it has
// processed its input.
func (w *world) quiet(c *client.Client, id string) {
	w.T.Helper()
	var last uint64
	since := time.Now()
	if !eventually(func() bool {
		s, err := c.SessionInfo(w.T.Context(), protocol.SessionID(id))
		testkit.Must(w.T, err)
		if s.OutputOffset != last {
			last, since = s.OutputOffset, time.Now()
		}
		return time.Since(since) > 150*time.Millisecond
	}) {
		w.T.Fatalf("the output of %s does not pause", id)
	}
}

// If no viewer is attached, the supervisor must answer the queries that programs send to their terminal when
// they start, so that they do not wait for a time-out.
func TestDetachedStart(t *testing.T) {
	w := newWorld(t)
	c := w.dial(client.Options{})
	testkit.Must(t, os.MkdirAll(filepath.Join(w.Home, ".config"), 0o700))
	for _, tt := range []struct {
		name, shows string
		argv        []string
	}{
		{"fish", "@", []string{"fish", "--private"}},
		{"vim", "VIM - Vi IMproved", []string{"vim", "-u", "NONE", "-N"}},
		{"nvim", "NVIM v", []string{"nvim", "-u", "NONE"}},
		{"btop", "cpu", []string{"btop", "--utf-force"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := exec.LookPath(tt.argv[0]); err != nil {
				t.Skip(err)
			}
			best := limit
			for i := range 3 { // the machine may be slow once
				id := fmt.Sprint(tt.name, "-", i)
				began := time.Now()
				w.spawn(c, id, protocol.SpawnSpec{Argv: tt.argv, Cols: 120, Rows: 40, Env: []string{"HOME=" + w.Home, "LANG=C.UTF-8"}})
				w.shows(c, id, tt.shows)
				best = min(best, time.Since(began))
				testkit.Must(t, c.Terminate(w.ctx(), protocol.SessionID(id), client.End{}))
			}
			t.Logf("%s was ready after %v", tt.name, best.Round(time.Millisecond))
			if best > detachedStart {
				t.Errorf("%s was ready after %v at best, want at most 900ms", tt.name, best)
			}
		})
	}
}

// detachedStart is less than the time-out of each program for an answer of its terminal. For fish and Neovim
// this time-out is a second.
const detachedStart = 900 * time.Millisecond
