package front

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"holdfast/shared/escseq"
	"holdfast/shared/termmode"
)

// modes records the modes that the output sets in the terminal, so that undo can reset them for the
// program that uses the terminal next. It need not record everything, because a snapshot sets all
// modes again.
//
// The names are parts of the sequences: "?1049" and "4" for modes, "r" and " q" for other CSI
// sequences, "osc 11" for colours.
type modes struct {
	on    map[string]bool // the last state by name
	kitty [2]kittyKeys    // of the normal and of the alternate screen
	title int             // the number of titles pushed and not popped
	dirty bool            // the output had more than text

	tokens  escseq.Tokenizer // splits the output
	initial map[string]bool  // the state of modes before the session, as the terminal reported it, by name
}

// kittyKeys is the state of kitty's keyboard protocol on one screen.
type kittyKeys struct {
	pushed int
	set    bool // set without a push
}

// undoable has the modes of the table that undo resets, by name.
var undoable = func() map[string]bool {
	names := make(map[string]bool)
	for _, m := range termmode.All {
		if m.Undo != termmode.Stays {
			names[m.Parameter()] = true
		}
	}
	return names
}()

// undone lists the sequences that reset states that are no modes. Resetting the scroll region moves
// the cursor, so the cursor is saved and restored.
var undone = []struct{ name, undo string }{
	{"r", "\x1b7\x1b[r\x1b8"}, {" q", "\x1b[0 q"}, {">4", "\x1b[>4m"}, {"osc 8", "\x1b]8;;\x07"},
	{"osc 4", "\x1b]104\x07"}, {"osc 10", "\x1b]110\x07"}, {"osc 11", "\x1b]111\x07"}, {"osc 12", "\x1b]112\x07"},
	{"osc 17", "\x1b]117\x07"}, {"osc 19", "\x1b]119\x07"},
	{"osc 9;4", "\x1b]9;4;0\x07"}, {"osc 22", "\x1b]22;\x07"},
}

// Sequences that are longer than maxBody are ignored. Terminals keep about ten titles.
const (
	maxBody   = 4096
	maxTitles = 10
)

// cancel ends any sequence without effect.
const cancel = "\x18"

// record records the modes that the output p sets.
func (m *modes) record(p []byte) {
	m.tokens.Room = maxBody
	for i := 0; i < len(p); {
		tok := m.tokens.Next(p, i)
		m.dirty = m.dirty || tok.Kind != escseq.Text || bytes.IndexByte(p[tok.Start:tok.End], '\x0e') >= 0 // it switches to another character set
		i = tok.End
		if !tok.Complete || m.tokens.IsTooLong() {
			continue
		}
		switch body := m.tokens.Body(); tok.Kind {
		case escseq.CSI:
			m.final(body, tok.Final)
		case escseq.OSC:
			m.command(string(body))
		case escseq.Escape:
			if tok.Final == 'c' && len(body) == 0 { // RIS resets the terminal
				*m = modes{dirty: true, initial: m.initial, tokens: m.tokens}
			}
		}
	}
}

// final records a complete CSI sequence.
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
	case final == 'm' && prefix == '>': // the parameter of modifyOtherKeys
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

// mode records that modes are set or reset.
func (m *modes) mode(params string, on bool) {
	prefix := ""
	if strings.HasPrefix(params, "?") {
		prefix, params = "?", params[1:]
	}
	for n := range strings.SplitSeq(params, ";") {
		name := prefix + n
		if undoable[name] {
			m.note(name, on)
		}
		if name == "?1049" && !on { // whichever mode has shown the alternate screen
			m.note("?47", false)
			m.note("?1047", false)
		}
	}
}

// note records the state of one name.
func (m *modes) note(name string, on bool) {
	if m.on == nil {
		m.on = make(map[string]bool)
	}
	m.on[name] = on
}

// keys records changes of the stack of kitty's keyboard flags.
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
		if k.pushed > 0 { // popping also removes these flags
			return
		}
		flags, how, _ := strings.Cut(params, ";")
		switch some := strings.Trim(flags, "0") != ""; how {
		case "", "1": // exactly these flags
			k.set = some
		case "2": // these flags in addition
			k.set = k.set || some
		}
	}
}

// titles records changes of the stack of window titles. The terminfo of xterm makes programs push
// the title when they enter the alternate screen.
func (m *modes) titles(params string) {
	what, which, _ := strings.Cut(params, ";")
	which, _, _ = strings.Cut(which, ";")
	switch {
	case which == "1": // the title of the icon
	case what == "22":
		m.title = min(m.title+1, maxTitles)
	case what == "23":
		m.title = max(m.title-1, 0)
	}
}

// screen returns 1 while the alternate screen is shown, and 0 otherwise.
func (m *modes) screen() int {
	for _, mode := range termmode.All {
		if mode.Undo == termmode.Alternate && m.is(mode.Parameter()) {
			return 1
		}
	}
	return 0
}

// is reports whether the name is set.
func (m *modes) is(name string) bool { return m.on[name] }

// command records colours that are set, an open link, a progress indicator and the shape of the
// pointer. A "?" in place of the value is a query.
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

// undo returns the sequences that reset everything, and clears the record. The order matters: the
// alternate screen has keyboard flags of its own, and leaving it restores the earlier cursor and
// colours.
func (m *modes) undo() string {
	if !m.dirty {
		return ""
	}
	var out strings.Builder
	if m.tokens.Kind() != escseq.Text {
		out.WriteString(cancel)
	}
	reset := func(place termmode.Undo) {
		for _, mode := range termmode.All {
			if on, seen := m.on[mode.Parameter()]; mode.Undo == place && seen && on != mode.Default {
				out.WriteString(mode.Sequence(mode.Default))
			}
		}
	}
	reset(termmode.AtOnce)
	if m.screen() == 1 {
		out.WriteString(m.kitty[1].undo())
	}
	reset(termmode.Alternate)
	out.WriteString(m.kitty[0].undo())
	reset(termmode.OnNormal)
	for _, u := range undone {
		if m.is(u.name) {
			out.WriteString(u.undo)
		}
	}
	out.WriteString(strings.Repeat(popTitle, m.title))
	for _, n := range slices.Sorted(maps.Keys(m.initial)) {
		if on, seen := m.on[n]; seen && on != m.initial[n] {
			out.WriteString("\x1b[" + n + string(termmode.Final(m.initial[n])))
		}
	}
	out.WriteString("\x1b[0m\x1b(B\x0f\x1b>")
	*m = modes{initial: m.initial}
	return out.String()
}

// undo returns the sequences that reset the keyboard protocol.
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
