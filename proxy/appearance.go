package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"holdfast/protocol"
)

// questions returns what asks the terminal for its colours and its version, for
// modes that it may have set on its own (modeQuestions), and last for what every
// terminal answers, so that with this answer all of them are there that will come.
func questions() string {
	const looks, last = "\x1b]10;?\x1b\\\x1b]11;?\x1b\\\x1b]12;?\x1b\\\x1b[>0q", "\x1b[c"
	if os.Getenv("TERM_PROGRAM") == "Apple_Terminal" { // it shows the p
		return looks + last
	}
	return looks + modeQuestions + last
}

// modeQuestions ask (DECRQM) for grapheme clusters, which each snapshot sets or
// resets, and for the wheel on the alternate screen: terminals differ in whether
// these are set at first, and undo has to bring that back.
const modeQuestions = "\x1b[?2027$p\x1b[?1007$p"

const (
	// escapeWait is how long the beginning of an answer is held that may be a
	// key: Esc, or Alt with another.
	escapeWait = 30 * time.Millisecond
	// answerWait is the same of what no key sends.
	answerWait = 500 * time.Millisecond
	// askingTime is how long answers may take; a terminal far away is slow.
	askingTime = 10 * time.Second
	// leaveWait is how long a viewer that leaves waits for answers, which would
	// be typed into the shell otherwise, and leaveAfter is when a terminal that
	// has said nothing is taken for one that answers nothing.
	leaveWait, leaveAfter = 250 * time.Millisecond, time.Second
)

// An answer is what a terminal says to one of the questions.
type answer struct {
	begin string                                  // up to what it says
	end   func(p []byte) (body, end int, ok bool) // what may stand there, and how long it and its end are; 0 and 0 of a part
	note  func(*protocol.Appearance, string)
}

// The answers, in the order of the questions.
func answers() []answer {
	return []answer{
		{"\x1b]10;", oscEnd, func(a *protocol.Appearance, s string) { a.Foreground = hexColor(s) }},
		{"\x1b]11;", oscEnd, func(a *protocol.Appearance, s string) { a.Background = hexColor(s) }},
		{"\x1b]12;", oscEnd, func(a *protocol.Appearance, s string) { a.Cursor = hexColor(s) }},
		{"\x1bP>|", dcsEnd, func(a *protocol.Appearance, s string) { a.Version = cutText(s, protocol.MaxTerminalVersion) }},
		{"\x1b[?2027;", modeEnd, func(a *protocol.Appearance, s string) { a.NoGraphemes = s == "0" || s == "4" }},
		{"\x1b[?1007;", modeEnd, func(*protocol.Appearance, string) {}},
		{"\x1b[?", da1End, nil},
	}
}

// modeName returns the name of the mode that an answer is about, as in modes, or
// "" if it is about none.
func (w *answer) modeName() string {
	if params, ok := strings.CutPrefix(w.begin, "\x1b["); ok {
		if name, ok := strings.CutSuffix(params, ";"); ok {
			return name
		}
	}
	return ""
}

// maxAnswer bounds what is taken for an answer, in bytes.
const maxAnswer = 256

// scan looks for the end of what consists of certain bytes.
func scan(p []byte, within func(byte) bool, ends ...string) (body, end int, ok bool) {
	for i := range min(len(p), maxAnswer) {
		for _, e := range ends {
			n := min(len(e), len(p)-i)
			if string(p[i:i+n]) == e[:n] {
				if n < len(e) {
					return 0, 0, true
				}
				return i, n, true
			}
		}
		if !within(p[i]) {
			return 0, 0, false
		}
	}
	return 0, 0, len(p) < maxAnswer
}

func oscEnd(p []byte) (body, end int, ok bool) {
	return scan(p, func(b byte) bool { return b >= ' ' && b < 0x7f }, "\x07", "\x1b\\")
}

func dcsEnd(p []byte) (body, end int, ok bool) {
	return scan(p, func(b byte) bool { return b >= ' ' && b != 0x7f }, "\x1b\\")
}

func da1End(p []byte) (body, end int, ok bool) {
	body, end, ok = scan(p, func(b byte) bool { return b >= '0' && b <= '9' || b == ';' }, "c")
	return body, end, ok && (end == 0 || body > 0)
}

// modeEnd is for DECRPM: 1 says that the mode is set, 2 that it is reset, 3 and 4
// the same of one that cannot be changed, 0 that it is not known.
func modeEnd(p []byte) (body, end int, ok bool) {
	body, end, ok = scan(p, func(b byte) bool { return b >= '0' && b <= '4' }, "$y")
	return body, end, ok && (end == 0 || body == 1)
}

// An asking takes the terminal's answers to our questions out of what is typed.
// Nothing is put into the terminal before the questions, so that of each kind
// the first answer is ours; later ones are for the session's programs.
type asking struct {
	pass func([]byte) (detach bool) // takes all else, in its order
	told func(protocol.Appearance)  // is called once, with what there is in the end

	initially func(mode string, on bool) // is told of modes that can be changed; may be nil

	begun time.Time
	done  chan struct{} // closed when no more answers are waited for

	mu      sync.Mutex
	waiting []answer
	found   protocol.Appearance
	held    []byte // what may be the beginning of an answer
	since   time.Time
	timer   *time.Timer // of held, or else of the asking
}

// ask is to be called when the questions have been asked. known is what is known
// without them.
func ask(known protocol.Appearance, pass func([]byte) bool, told func(protocol.Appearance)) *asking {
	a := &asking{pass: pass, told: told, begun: time.Now(), done: make(chan struct{}), waiting: answers(), found: known}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.later(askingTime)
	return a
}

