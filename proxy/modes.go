package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// modes watches what the output switches on in the terminal, so that it can be
// switched off for whoever gets the terminal back. It need not know more: a
// snapshot sets everything again.
//
// Names are those of the sequences: "?1049" and "4" of modes, "r" and " q" of
// what else a CSI sets, "osc 11" of colours.
type modes struct {
	on    map[string]bool // as last set, by name
	kitty [2]kittyKeys    // of the normal and of the alternate screen
	title int             // titles pushed and not popped
	dirty bool            // more than text was printed
	carry []byte          // the beginning of a sequence at the end of the last output
	open  bool            // the output is within a string that means nothing here

	initial map[string]bool // modes that the terminal said it had set or reset before, by name
}

// kittyKeys is the state of one screen's keyboard protocol.
type kittyKeys struct {
	pushed int
	set    bool // without a push
}

var (
	alternate = []string{"?47", "?1047", "?1049"}
	// hurtOn are the modes that must not stay on: updates held back, mouse,
	// focus, pastes, colour scheme and size reports, win32 keys, cursor and
	// keypad keys, inverse screen.
	hurtOn = []string{
		"?2026", "?9", "?1000", "?1001", "?1002", "?1003", "?1004", "?1005", "?1006", "?1015", "?1016",
		"?2004", "?2031", "?2048", "?9001", "?1", "?66", "?5",
	}
	// onScreen, too, but only once the normal screen is back: origin, left and
	// right margins, insert, newline. Origin goes first: it homes the cursor.
	onScreen = []string{"?6", "?69", "4", "20"}
	// hurtOff must not stay off: the cursor, and the wrap at a line's end.
	hurtOff = []string{"?25", "?7"}
)

// undone is what ends the things that are no modes. Setting the region moves
// the cursor, so it is put back.
var undone = []struct{ name, undo string }{
	{"r", "\x1b7\x1b[r\x1b8"}, {" q", "\x1b[0 q"}, {">4", "\x1b[>4m"}, {"osc 8", "\x1b]8;;\x07"},
	{"osc 4", "\x1b]104\x07"}, {"osc 10", "\x1b]110\x07"}, {"osc 11", "\x1b]111\x07"}, {"osc 12", "\x1b]112\x07"},
	{"osc 17", "\x1b]117\x07"}, {"osc 19", "\x1b]119\x07"},
	{"osc 9;4", "\x1b]9;4;0\x07"}, {"osc 22", "\x1b]22;\x07"},
}

// A sequence longer than these is none that matters; terminals keep some ten
// titles.
const (
	maxCSI    = 64
	maxOSC    = 4096
	maxTitles = 10
)

// see takes what is printed.
func (m *modes) see(p []byte) {
	m.dirty = m.dirty || bytes.ContainsAny(p, "\x1b\x0e") // escape, and the other character set
	if len(m.carry) > 0 {
		p = append(m.carry, p...)
		m.carry = nil
	}
	for {
		i := bytes.IndexByte(p, 0x1b)
		if m.open {
			i = bytes.IndexAny(p, stringEnds)
		}
		if i < 0 {
			return
		}
		p, m.open = p[i:], false
		n := m.sequence(p)
		if n == 0 { // cut off: wait for the rest
			m.carry = bytes.Clone(p)
			return
		}
		p = p[n:]
	}
}

// cancel ends any sequence without effect; stringEnds are all bytes that end a
// string: BEL, cancel, SUB, and ESC as the beginning of ST.
const (
	cancel     = "\x18"
	stringEnds = "\x07\x18\x1a\x1b"
)

// sequence notes the sequence at the beginning of p and returns its length, as
// far as it matters, or 0 for one that is not complete.
func (m *modes) sequence(p []byte) int {
	if p[0] != 0x1b { // the end of a string
		return 1
	}
	if len(p) < 2 {
		return 0
	}
	switch p[1] {
	case '[':
		return m.csi(p)
	case ']':
		return m.osc(p)
	case 'P', 'X', '^', '_':
		m.open = true
		return 2
	case 'c': // the terminal is reset
		*m = modes{dirty: true, initial: m.initial}
	}
	return 1
}

func (m *modes) csi(p []byte) int {
	for i := 2; i < min(len(p), maxCSI); i++ {
		switch b := p[i]; {
		case b >= 0x40 && b <= 0x7e:
			m.final(p[2:i], b)
			return i + 1
		case strings.IndexByte(stringEnds[1:], b) >= 0:
			return i
		}
	}
	if len(p) < maxCSI {
		return 0
	}
	return 1
}

// final acts on a whole CSI sequence.
func (m *modes) final(params []byte, final byte) {
	var prefix byte
	if len(params) > 0 {
		prefix = params[0]
	}
	switch {
	case final == 'h' || final == 'l':
		m.mode(string(params), final == 'h')
	case final == 'u' && (prefix == '>' || prefix == '<' || prefix == '='):
		m.keys(prefix, string(params[1:]))
	case final == 'm' && prefix == '>': // modifyOtherKeys
		if which, value, _ := strings.Cut(string(params[1:]), ";"); which == "4" {
			m.note(">4", value != "" && value != "0")
		}
	case final == 'n' && string(params) == ">4":
		m.note(">4", false)
	case final == 'q' && bytes.HasSuffix(params, []byte(" ")):
		m.note(" q", strings.Trim(string(params), "0 ") != "")
	case final == 't':
		m.titles(string(params))
	case final == 'r' && prefix != '?':
		m.note("r", len(params) > 0)
	}
}

