package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"holdfast/protocol"
)

// A terminal is the caller's: its state is changed by raw and put back by
// restore, together with the modes that programs in the session have set.
type terminal struct {
	in, out *os.File
	state   *term.State // nil while it is not raw
	modes   modes
	once    sync.Once
}

func openTerminal(in, out *os.File) *terminal { return &terminal{in: in, out: out} }

func (t *terminal) isTerminal() bool { return term.IsTerminal(int(t.out.Fd())) }

// size is the terminal's, or nothing where there is none.
func (t *terminal) size() protocol.Size {
	cols, rows, err := term.GetSize(int(t.out.Fd()))
	if err != nil {
		return protocol.Size{}
	}
	return protocol.Size{Cols: cols, Rows: rows}
}

func ownSize() protocol.Size { return openTerminal(os.Stdin, os.Stdout).size() }

// raw makes keys go to the session as they are.
func (t *terminal) raw() error {
	if !term.IsTerminal(int(t.in.Fd())) {
		return nil
	}
	state, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return fmt.Errorf("make the terminal raw: %w", err)
	}
	t.state = state
	return nil
}

// restore puts the terminal back as it was. It may be called again.
func (t *terminal) restore() {
	t.once.Do(func() {
		if t.isTerminal() {
			_, _ = t.out.WriteString(t.modes.undo())
		}
		if t.state != nil {
			_ = term.Restore(int(t.in.Fd()), t.state)
		}
	})
}

// Write shows output of the session.
func (t *terminal) Write(p []byte) (int, error) {
	t.modes.see(p)
	return t.out.Write(p)
}

// clear makes room for a snapshot; what was on the screen scrolls away.
func (t *terminal) clear() {
	if t.isTerminal() {
		_, _ = t.out.WriteString(t.modes.undo() + strings.Repeat("\n", max(0, t.size().Rows-1)) + "\x1b[H\x1b[J")
	}
}

// modes watches the private modes that the output sets, so that the ones left
// on can be set back. It need not know more: a snapshot sets all again.
type modes struct {
	on    map[string]bool
	carry []byte // the beginning of a sequence at the end of the last output
	kitty int    // keyboard flags pushed and not popped
	dirty bool   // anything else was printed: colours, charsets, keypad
}

// undoModes are the modes that hurt whoever gets the terminal back, with what
// sets them back. The alternate screen comes last: leaving it restores the
// cursor.
var undoModes = []struct{ mode, undo string }{
	{"9", "\x1b[?9l"}, {"1000", "\x1b[?1000l"}, {"1002", "\x1b[?1002l"}, {"1003", "\x1b[?1003l"},
	{"1004", "\x1b[?1004l"}, {"1005", "\x1b[?1005l"}, {"1006", "\x1b[?1006l"}, {"1015", "\x1b[?1015l"}, {"1016", "\x1b[?1016l"},
	{"2004", "\x1b[?2004l"}, {"2026", "\x1b[?2026l"}, {"2031", "\x1b[?2031l"}, {"1", "\x1b[?1l"}, {"6", "\x1b[?6l"}, {"5", "\x1b[?5l"},
	{"47", "\x1b[?47l"}, {"1047", "\x1b[?1047l"}, {"1049", "\x1b[?1049l"},
}

const maxCarry = 64

func (m *modes) see(p []byte) {
	m.dirty = true
	data := append(m.carry, p...)
	m.carry = nil
	for {
		i := bytes.IndexByte(data, 0x1b)
		if i < 0 {
			return
		}
		data = data[i:]
		n := m.sequence(data)
		if n == 0 { // cut off: wait for the rest
			m.carry = append([]byte(nil), data[:min(len(data), maxCarry)]...)
			return
		}
		data = data[n:]
	}
}

// sequence notes a CSI sequence and returns its length, 1 for what is none and
// 0 for one that is not complete.
func (m *modes) sequence(data []byte) int {
	if len(data) < 2 {
		return 0
	}
	if data[1] != '[' {
		return 1
	}
	for i := 2; i < len(data) && i < maxCarry; i++ {
		if b := data[i]; b >= 0x40 && b <= 0x7e {
			m.csi(string(data[2:i]), b)
			return i + 1
		}
	}
	if len(data) < maxCarry {
		return 0
	}
	return 1
}

func (m *modes) csi(params string, final byte) {
	switch {
	case final == 'u' && strings.HasPrefix(params, ">"):
		m.kitty++
	case final == 'u' && strings.HasPrefix(params, "<"):
		m.kitty = max(0, m.kitty-1)
	case (final == 'h' || final == 'l') && strings.HasPrefix(params, "?"):
		if m.on == nil {
			m.on = make(map[string]bool)
		}
		for _, mode := range strings.Split(params[1:], ";") {
			m.on[mode] = final == 'h'
		}
	}
}