// later sets the one timer; mu is held. A timer that was set before does nothing
// any more, even if it has gone off already.
func (a *asking) later(wait time.Duration) {
	if a.timer != nil {
		a.timer.Stop()
	}
	var t *time.Timer
	t = time.AfterFunc(wait, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.timer == t {
			a.expired()
		}
	})
	a.timer = t
}

// expired is called with mu held.
func (a *asking) expired() {
	a.release()
	if rest := askingTime - time.Since(a.begun); rest > 0 {
		a.later(rest)
	} else {
		a.end()
	}
}

// typed takes what comes from the terminal and reports whether it detaches.
func (a *asking) typed(p []byte) (detach bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.held) > 0 {
		p = append(a.held, p...)
		a.held = nil
	} else {
		a.since = time.Now()
	}
	from := 0 // p[from:] is neither passed on nor taken
	for i := 0; len(a.waiting) > 0; {
		esc := bytes.IndexByte(p[i:], 0x1b)
		if esc < 0 {
			break
		}
		i += esc
		n, wait := a.match(p[i:])
		switch {
		case n > 0:
			detach = a.passOn(p[from:i]) || detach
			i += n
			from = i
		case wait > 0:
			detach = a.passOn(p[from:i]) || detach
			if i > 0 {
				a.since = time.Now()
			}
			a.held = bytes.Clone(p[i:])
			a.later(max(0, wait-time.Since(a.since)))
			return detach
		default:
			i++
		}
	}
	return a.passOn(p[from:]) || detach
}

// match looks for an answer at the beginning of p, which it takes, and returns
// its length. Of what may become one it returns how long to wait for the rest.
func (a *asking) match(p []byte) (n int, wait time.Duration) {
	for i, w := range a.waiting {
		if len(p) < len(w.begin) {
			if strings.HasPrefix(w.begin, string(p)) {
				wait = partWait(p)
			}
			continue
		}
		rest, ok := bytes.CutPrefix(p, []byte(w.begin))
		if !ok {
			continue
		}
		body, end, ok := w.end(rest)
		switch {
		case !ok:
		case end == 0:
			wait = partWait(p)
		default:
			a.take(i, string(rest[:body]))
			return len(w.begin) + body + end, 0
		}
	}
	return 0, wait
}

// partWait is how long to wait for the rest of what may be an answer. Nobody
// presses more than three keys within escapeWait.
func partWait(p []byte) time.Duration {
	if len(p) <= 3 {
		return escapeWait
	}
	return answerWait
}

// take notes an answer. After the last one no other comes.
func (a *asking) take(i int, body string) {
	w := a.waiting[i]
	a.waiting = slices.Delete(a.waiting, i, i+1)
	if w.note == nil {
		a.end()
		return
	}
	w.note(&a.found, body)
	if mode := w.modeName(); mode != "" && a.initially != nil && (body == "1" || body == "2") {
		a.initially(mode, body == "1")
	}
}

// end is called with mu held.
func (a *asking) end() {
	a.waiting = nil
	a.timer.Stop()
	a.timer = nil
	a.told(a.found)
	close(a.done)
}

func (a *asking) passOn(p []byte) (detach bool) { return len(p) > 0 && a.pass(p) }

// release passes on what is held; mu is held. That it detaches cannot be: it
// begins with Esc, which no detach key does.
func (a *asking) release() {
	held := a.held
	a.held = nil
	a.passOn(held)
}

// flush passes on what is held: nothing more is typed.
func (a *asking) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.release()
}

// over reports whether no answer is waited for any more.
func (a *asking) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// leave waits a little for answers that are on their way: whoever gets the
// terminal next has no use for them.
func (a *asking) leave() {
	if time.Since(a.begun) > leaveAfter {
		return
	}
	select {
	case <-a.done:
	case <-time.After(leaveWait):
	}
}

// hexColor reads a colour as terminals tell it: rgb: and rgba: with up to four
// digits for each part, or #rrggbb. It returns "" for another.
func hexColor(s string) string {
	if a := (protocol.Appearance{Foreground: s}); s != "" && a.Validate() == nil {
		return strings.ToLower(s)
	}
	_, parts, _ := strings.Cut(s, ":")
	rgb := strings.Split(parts, "/")
	if !strings.HasPrefix(s, "rgb") || len(rgb) < 3 {
		return ""
	}
	out := "#"
	for _, p := range rgb[:3] {
		n, err := strconv.ParseUint(p, 16, 16)
		if err != nil || len(p) > 4 {
			return ""
		}
		most := uint64(1)<<(4*len(p)) - 1
		out += fmt.Sprintf("%02x", (n*255+most/2)/most)
	}
	return out
}

// cutText cuts a text to so many bytes of whole characters.
func cutText(s string, n int) string {
	s = strings.ToValidUTF8(s, "")
	for len(s) > n {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// looks is what is known of the terminal without asking it.
func (t *terminal) looks() protocol.Appearance {
	width, height := cellPixels(t.out)
	a := protocol.Appearance{CellWidth: width, CellHeight: height}
	if a.Validate() != nil {
		return protocol.Appearance{}
	}
	return a
}

// talks reports whether the terminal may be asked. The Linux console answers
// none of the questions but the last.
func (t *terminal) talks() bool {
	return t.escapes() && isTerminal(t.in) && os.Getenv("TERM") != "linux"
}
