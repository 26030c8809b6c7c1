package front

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/shared/escseq"
	"holdfast/shared/plain"
	"holdfast/shared/termmode"
)

// questions returns the queries for the terminal's colours, its version, and modes that it may have
// set by itself (modeQuestions). The last query is one that every terminal answers; terminals
// answer in order, so that no other answer can follow this one.
func questions() string {
	const looks, last = "\x1b]10;?\x1b\\\x1b]11;?\x1b\\\x1b]12;?\x1b\\\x1b[>0q", "\x1b[c"
	if os.Getenv("TERM_PROGRAM") == "Apple_Terminal" { // it prints the p of the mode queries
		return looks + last
	}
	return looks + modeQuestions() + last
}

// modeQuestions returns the queries (DECRQM) for the modes whose initial state differs between
// terminals, so that undo must restore it.
func modeQuestions() (all string) {
	for _, m := range termmode.All {
		if m.Undo == termmode.ToInitial {
			all += "\x1b[" + m.Parameter() + "$p"
		}
	}
	return all
}

const (
	// escapeWait is how long input is held back that may be the beginning of an answer, or a key:
	// Esc, or Alt with another key.
	escapeWait = 30 * time.Millisecond
	// answerWait is how long input is held back that no key can send.
	answerWait = 500 * time.Millisecond
	// askingTime is how long answers are expected; a terminal may be on a slow line.
	askingTime = 10 * time.Second
	// leaveWait is how long a viewer that detaches waits for missing answers, which the shell would
	// otherwise receive as input. A terminal that has sent no answer within leaveAfter is assumed
	// to answer no query.
	leaveWait, leaveAfter = 250 * time.Millisecond, time.Second
)

// An answer describes the terminal's answer to one of the queries.
type answer struct {
	begin string // the bytes before the body
	end   string // the bytes after the body of a CSI sequence; "" for a string, which has several ends
	is    func(body string) bool
	note  func(*protocol.Appearance, string)
}

// answers returns the expected answers in the order of the queries.
func answers() []answer {
	all := []answer{
		{"\x1b]10;", "", isASCII, func(a *protocol.Appearance, s string) { a.Foreground = hexColor(s) }},
		{"\x1b]11;", "", isASCII, func(a *protocol.Appearance, s string) { a.Background = hexColor(s) }},
		{"\x1b]12;", "", isASCII, func(a *protocol.Appearance, s string) { a.Cursor = hexColor(s) }},
		{"\x1bP>|", "", isText, func(a *protocol.Appearance, s string) { a.Version = plain.Cut(s, protocol.MaxTerminalVersion) }},
	}
	for _, m := range termmode.All {
		if m.Undo == termmode.ToInitial {
			all = append(all, answer{"\x1b[" + m.Parameter() + ";", "$y", isModeState, func(a *protocol.Appearance, s string) {
				if m.Number == termmode.Graphemes {
					a.NoGraphemes = s == "0" || s == "4"
				}
			}})
		}
	}
	return append(all, answer{"\x1b[?", "c", isNumbers, nil})
}

// modeName returns the name of the mode that the answer reports, as in modes, or "" if it reports
// no mode.
func (w *answer) modeName() string {
	if params, ok := strings.CutPrefix(w.begin, "\x1b["); ok {
		if name, ok := strings.CutSuffix(params, ";"); ok {
			return name
		}
	}
	return ""
}

// maxAnswer bounds the length of an answer's body, in bytes.
const maxAnswer = 256

