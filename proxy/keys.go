package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// defaultDetachKey is dtach's key, with one more so that a program can have it.
const defaultDetachKey = `ctrl-\ d`

// prefixWait is how long the first detach key waits for the second before it
// goes to the session. It is long, because the default's first key is SIGQUIT
// to most programs: who hesitates must not kill what runs.
const prefixWait = 2 * time.Second

// A key as it stands on the keyboard.
type key struct {
	code int // of its character without ctrl
	ctrl bool
}

// A detachKey is one key, or two pressed one after the other; nil is none.
type detachKey []key

// parseDetachKey reads "ctrl-\ d", "ctrl-]", "none".
func parseDetachKey(s string) (detachKey, error) {
	if s == "none" {
		return nil, nil
	}
	fields := strings.Fields(s)
	if len(fields) < 1 || len(fields) > 2 {
		return nil, usage(fmt.Errorf("--detach-key must be one or two keys such as %q, or none", defaultDetachKey))
	}
	var keys detachKey
	for _, f := range fields {
		k, err := parseKey(f)
		if err != nil {
			return nil, usage(fmt.Errorf("--detach-key: %q %w", f, err))
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func parseKey(s string) (key, error) {
	if len(s) == 1 && s[0] > 0x20 && s[0] < 0x7f {
		return key{code: int(s[0])}, nil
	}
	low := strings.ToLower(s)
	rest, ok := strings.CutPrefix(low, "ctrl-")
	switch {
	case !ok || len(rest) != 1:
	case rest == "[":
		return key{}, errors.New("is Esc, with which the arrow keys and others begin")
	case rest[0] >= 'a' && rest[0] <= 'z' || rest[0] >= '\\' && rest[0] <= '_':
		return key{int(rest[0]), true}, nil
	}
	return key{}, errors.New("is no key such as ctrl-a or d")
}

// byte is what the key sends where no program asked for more.
func (k key) byte() byte {
	if k.ctrl {
		return byte(k.code & 0x1f)
	}
	return byte(k.code)
}

// withCtrl is the same key with ctrl still held down from the one before, or
// the key itself where that is another key: Backspace, Tab, Enter, Esc.
func (k key) withCtrl() key {
	if k.code < 'a' || k.code > 'z' || strings.IndexByte("hijm", byte(k.code)) >= 0 {
		return k
	}
	return key{k.code, true}
}

// Modifiers of a key press, as kitty's protocol and xterm number them, less 1.
const (
	modShift = 1
	modCtrl  = 4
	modLocks = 64 | 128 // caps lock, num lock
)

// A press is one thing typed: a byte, or a sequence that names a key.
type press struct {
	named     bool
	code      int // the byte, or the key's character
	modifiers int
	released  bool
}

// readPress reads the first thing typed in p and returns its length, or 0 for
// a sequence that is not complete. Two forms name a key: CSI code ; modifiers :
// event u, and xterm's CSI 27 ; modifiers ; code ~. Anything else is bytes.
func readPress(p []byte) (press, int) {
	byByte := press{code: int(p[0])}
	if !bytes.HasPrefix(p, []byte("\x1b[")) {
		return byByte, 1
	}
	end := 2
	for end < len(p) && end < maxCSI && (p[end] >= '0' && p[end] <= ';') { // digits, : and ;
		end++
	}
	switch {
	case end == 2 || end == maxCSI:
		return byByte, 1
	case end == len(p):
		return press{}, 0
	case p[end] != 'u' && p[end] != '~':
		return byByte, 1
	}
	fields := strings.Split(string(p[2:end]), ";")
	for len(fields) < 3 {
		fields = append(fields, "")
	}
	if p[end] == '~' {
		if fields[0] != "27" {
			return byByte, 1
		}
		return press{named: true, modifiers: max(0, number(fields[1], 1)-1), code: number(fields[2], 0)}, end + 1
	}
	code, _, _ := strings.Cut(fields[0], ":")
	modifiers, event, _ := strings.Cut(fields[1], ":")
	return press{
		named: true, code: number(code, 0), modifiers: max(0, number(modifiers, 1)-1), released: event == "3",
	}, end + 1
}

func number(s string, none int) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return none
}

func (p press) is(k key) bool {
	if !p.named {
		return p.code == int(k.byte())
	}
	modifiers := p.modifiers &^ modLocks
	switch {
	case p.released:
		return false
	case k.ctrl:
		return p.code == k.code && modifiers == modCtrl
	case k.code >= 'A' && k.code <= 'Z':
		return (p.code == k.code || p.code == k.code|0x20) && modifiers == modShift
	}
	return p.code == k.code && modifiers&^modShift == 0
}

// idle reports what may come between the two keys without a meaning: a key
// that goes up, and modifiers by themselves.
func (p press) idle() bool {
	const leftShift, isoLevel5 = 57441, 57454 // kitty's numbers of the modifiers
	return p.named && (p.released || p.code >= leftShift && p.code <= isoLevel5)
}

// A keyFilter looks for the detach keys in what is typed and passes on the
// rest, byte for byte.
type keyFilter struct {
	keys detachKey
	send func([]byte)
	wait time.Duration

	mu    sync.Mutex
	held  []byte // the first key, and what was idle since
	tail  []byte // a sequence that is not complete
	timer *time.Timer
}

func newKeyFilter(keys detachKey, send func([]byte)) *keyFilter {
	return &keyFilter{keys: keys, send: send, wait: prefixWait}
}

// typed takes what was typed and reports whether the detach keys were in it;
// what stands before them is passed on.
func (f *keyFilter) typed(p []byte) (detach bool) {
	if f.keys == nil {
		f.send(p)
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.tail) > 0 {
		p = append(f.tail, p...)
		f.tail = nil
	}
	from := 0 // p[from:] is neither sent nor held
	for i := 0; i < len(p); {
		if f.held == nil {
			next := f.candidate(p[i:])
			if next < 0 {
				break
			}
			i += next
		}
		what, n := readPress(p[i:])
		switch {
		case n == 0:
			f.pass(p[from:i])
			f.tail = bytes.Clone(p[i:])
			f.later()
			return false
		case f.held == nil && what.is(f.keys[0]):
			f.pass(p[from:i])
			if len(f.keys) == 1 {
				return true
			}
			f.hold(p[i : i+n])
			from = i + n
		case f.held == nil: // passed on with what follows
		case f.isSecond(what):
			f.held = nil
			return true
		case what.idle():
			f.hold(p[i : i+n])
			from = i + n
		default:
			f.release()
			continue // it may be the first key again
		}
		i += n
	}
	f.pass(p[from:])
	return false
}

// candidate returns where the first key may stand.
func (f *keyFilter) candidate(p []byte) int {
	at := bytes.IndexByte(p, f.keys[0].byte())
	before := p
	if at >= 0 {
		before = p[:at]
	}
	if i := bytes.Index(before, []byte("\x1b[")); i >= 0 {
		return i
	}
	return at
}

func (f *keyFilter) isSecond(p press) bool {
	with := f.keys[1].withCtrl()
	return p.is(f.keys[1]) || with != f.keys[0] && p.is(with)
}

// hold keeps the first key back until it is known what follows it.
func (f *keyFilter) hold(p []byte) {
	f.held = append(f.held, p...)
	f.later()
}

// later passes on what is held back if nothing follows it.
func (f *keyFilter) later() {
	if f.timer == nil {
		f.timer = time.AfterFunc(f.wait, f.flush)
	} else {
		f.timer.Reset(f.wait)
	}
}

func (f *keyFilter) pass(p []byte) {
	if len(p) > 0 {
		f.send(p)
	}
}

func (f *keyFilter) release() {
	f.pass(f.held)
	f.held = nil
}

// flush passes on what was held back.
func (f *keyFilter) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release()
	f.pass(f.tail)
	f.tail = nil
}
