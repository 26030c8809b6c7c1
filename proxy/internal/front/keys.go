package front

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/escseq"
)

// DefaultDetachKey is the detach key of dtach, with a second key, so that a program can still
// receive the first one.
const DefaultDetachKey = `ctrl-\ d`

// prefixWait is how long the first detach key is held back for the second one. It is long because
// the first default key is SIGQUIT for most programs: hesitation of the user must not kill the
// program.
const prefixWait = 2 * time.Second

// A key is a key of the keyboard.
type key struct {
	code int // of its character without ctrl
	ctrl bool
}

// A DetachKey is one key, or two keys that are pressed one after the other, that end a view. If it is
// nil, no key does.
type DetachKey []key

// ParseDetachKey parses texts such as "ctrl-\ d", "ctrl-]" and "none". The exit code of its error is
// that of wrong usage.
func ParseDetachKey(s string) (DetachKey, error) {
	if s == "none" {
		return nil, nil
	}
	fields := strings.Fields(s)
	if len(fields) < 1 || len(fields) > 2 {
		return nil, exitcode.WrongUsagef("--detach-key must be one or two keys such as %q, or none", DefaultDetachKey)
	}
	var keys DetachKey
	for _, f := range fields {
		k, err := parseKey(f)
		if err != nil {
			return nil, exitcode.WrongUsagef("--detach-key: %q %v", f, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// parseKey parses one key.
func parseKey(s string) (key, error) {
	if len(s) == 1 && s[0] > 0x20 && s[0] < 0x7f {
		return key{code: int(s[0])}, nil
	}
	low := strings.ToLower(s)
	rest, ok := strings.CutPrefix(low, "ctrl-")
	switch {
	case !ok || len(rest) != 1:
	case rest == "[":
		return key{}, errors.New("is Esc, and sequences of other keys begin with Esc")
	case rest[0] >= 'a' && rest[0] <= 'z' || rest[0] >= '\\' && rest[0] <= '_':
		return key{int(rest[0]), true}, nil
	}
	return key{}, errors.New("is not a key such as ctrl-a or d")
}

// byte returns the byte that the key sends if no program has enabled a keyboard protocol.
func (k key) byte() byte {
	if k.ctrl {
		return byte(k.code & 0x1f)
	}
	return byte(k.code)
}

// withCtrl returns the key with ctrl, which the user may still hold down from the previous key. It
// returns the key itself if the combination is another key: Backspace, Tab, Enter or Esc.
func (k key) withCtrl() key {
	if k.code < 'a' || k.code > 'z' || strings.IndexByte("hijm", byte(k.code)) >= 0 {
		return k
	}
	return key{k.code, true}
}

// The modifiers of a key press, as kitty's protocol and xterm number them, minus 1.
const (
	modShift = 1
	modCtrl  = 4
	modLocks = 64 | 128 // caps lock, num lock
)

// A press is one unit of input: a byte, or a sequence that names a key.
type press struct {
	named     bool
	code      int // the byte, or the character of the key
	modifiers int
	released  bool
}

// maxPress bounds the length of a sequence that names a key.
const maxPress = 64

// readPress reads the first press in p and returns its length, or 0 if the sequence is not
// complete. Two forms name a key: CSI code ; modifiers : event u, and xterm's CSI 27 ; modifiers ;
// code ~. Any other input is single bytes.
func readPress(p []byte) (press, int) {
	byByte := press{code: int(p[0])}
	u := escseq.NextInput(p[:min(len(p), maxPress)])
	if u.Kind != escseq.CSI {
		return byByte, 1
	}
	params, isPart := u.Body, !u.Complete && u.Final == 0
	if isPart {
		params = p[2:u.Len]
	}
	switch {
	case len(params) == 0 || bytes.ContainsFunc(params, func(r rune) bool { return r < '0' || r > ';' }):
		return byByte, 1
	case isPart && u.Len < maxPress:
		return press{}, 0
	case !u.Complete || u.Final != 'u' && u.Final != '~':
		return byByte, 1
	}
	fields := strings.Split(string(params), ";")
	for len(fields) < 3 {
		fields = append(fields, "")
	}
	if u.Final == '~' {
		if fields[0] != "27" {
			return byByte, 1
		}
		return press{named: true, modifiers: max(0, number(fields[1], 1)-1), code: number(fields[2], 0)}, u.Len
	}
	code, _, _ := strings.Cut(fields[0], ":")
	modifiers, event, _ := strings.Cut(fields[1], ":")
	return press{
		named: true, code: number(code, 0), modifiers: max(0, number(modifiers, 1)-1), released: event == "3",
	}, u.Len
}

// number parses a number; it returns none if s has no number.
func number(s string, none int) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return none
}

// is reports whether the press is the key k.
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

// idle reports whether the press may occur between the two detach keys without a meaning: the
// release of a key, or a modifier alone.
func (p press) idle() bool {
	const leftShift, isoLevel5 = 57441, 57454 // kitty's numbers of the modifiers
	return p.named && (p.released || p.code >= leftShift && p.code <= isoLevel5)
}

// A keyFilter searches the input for the detach keys, and passes all other input on unchanged.
type keyFilter struct {
	keys DetachKey
	send func([]byte)
	wait time.Duration

	mu    sync.Mutex
	held  []byte // the first key, and idle presses after it
	tail  []byte // an incomplete sequence
	timer *time.Timer
}

// newKeyFilter returns a keyFilter that passes input on to send.
func newKeyFilter(keys DetachKey, send func([]byte)) *keyFilter {
	return &keyFilter{keys: keys, send: send, wait: prefixWait}
}

// filter processes input, and reports whether it has the detach keys. Input before the detach keys
// is passed on.
func (f *keyFilter) filter(p []byte) (detach bool) {
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
		case f.held == nil: // is passed on together with the following input
		case f.isSecond(what):
			f.held = nil
			return true
		case what.idle():
			f.hold(p[i : i+n])
			from = i + n
		default:
			f.release()
			continue // this may be the first key again
		}
		i += n
	}
	f.pass(p[from:])
	return false
}

// candidate returns the next position where the first key may be, or -1.
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

// isSecond reports whether the press is the second detach key.
func (f *keyFilter) isSecond(p press) bool {
	with := f.keys[1].withCtrl()
	return p.is(f.keys[1]) || with != f.keys[0] && p.is(with)
}

// hold holds the first key back until the next key is known.
func (f *keyFilter) hold(p []byte) {
	f.held = append(f.held, p...)
	f.later()
}

// later starts the timer that passes on the input that is held back.
func (f *keyFilter) later() {
	if f.timer == nil {
		f.timer = time.AfterFunc(f.wait, f.flush)
	} else {
		f.timer.Reset(f.wait)
	}
}

// pass sends p, unless it is empty.
func (f *keyFilter) pass(p []byte) {
	if len(p) > 0 {
		f.send(p)
	}
}

// release sends the first key, which was held back.
func (f *keyFilter) release() {
	f.pass(f.held)
	f.held = nil
}

// flush sends all input that was held back.
func (f *keyFilter) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release()
	f.pass(f.tail)
	f.tail = nil
}