// isText reports whether s is short and has no control characters.
func isText(s string) bool {
	return len(s) < maxAnswer && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// isASCII reports whether s is such a text without characters above U+007F.
func isASCII(s string) bool {
	return isText(s) && !strings.ContainsFunc(s, func(r rune) bool { return r > 0x7f })
}

// isModeState reports whether s is the state of a mode: 1 if the mode is set, 2 if it is reset, 3 or
// 4 if it is permanently set or reset, and 0 if the terminal does not know the mode.
func isModeState(s string) bool { return len(s) == 1 && s[0] >= '0' && s[0] <= '4' }

// isNumbers reports whether s is the body of the answer to DA1.
func isNumbers(s string) bool { return s != "" && strings.Trim(s, "0123456789;") == "" }

// body returns the body of the answer if u, the unit at the beginning of the input p, is this answer.
func (w *answer) body(u escseq.Input, p []byte) (body string, ok bool) {
	if !u.Complete || u.Kind != escseq.CSI && u.Kind != escseq.OSC && u.Kind != escseq.DCS {
		return "", false
	}
	text := p[:u.Len]
	if w.end == "" {
		text = p[:2+len(u.Body)]
	}
	body, ok = strings.CutPrefix(string(text), w.begin)
	if ok {
		body, ok = strings.CutSuffix(body, w.end)
	}
	return body, ok && w.is(body)
}

// mayBegin reports whether p may be a part of this answer, which more input completes.
func (w *answer) mayBegin(p string) bool {
	if len(p) < len(w.begin) {
		return strings.HasPrefix(w.begin, p)
	}
	body, ok := strings.CutPrefix(p, w.begin)
	if w.end != "" {
		return ok && strings.Trim(body, "0123456789;$") == ""
	}
	return ok && w.is(strings.TrimSuffix(body, "\x1b")) // ESC may begin the end of the string
}

// An asking removes the terminal's answers to the queries of attach from the terminal's input. The session's
// output is not written to the terminal before the queries, so the first answer of each kind
// belongs to them, and later ones belong to the programs of the session.
type asking struct {
	pass   func([]byte) (detach bool) // receives all other input in order
	report func(protocol.Appearance)  // is called once with the collected answers

	initially func(mode string, on bool) // receives the state of modes that can be changed; may be nil

	begun time.Time
	done  chan struct{} // closed when no more answers are expected

	mu      sync.Mutex
	waiting []answer
	found   protocol.Appearance
	held    []byte // the possible beginning of an answer
	since   time.Time
	timer   *time.Timer // releases held, or else ends the asking
}

// ask returns an asking. It must be called right after the queries were written. known is the part
// of the appearance that needs no query.
func ask(known protocol.Appearance, pass func([]byte) bool, report func(protocol.Appearance)) *asking {
	a := &asking{pass: pass, report: report, begun: time.Now(), done: make(chan struct{}), waiting: answers(), found: known}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.later(askingTime)
	return a
}

// later sets the only timer. The caller holds mu. A timer that was set before has no effect any
// more, even if it has already fired.
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

// expired handles the timer. The caller holds mu.
func (a *asking) expired() {
	a.release()
	if rest := askingTime - time.Since(a.begun); rest > 0 {
		a.later(rest)
	} else {
		a.end()
	}
}

// filter removes answers from the input p, passes on the rest, and reports whether that detaches.
func (a *asking) filter(p []byte) (detach bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.held) > 0 {
		p = append(a.held, p...)
		a.held = nil
	} else {
		a.since = time.Now()
	}
	from := 0 // p[from:] is neither passed on nor removed
	for i := 0; len(a.waiting) > 0; {
		esc := bytes.IndexByte(p[i:], escseq.ESC)
		if esc < 0 {
			break
		}
		i += esc
		u := escseq.NextInput(p[i:])
		switch {
		case u.Complete || u.Final != 0:
			if a.match(u, p[i:]) {
				detach = a.passOn(p[from:i]) || detach
				from = i + u.Len
			}
			i += u.Len
		case a.mayBegin(string(p[i:])):
			detach = a.passOn(p[from:i]) || detach
			if i > 0 {
				a.since = time.Now()
			}
			a.held = bytes.Clone(p[i:])
			a.later(max(0, partWait(a.held)-time.Since(a.since)))
			return detach
		default:
			i++
		}
	}
	return a.passOn(p[from:]) || detach
}

// match reports whether u, the unit at the beginning of p, is an expected answer, and accepts it.
func (a *asking) match(u escseq.Input, p []byte) bool {
	for i := range a.waiting {
		if body, ok := a.waiting[i].body(u, p); ok {
			a.accept(i, body)
			return true
		}
	}
	return false
}