func (m *modes) mode(params string, on bool) {
	prefix := ""
	if strings.HasPrefix(params, "?") {
		prefix, params = "?", params[1:]
	}
	for n := range strings.SplitSeq(params, ";") {
		m.note(prefix+n, on)
	}
}

func (m *modes) note(name string, on bool) {
	if m.on == nil {
		m.on = make(map[string]bool)
	}
	m.on[name] = on
}

// keys follows the stack of kitty's keyboard flags.
func (m *modes) keys(what byte, params string) {
	k := &m.kitty[m.screen()]
	switch what {
	case '>':
		k.pushed++
	case '<':
		n, err := strconv.Atoi(params)
		if err != nil {
			n = 1
		}
		k.pushed = max(0, k.pushed-n)
	case '=':
		if k.pushed > 0 { // gone with what was pushed
			return
		}
		flags, how, _ := strings.Cut(params, ";")
		switch some := strings.Trim(flags, "0") != ""; how {
		case "", "1": // these flags and no others
			k.set = some
		case "2": // these too
			k.set = k.set || some
		}
	}
}

// titles follows the stack of window titles: xterm's terminfo has programs push
// with the alternate screen.
func (m *modes) titles(params string) {
	what, which, _ := strings.Cut(params, ";")
	which, _, _ = strings.Cut(which, ";")
	switch {
	case which == "1": // the icon's
	case what == "22":
		m.title = min(m.title+1, maxTitles)
	case what == "23":
		m.title = max(m.title-1, 0)
	}
}

// screen is 1 while the alternate screen is shown.
func (m *modes) screen() int {
	if slices.ContainsFunc(alternate, m.is) {
		return 1
	}
	return 0
}

func (m *modes) is(name string) bool { return m.on[name] }

func (m *modes) osc(p []byte) int {
	end := bytes.IndexAny(p[2:min(len(p), maxOSC)], stringEnds)
	switch {
	case end >= 0 && (p[2+end] == 0x07 || p[2+end] == 0x1b):
		m.command(string(p[2 : 2+end]))
		fallthrough
	case end >= 0:
		return 2 + end
	case len(p) < maxOSC:
		return 0
	}
	m.open = true
	return 2
}

// command notes the colours that are set, an open link, progress that is shown,
// and the pointer's shape. A "?" only asks.
func (m *modes) command(text string) {
	number, value, _ := strings.Cut(text, ";")
	switch number {
	case "4", "10", "11", "12", "17", "19":
		if !strings.HasSuffix(value, "?") {
			m.note("osc "+number, true)
		}
	case "104", "110", "111", "112", "117", "119":
		m.note("osc "+strings.TrimLeft(number[1:], "0"), false)
	case "9":
		if progress, ok := strings.CutPrefix(value, "4;"); ok {
			state, _, _ := strings.Cut(progress, ";")
			m.note("osc 9;4", state != "0" && state != "")
		}
	case "22":
		if !strings.HasPrefix(value, "?") {
			m.note("osc 22", value != "" && value != "default")
		}
	case "8":
		_, uri, _ := strings.Cut(value, ";")
		m.note("osc 8", uri != "")
	}
}

// undo returns what switches everything off, and forgets it. The alternate
// screen has keyboard flags of its own, and leaving it brings back cursor and
// colours of before, so there is an order.
func (m *modes) undo() string {
	if !m.dirty {
		return ""
	}
	var out strings.Builder
	if len(m.carry) > 0 || m.open {
		out.WriteString(cancel)
	}
	reset := func(names []string) {
		for _, n := range names {
			if m.is(n) {
				out.WriteString("\x1b[" + n + "l")
			}
		}
	}
	reset(hurtOn)
	if m.screen() == 1 {
		out.WriteString(m.kitty[1].undo())
	}
	reset(alternate)
	out.WriteString(m.kitty[0].undo())
	reset(onScreen)
	for _, n := range hurtOff {
		if on, seen := m.on[n]; seen && !on {
			out.WriteString("\x1b[" + n + "h")
		}
	}
	for _, u := range undone {
		if m.is(u.name) {
			out.WriteString(u.undo)
		}
	}
	out.WriteString(strings.Repeat(popTitle, m.title))
	for _, n := range slices.Sorted(maps.Keys(m.initial)) {
		if on, seen := m.on[n]; seen && on != m.initial[n] {
			out.WriteString("\x1b[" + n + modeFinal(m.initial[n]))
		}
	}
	out.WriteString("\x1b[0m\x1b(B\x0f\x1b>")
	*m = modes{initial: m.initial}
	return out.String()
}

func modeFinal(on bool) string {
	if on {
		return "h"
	}
	return "l"
}

func (k kittyKeys) undo() string {
	out := ""
	if k.pushed > 0 {
		out = fmt.Sprintf("\x1b[<%du", k.pushed)
	}
	if k.set {
		out += "\x1b[=0u"
	}
	return out
}