// undo returns what sets everything back, and forgets it.
func (m *modes) undo() string {
	if !m.dirty {
		return ""
	}
	out := "\x1b[0m\x1b(B\x0f\x1b>\x1b7\x1b[r\x1b8\x1b[4l" // DECSTBM moves the cursor
	if m.kitty > 0 {
		out += fmt.Sprintf("\x1b[<%du", m.kitty)
	}
	for _, u := range undoModes {
		if m.on[u.mode] {
			out += u.undo
		}
	}
	if on, seen := m.on["25"]; seen && !on {
		out += "\x1b[?25h"
	}
	if on, seen := m.on["7"]; seen && !on {
		out += "\x1b[?7h"
	}
	*m = modes{}
	return out
}

// defaultDetachKey is dtach's key, with one more so that a program can have it.
const defaultDetachKey = `ctrl-\ d`

// prefixWait is how long the first detach key waits for the second before it
// goes to the session.
const prefixWait = 500 * time.Millisecond

// A detachKey is a sequence of one or two keys; nil is none.
type detachKey struct{ first, second byte } // second is 0 where there is one key

// parseDetachKey reads "ctrl-\ d", "ctrl-]", "none".
func parseDetachKey(s string) (*detachKey, error) {
	if s == "none" {
		return nil, nil
	}
	fields := strings.Fields(s)
	if len(fields) < 1 || len(fields) > 2 {
		return nil, usage(fmt.Errorf("--detach-key must be one or two keys such as %q, or none", defaultDetachKey))
	}
	var k detachKey
	for i, f := range fields {
		b, err := parseKey(f)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			k.first = b
		} else {
			k.second = b
		}
	}
	return &k, nil
}

func parseKey(s string) (byte, error) {
	low := strings.ToLower(s)
	if rest, ok := strings.CutPrefix(low, "ctrl-"); ok && len(rest) == 1 && (rest[0] >= 'a' && rest[0] <= 'z' || rest[0] >= '[' && rest[0] <= '_') {
		return rest[0] & 0x1f, nil
	}
	if len(s) == 1 && s[0] > 0x20 && s[0] < 0x7f {
		return s[0], nil
	}
	return 0, usage(fmt.Errorf("--detach-key: %q is no key such as ctrl-a or d", s))
}

// A keyFilter looks for the detach keys in what is typed and passes on the
// rest.
type keyFilter struct {
	key  *detachKey
	send func([]byte)

	mu    sync.Mutex
	held  []byte // the first key, as it was typed
	timer *time.Timer
}

func newKeyFilter(key *detachKey, send func([]byte)) *keyFilter {
	return &keyFilter{key: key, send: send}
}

// typed takes what was typed and reports whether it ended with a detach; what
// stands before is passed on.
func (f *keyFilter) typed(p []byte) (detach bool) {
	if f.key == nil {
		f.send(p)
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(p) > 0 {
		if f.held != nil {
			n := match(p, f.key.second)
			if n > 0 {
				f.held = nil
				return true
			}
			f.release()
			continue
		}
		i, n := find(p, f.key.first)
		if i < 0 {
			f.send(p)
			return false
		}
		if i > 0 {
			f.send(p[:i])
		}
		if f.key.second == 0 {
			return true
		}
		f.hold(p[i : i+n])
		p = p[i+n:]
	}
	return false
}

// hold keeps the first key back until it is known what follows it.
func (f *keyFilter) hold(p []byte) {
	f.held = append([]byte(nil), p...)
	if f.timer == nil {
		f.timer = time.AfterFunc(prefixWait, f.flush)
	} else {
		f.timer.Reset(prefixWait)
	}
}

func (f *keyFilter) release() {
	if f.held != nil {
		f.send(f.held)
		f.held = nil
	}
}

// flush passes on a key that was held back.
func (f *keyFilter) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release()
}

// forms are the ways in which a terminal sends a key: as a byte, or, where the
// program asked for that, as CSI u or as modifyOtherKeys.
func forms(key byte) [][]byte {
	all := [][]byte{{key}}
	if key < 0x20 {
		c := int(key) + 0x60
		if key > 26 {
			c = int(key) + 0x40
		}
		return append(all, fmt.Appendf(nil, "\x1b[%d;5u", c), fmt.Appendf(nil, "\x1b[27;5;%d~", c))
	}
	return append(all, fmt.Appendf(nil, "\x1b[%du", key), fmt.Appendf(nil, "\x1b[27;1;%d~", key))
}

// match returns the length of the key at the beginning of p, or 0.
func match(p []byte, key byte) int {
	for _, form := range forms(key) {
		if bytes.HasPrefix(p, form) {
			return len(form)
		}
	}
	return 0
}

// find returns where the key first stands in p and how long it is there, or -1.
func find(p []byte, key byte) (at, length int) {
	at = -1
	for _, form := range forms(key) {
		if i := bytes.Index(p, form); i >= 0 && (at < 0 || i < at) {
			at, length = i, len(form)
		}
	}
	return at, length
}