// mayBegin reports whether p may be a part of an expected answer.
func (a *asking) mayBegin(p string) bool {
	return slices.ContainsFunc(a.waiting, func(w answer) bool { return w.mayBegin(p) })
}

// partWait returns how long to wait for the remainder of a possible answer. Up to three bytes may
// be keys, because people do not press more keys within escapeWait.
func partWait(p []byte) time.Duration {
	if len(p) <= 3 {
		return escapeWait
	}
	return answerWait
}

// accept stores the i-th expected answer. The answer without a note is the last one.
func (a *asking) accept(i int, body string) {
	w := a.waiting[i]
	a.waiting = slices.Delete(a.waiting, i, i+1)
	if w.note == nil {
		a.found.Pictures = pictures(body, a.found)
		a.end()
		return
	}
	w.note(&a.found, body)
	if mode := w.modeName(); mode != "" && a.initially != nil && (body == "1" || body == "2") {
		a.initially(mode, body == "1")
	}
}

// The names with which the answers to XTVERSION begin of terminals that show inline images of iTerm2, and of
// those that show kitty's graphics (their documentation).
var (
	iterm2Names = []string{"iTerm2 ", "WezTerm ", "mintty ", "Konsole "}
	kittyNames  = []string{"kitty(", "ghostty "}
)

// pictures returns the pictures that the terminal shows. features is the body of its answer to DA1, in which
// 4 stands for sixel. If the size of its cells is unknown, pictures cannot be laid out.
func pictures(features string, look protocol.Appearance) (p protocol.Pictures) {
	if look.CellWidth == 0 || look.CellHeight == 0 {
		return p
	}
	p.Sixel = slices.Contains(strings.Split(features, ";")[1:], "4")
	isNamed := func(name string) bool { return strings.HasPrefix(look.Version, name) }
	// The image addon of xterm.js shows both forms, and is not always there.
	p.Kitty = slices.ContainsFunc(kittyNames, isNamed)
	p.ITerm2 = slices.ContainsFunc(iterm2Names, isNamed) || p.Sixel && isNamed("xterm.js(")
	return p
}

// end stops waiting and reports the collected answers. The caller holds mu.
func (a *asking) end() {
	a.waiting = nil
	a.timer.Stop()
	a.timer = nil
	a.report(a.found)
	close(a.done)
}

// passOn passes input on, unless it is empty.
func (a *asking) passOn(p []byte) (detach bool) { return len(p) > 0 && a.pass(p) }

// release passes on the input that was held back. The caller holds mu. This input cannot detach,
// because it begins with Esc and no detach key does.
func (a *asking) release() {
	held := a.held
	a.held = nil
	a.passOn(held)
}

// flush passes on the input that was held back, because no more input follows.
func (a *asking) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.release()
}

// over reports whether no more answers are expected.
func (a *asking) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// leave waits for missing answers for a short time, because the program that uses the terminal next
// would receive them as input.
func (a *asking) leave() {
	if time.Since(a.begun) > leaveAfter {
		return
	}
	select {
	case <-a.done:
	case <-time.After(leaveWait):
	}
}

// hexColor converts a colour from the form of an answer (rgb: or rgba: with up to four digits for
// each part, or #rrggbb) to #rrggbb. It returns "" if s has another form.
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

// Appearance returns the part of the terminal's appearance that is known without a query: the size of
// its cells.
func (t *Terminal) Appearance() protocol.Appearance {
	width, height := cellPixels(t.out)
	a := protocol.Appearance{CellWidth: width, CellHeight: height}
	if a.Validate() != nil {
		return protocol.Appearance{}
	}
	return a
}

// canAsk reports whether queries may be sent to the terminal. The Linux console answers only the
// last one of them.
func (t *Terminal) canAsk() bool {
	return t.Escapes() && t.HasKeyboard() && os.Getenv("TERM") != "linux"
}
